"""Patches of Megatron: what keeps it from training on a processor, and what is wrong everywhere.

Each says why it exists, and each has a test that fails without it.
"""
