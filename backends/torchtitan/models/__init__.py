"""Neutral models as torchtitan models: one file per family, and what torchtitan cannot build.

`limits` is plain Python and safe in the launcher; every other module here needs torch and torchtitan, so nothing is
imported with the package.
"""
