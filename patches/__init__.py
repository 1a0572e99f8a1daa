"""Registered patches, one package per backend."""

# Under its short name this package would be a second copy beside primus_hydra.patches, with registries of its own.
if __name__ != "primus_hydra.patches":
    raise ImportError(
        f"import primus_hydra.patches, not {__name__}: a second copy would not share its state", name=__name__
    )
