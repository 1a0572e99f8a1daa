"""primus_hydra: one command that composes a configuration and trains a large language model anywhere."""

__version__ = "0.1.0"
