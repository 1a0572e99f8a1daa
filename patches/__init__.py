"""Registered patches, one package per backend."""
