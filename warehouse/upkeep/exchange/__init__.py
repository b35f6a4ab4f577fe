"""Import and export of conversations in the formats of other tools."""
