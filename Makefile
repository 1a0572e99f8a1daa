# The lanes that are too long for every check. PYTHON is the interpreter of the environment that ./bootstrap dev makes.
PYTHON ?= $(if $(wildcard .venv/bin/python),.venv/bin/python,python)

.PHONY: drill
drill:
	$(PYTHON) -m tests.drills $(FAULT)
