"""Patches of torchtitan 0.3: what keeps it from training on a processor, and what it guesses or waits for everywhere.

Each says why it exists, and each has a test that fails without it.
"""
