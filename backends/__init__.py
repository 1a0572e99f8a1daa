"""Backend packages. Backends do not know each other."""

# Under its short name this package would be a second copy beside primus_hydra.backends, with registries of its own.
if __name__ != "primus_hydra.backends":
    raise ImportError(
        f"import primus_hydra.backends, not {__name__}: a second copy would not share its state", name=__name__
    )
