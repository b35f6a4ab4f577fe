"""Commands that train: recipes, runs, sweeps."""
