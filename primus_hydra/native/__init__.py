"""Native keys (`backend.config.*`): fields of a backend's own configuration classes, checked and laid over strictly.

Every backend whose native configuration is made of dataclasses uses this: a class is described as data (`describe`), a
tree of keys is checked against descriptions without the backend (`check`, `catalog`, `owned`), and in a rank the
checked values are laid over the real classes (`overlay`). Imports neither torch nor a backend.
"""
