"""Micro-benchmarks: the products, attention, collectives, data and checkpoints of a composed model, measured alone."""
