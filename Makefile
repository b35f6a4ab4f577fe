# make run: train on this machine and show the result.   make test: everything that is quick to check.
PYTHON ?= python3.11
VENV := .venv
INSTALL := $(VENV)/bin/python scripts/install.py
SAY := @printf '%s\n'
.DEFAULT_GOAL := help
.PHONY: help run install test test-slow check clean

help:
	$(SAY) 'make run        install what a run needs and run train/horizon-fork (make run seed=1 for parameters)'
	$(SAY) 'make test       install what tests need; style, types, import contracts, tests'
	$(SAY) 'make test-slow  tests that kill processes, wait for clocks or train for a while'

$(VENV)/bin/python:
	@$(PYTHON) -m venv $(VENV)

# A stamp per set of packages: a second call installs nothing.
$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(SAY) 'installing what a run needs (once; half a minute to three)'
	@$(INSTALL)
	@$(VENV)/bin/userrl --help >/dev/null
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(SAY) 'installing what tests need (once; one to five minutes)'
	@$(INSTALL) dev verl view envs s3 postgres mcp
	@$(VENV)/bin/python -c 'import pytest, verl'
	@touch $@ $(VENV)/.run

install: $(VENV)/.run

# `make run seed=3` is `make run ARGS="-p seed=3"`: a variable that make was given and this file does not have is a parameter.
OURS := ARGS PYTHON VENV INSTALL SAY MAKEFLAGS MAKEOVERRIDES SHELL
NAMED := $(foreach v,$(filter-out $(OURS),$(.VARIABLES)),$(if $(filter command,$(origin $(v))),$(v)))
PARAMETERS := $(foreach v,$(NAMED),-p '$(subst ','\'',$(v)=$($(v)))')

run: $(VENV)/.run
	@$(VENV)/bin/python -m flows.cli.make_run $(ARGS) $(PARAMETERS)

check: $(VENV)/.dev
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check --quiet .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports

test: check
	@$(VENV)/bin/python -m pytest -n auto --dist loadfile

test-slow: $(VENV)/.dev
	@$(VENV)/bin/python -m pytest -m slow -n 2 --dist loadfile

clean:
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
