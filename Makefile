PYTHON ?= python3
BIN := .venv/bin
# Versions that are known to pass; `make test CONSTRAINTS=` takes the newest of everything instead.
CONSTRAINTS := --constraint constraints.txt --build-constraint constraints.txt
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile $(CONSTRAINTS)

.PHONY: demo verified hashes test test-all test-oldest coverage lint format bench docs pictures wheel clean

## make demo: install into .venv and run the main job on simulated data
demo: .venv/core
	$(BIN)/bagwise demo

## make verified: install into .venv what `make test` needs, of files with known checksums alone (hashes.txt), and build with nothing else
verified: .venv/bin/pip
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --require-hashes --requirement hashes.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --no-deps --no-build-isolation --editable .
	@touch .venv/core .venv/dev

## make hashes: hashes.txt anew, from constraints.txt; needs uv
hashes:
	echo hatchling | uv pip compile --quiet --no-header --no-annotate --generate-hashes --universal --python-version 3.11 --constraint constraints.txt --extra all --extra dev --output-file hashes.txt pyproject.toml -

## make test: install the development tools too, then lint, types, imports, doctests and tests
test: .venv/dev
	@$(MAKE) --no-print-directory -j 2 lint .venv/compiled  # side by side: each has pauses
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal -m "not slow"  # one process per core, each a stretch of files

## make test-all: everything, statistics with several seeds, Dask, Spark if there is Java, the documentation
test-all: lint .venv/engines .venv/compiled docs
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal --seeds 5

## make test-oldest: the tests with the oldest versions that pyproject.toml allows, in a place of their own;
## OLDEST=torch==2.13.0 takes another version of a package
test-oldest: .venv-oldest/ready
	OMP_NUM_THREADS=1 .venv-oldest/bin/pytest -n auto --dist worksteal -m "not slow" -W ignore::DeprecationWarning

## make coverage: the tests of `make test`, and which lines of src they never reach
coverage: .venv/dev .venv/compiled
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal -m "not slow" --cov --cov-report=term:skip-covered --cov-report=xml

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

## make bench: ratios, measured side by side, appended to benchmarks/history.jsonl, shown with those of before, and docs/costs.md;
## how cost grows, and docs/scaling.md
RATIOS := startup bags ridge ridge_in_engine logistic logistic_from_shards reports boosting_cost auto_budget measuring sgd neural replicas distributed distributed_boosting
bench: .venv/dev
	for name in $(RATIOS); do $(BIN)/python benchmarks/$$name.py || exit 1; done
	$(BIN)/python benchmarks/history.py
	$(BIN)/python benchmarks/history.py --page
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/scaling.py

## make docs: the documentation site, in docs/_build/html; its examples run, warnings are errors
docs: .venv/docs
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "Written: docs/_build/html/index.html"

## make pictures: those of the demo and of a report, in docs/figures; needs Chromium
pictures: .venv/dev
	$(BIN)/python docs/pictures.py

## make wheel: dist/, and the demo with the wheel alone, in an empty environment without constraints
wheel: .venv/dev
	rm -rf dist build/fresh
	$(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv build/fresh
	build/fresh/bin/pip install --quiet --disable-pip-version-check dist/*.whl
	cd build && fresh/bin/bagwise demo --out fresh/demo

clean:
	rm -rf .venv .venv-oldest build dist bagwise-demo bagwise-results docs/_build docs/gallery docs/sg_execution_times.rst

.venv/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "bagwise needs Python 3.11 or newer: make PYTHON=python3.12 …" >&2; exit 1; }
	$(PYTHON) -m venv --upgrade-deps .venv  # the newest pip takes half the time of old ones

# A stamp per set of extras: set-up runs again only when what it depends on changed.
.venv/core: .venv/bin/pip pyproject.toml constraints.txt
	$(INSTALL) --editable .
	@touch $@

.venv/dev: .venv/bin/pip pyproject.toml constraints.txt
	$(INSTALL) --editable '.[all,dev]'
	@touch $@ .venv/core

.venv/docs: .venv/dev
	$(INSTALL) --editable '.[docs]'
	@touch $@

.venv/engines: .venv/dev
	$(INSTALL) --editable '.[spark,dask,ibis,examples]'
	@touch $@

# For tests, which start many processes where nothing may be compiled on the way; without what no test of ours imports.
# Errors are in files for other versions of Python, which nobody imports.
NOT_IMPORTED := /tests?/|/site-packages/(pip|setuptools|mypy|mypyc|networkx|fontTools)/|/torch/(_inductor|testing)/
.venv/compiled: .venv/dev
	@$(BIN)/python -m compileall -qq -j 0 -x '$(NOT_IMPORTED)' .venv/lib src || true
	@touch $@

.venv-oldest/ready: pyproject.toml tests/oldest.py
	$(PYTHON) -m venv --upgrade-deps .venv-oldest
	$(PYTHON) tests/oldest.py $(OLDEST) > .venv-oldest/constraints.txt
	.venv-oldest/bin/pip install --quiet --disable-pip-version-check --no-compile --constraint .venv-oldest/constraints.txt --editable '.[all,dev]'
	@touch $@
