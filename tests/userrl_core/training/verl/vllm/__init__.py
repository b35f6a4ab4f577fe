"""Tests with real vLLM, built for CPUs, in `.venv-verl-cpu`: `make venv-verl-cpu` once, then `make test-vllm`."""
