"""Studies: what was trained and compared, and the tables of it."""
