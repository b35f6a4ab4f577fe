"""A gym for environments of the package verifiers, which run in a process and a Python of their own."""
