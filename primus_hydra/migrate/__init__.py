"""From recipes of other launchers to an experiment file of ours: every key is accounted for."""
