"""Import this module to prepare the process as a fork server: the form in which Python's own fork server takes it."""

from primus_hydra.runtime.preload import preload

preload()
