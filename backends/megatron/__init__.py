"""Megatron: our training loop on megatron-core (`backend=megatron`), or upstream's (`backend=megatron_training`)."""
