"""Tables of docs/ that are written from data/."""
