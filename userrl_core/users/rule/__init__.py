"""Users that answer by rule: deterministic under their generator, offline."""
