"""Sharing of a run: a static copy of its page, and a checkpoint with its card on the Hugging Face hub."""
