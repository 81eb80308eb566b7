# Everything sets up .venv by itself; PYTHON names the interpreter to begin with (3.11 or newer).
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
TOOLS := .venv/.tools

.DEFAULT_GOAL := help
.PHONY: help demo test test-all golden check bench docs format clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(INSTALLED)  ## the whole story in a minute: explore, train, compare, report; without torch and development tools
	@$(BIN)/greenlove demo

test: $(TOOLS)  ## each promise once, in some five minutes on two cores
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal -m "not slow"

test-all: $(TOOLS)  ## all tests: every technique, fault and shape of loop too
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

golden: $(TOOLS)  ## write the golden files of tests/golden anew: read their diff before you commit it
	$(BIN)/python -m pytest tests/golden --golden-update
	@git diff --stat -- tests/golden/expected

check: $(TOOLS)  ## ruff, mypy, the structure's limits and import-linter: what CI runs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python benchmarks/structure.py
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/lint-imports

bench: $(TOOLS) .venv/.bench  ## measure against peers, in one run
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/backtest.py
	$(BIN)/python benchmarks/aggregate.py

docs: .venv-docs/.installed  ## build the documentation as a site, in site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

format: $(TOOLS)  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove what was installed and built
	rm -rf .venv .venv-docs site build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(INSTALLED): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (a minute or so, once)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[demo]"
	@touch $@

$(TOOLS): $(INSTALLED)
	@echo "installing torch and the development tools into .venv (a minute or two, once)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check "pip>=25.1"  # knows --group
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[demo,torch]" --group dev
	@touch $@

.venv/.bench: $(TOOLS)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --group bench
	@touch $@

.venv-docs/.installed: pyproject.toml constraints.txt
	@test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	@.venv-docs/bin/python -m pip install -q --disable-pip-version-check "pip>=25.1"
	@.venv-docs/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt --group docs
	@touch $@
