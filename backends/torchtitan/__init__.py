"""The torchtitan backend: adapter, translation of the configuration, and a trainer around torchtitan's own."""
