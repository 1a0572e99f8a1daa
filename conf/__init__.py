"""The Hydra groups, one small YAML per choice."""
