"""Neutral models as Megatron models: what goes into its configuration classes, and what Megatron cannot build.

`limits` is plain Python and safe in the launcher; every other module here needs torch and Megatron, so nothing is
imported with the package.
"""
