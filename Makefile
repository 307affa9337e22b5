# Every target sets up what it needs on a machine that has python3, venv, make and a package index.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DOCS   := $(VENV)/.docs-installed
# Three workers for two cores, because some tests wait, with one JAX thread each (tests/conftest.py). A file's tests run
# in one worker: its fixtures and compiled programs are made once.
PYTEST := $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder
# Every worker imports all tests, and many tests start a process: Python must keep what it has compiled.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo toy docs notebooks test check unit tests types coverage test-long mutations format bench clean

help:            ## list the targets
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(STAMP) ## create .venv and install odice with its development tools

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,onnx,mazes]'
	@touch $@

$(DOCS): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	@touch $@

demo: $(STAMP)   ## train a hopping robot from the bundled data set: curve, policy, table, video in demo/
	$(BIN)/odice demo --out demo

toy: $(STAMP)    ## the paper's toy world: three gradient rules, one figure in demo/toy/
	$(BIN)/odice toy --out demo/toy

docs: $(DOCS)    ## the documentation site in site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

notebooks: $(STAMP) ## run the tutorials and keep what they print
	MPLBACKEND=agg $(BIN)/python docs/notebooks.py docs/start/quickstart.md $(filter-out %/index.md,$(wildcard docs/tutorials/*.md))

test: $(STAMP)   ## everything CI runs: format, lint, types, all tests but the long ones, and the site
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --jobs=2 types tests
	$(MAKE) docs

check: $(STAMP)  ## format, lint, types and the fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --jobs=2 types unit

types: $(STAMP)
	$(BIN)/pyright

tests: $(STAMP)
	$(PYTEST) -m "not long"

# Of the fast tests hardly any waits, and a worker takes six seconds to import them.
unit: $(STAMP)   ## the fast tests
	$(PYTEST) -n 2 -m "not slow and not long"

coverage: $(STAMP) ## all tests but the long ones, and the lines that none of them reaches
	$(PYTEST) -m "not long" --cov

mutations: $(STAMP) ## put known mistakes into a copy of the code: do the tests catch them?
	$(BIN)/python benchmarks/mutations.py

test-long: $(STAMP) ## the tests that take minutes each
	$(PYTEST) -m long

format: $(STAMP) ## format the code and apply the linter's fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## updates per second against the machine's matrix-multiply rate
	$(BIN)/odice bench --section updates

clean:           ## remove the environment and what the commands made
	rm -rf $(VENV) demo site build dist htmlcov .coverage .pytest_cache .ruff_cache .hypothesis
