"""Audits of what training learns from: continuations from any turn of a conversation, and what a turn was worth."""
