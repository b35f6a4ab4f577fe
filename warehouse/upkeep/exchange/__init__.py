"""Conversations in the formats that other tools read, and ours read back."""
