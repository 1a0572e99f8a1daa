"""The Hydra groups, one small YAML per choice."""

# Under its short name this package would be a second copy beside primus_hydra.conf, with registries of its own.
if __name__ != "primus_hydra.conf":
    raise ImportError(
        f"import primus_hydra.conf, not {__name__}: a second copy would not share its state", name=__name__
    )
