"""Alternative continuations from a turn of a stored conversation."""
