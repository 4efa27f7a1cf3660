# `make demo` and `make test` do all the set-up: they create .venv and install the project into it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS := $(VENV)/.docs
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-all test-variations lint format notebooks docs pages cuda clean

demo: $(STAMP)
	$(BIN)/ens10 demo --out demo

# Compiled modules are kept: many tests run commands in processes of their own.
test test-all: export PYTHONDONTWRITEBYTECODE =

# One process more than there are cores, since some tests wait for others' processes; files of tests
# begin in the order of tests/conftest.py, the longest first.
PYTEST = $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder \
	-n $$($(BIN)/python -c "import os; print(min(4, 1 + (os.cpu_count() or 1)))")

test: $(STAMP)
	$(PYTEST) -m "not slow"

test-all: $(STAMP)
	$(PYTEST) -m slow

# What takes too long for test-all, and trainings compared under other numbers of threads, vector
# instructions and load: an hour or more.
test-variations: $(STAMP)
	ENS10_LONG_TESTS=1 $(PYTEST) -m long
	PYTHON=$(BIN)/python sh tests/variations.sh

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Strips the notebooks of outputs and runs them all; `make test-all` leaves out two.
notebooks: $(STAMP)
	$(BIN)/python notebooks/tidy.py
	$(BIN)/python -m pytest tests/test_notebooks.py

# The pages of docs/, the reference, the notebooks with their outputs and the report of the
# demonstration, into site/: warnings are errors. The notebooks that changed run first (six minutes).
# `make pages` leaves out what has to run, and needs no torch.
docs: $(STAMP) demo/report/index.html
	$(BIN)/python docs/_site/notebook_pages.py
	@$(MAKE) --no-print-directory pages

demo/report/index.html:
	@$(MAKE) --no-print-directory demo

pages: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "site/index.html; to search in it: $(BIN)/python -m http.server -d site"

# On a machine with a GPU: tests and figures in minutes, with the python that is there.
cuda:
	$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) benchmarks/cuda.py

$(DOCS): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -e ".[docs]"
	@touch $@

# torch goes first and alone, so that pip takes the build that constraints.txt names. The stamp is
# written last: an installation that was interrupted is taken up again.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV): about 1.5 GB, a minute or two"
	@$(PIP) torch
	@$(PIP) -e ".[test]"
	@touch $@

clean:
	rm -rf $(VENV) build dist demo site notebooks/work *.egg-info
