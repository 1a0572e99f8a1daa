"""The run on disk: its paths, its lock, its state, its checkpoints and its metrics. Never imports torch."""
