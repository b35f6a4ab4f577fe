"""Optuna search spaces, objectives read from the warehouse, pruning."""
