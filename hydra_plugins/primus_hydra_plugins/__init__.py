"""What Hydra insists on finding in its plugin namespace: the search path of the user's own groups."""
