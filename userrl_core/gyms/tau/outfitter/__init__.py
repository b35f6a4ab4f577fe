"""A shop of our own with retail's tools: its data, its tasks, and a tier for models of laptop size."""
