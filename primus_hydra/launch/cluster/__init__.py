"""A job over several nodes: who is who in an allocation, and how its nodes meet."""
