"""Suites: evaluations by name, each with the settings of its paper."""

from curricula.suites.suite import Suite, load_suite, suite_named, suite_names

__all__ = ["Suite", "load_suite", "suite_named", "suite_names"]
