"""Drills: every fault that a run must survive, made with real processes through the real command, for both backends.

`table` names the faults; `python -m tests.drills` runs them and keeps the page, `test_drills` runs one of each kind.
"""
