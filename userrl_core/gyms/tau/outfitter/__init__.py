"""Our own shop with retail's tools: its data, its tasks, and a tier for models of laptop size."""
