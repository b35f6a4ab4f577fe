"""Checkpoints of a run: the list of them, a model card, and the upload to a hub."""
