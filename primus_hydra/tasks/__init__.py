"""Tasks: what to do with the composed configuration. One class each, loaded by `_target_`."""
