"""Models in Hugging Face's layout on disk: what a folder holds, what a job expects of it, and how one is written.

Imports neither torch nor transformers: everything here is said of names, shapes and number formats.
"""
