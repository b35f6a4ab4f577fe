"""Checks that the tests are too small for: kills, leaks, other programs, the warehouse under attack."""
