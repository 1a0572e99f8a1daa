"""Composition, validation and identity of the configuration. Never imports torch."""
