"""The page of one conversation."""
