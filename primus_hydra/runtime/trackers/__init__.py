"""Experiment trackers. This package says whether they can work; what talks to them is imported by ranks only."""

from primus_hydra.runtime.trackers.check import enabled_trackers, tracker_problems

__all__ = ["enabled_trackers", "tracker_problems"]
