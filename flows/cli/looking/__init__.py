"""Commands that show recorded data: SQL, reports, conversations, and a game played by a person."""
