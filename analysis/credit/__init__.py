"""Audits of the training signal: continuations from any turn of a conversation, and the utility of a turn."""
