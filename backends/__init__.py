"""Backend packages. Backends do not know each other."""
