"""What the vendors' tools say of the GPUs: one reader for each tool, one form for all."""
