"""Text to tokens on disk, and tokens to samples in a fixed order. Uses numpy and tokenizers, never torch."""
