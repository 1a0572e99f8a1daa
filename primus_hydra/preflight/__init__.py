"""Whether nodes are fit for a job: facts, tests with limits, a verdict for each node with its reason."""
