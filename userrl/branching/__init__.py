"""Other ways on from a turn of a stored conversation."""
