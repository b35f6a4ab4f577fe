"""Commands that show what was recorded: questions in SQL, a report, a conversation played by a person."""
