"""The patch registry: registered changes to a backend, and what decides whether each applies."""
