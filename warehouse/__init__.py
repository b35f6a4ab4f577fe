"""The schema, the turn log, the loader, the views, read access."""
