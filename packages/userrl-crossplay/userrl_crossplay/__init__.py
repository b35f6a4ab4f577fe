"""Cross-play studies: agents trained on one population of users each, evaluated on every population."""
