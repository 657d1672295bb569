# The commands of this repository. `make` alone lists them.
# PYTHON=python3.13 names an interpreter, which has an environment of its own: .venv-3.13.
# OUTLIVE_VENV moves the environment; ARGS is passed on to the program that a target runs.

PYTHON :=
ARGS :=
DEFAULT_VENV := $(or $(OUTLIVE_VENV),.venv)
ifdef PYTHON
VERSION := $(shell "$(PYTHON)" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
VENV := $(DEFAULT_VENV)-$(or $(VERSION),$(error "$(PYTHON)" is no Python that starts))
else
VENV := $(DEFAULT_VENV)
endif
BIN := $(VENV)/bin
# Half of a test run waits, for real clocks and for servers, and the simulations, with which one
# worker begins, do not: four workers keep two cores busy. Each has servers of its own, and more
# would make the tests that measure time wait for each other; ARGS="-n 0" runs without.
WORKERS := 4

# Pyright's wrapper reminds of newer releases; ours is pinned.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

# Images of containers often set it. The tests start hundreds of processes, and each would compile
# every module that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-repeat lint bench soak clean core dev

help:
	@echo "make demo       show the main job end to end on an embedded SQLite file"
	@echo "make test       run all tests, with real servers that are fetched and started as needed"
	@echo "make test-fast  run the tests that need nothing but Python"
	@echo "make test-repeat N=3 [LOAD=1]  run all tests so often; LOAD=1 keeps every core busy meanwhile"
	@echo "make lint       check style, types and layers"
	@echo "make bench      measure all areas beside the raw driver; JSON=FOLDER keeps their rows"
	@echo "make soak       run the long forms of the tests"
	@echo "make clean      remove the environments, caches and builds"
	@echo "PYTHON=python3.13 runs any of them on that interpreter, in an environment of its own"

core dev:
	@OUTLIVE_VENV="$(VENV)" $(if $(PYTHON),OUTLIVE_PYTHON="$(PYTHON)") tools/bootstrap.sh $@

demo: core
	@$(BIN)/python -m outlive.demo $(ARGS)

test: dev
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-fast: dev
	@$(BIN)/python -m pytest -n $(WORKERS) -m "not service and not process and not soak" $(ARGS)

test-repeat: dev
	@$(BIN)/python tools/repeat.py $(if $(LOAD),--load) $(or $(N),3) \
		$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

bench: dev
	@status=0; for area in leases work flows charts; do \
		$(BIN)/python -m benchmarks $$area $(if $(JSON),--json $(JSON)/$$area.json) $(ARGS) || status=1; \
	done; exit $$status

soak: dev
	@OUTLIVE_SOAK=1 $(BIN)/python -m pytest $(ARGS)

# Removes only what is certainly a virtual environment.
clean:
	@for venv in "$(DEFAULT_VENV)" "$(DEFAULT_VENV)"-3.*; do \
		if [ -f "$$venv/pyvenv.cfg" ]; then rm -rf "$$venv"; fi; \
	done
	@rm -rf build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find src tests tools benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
