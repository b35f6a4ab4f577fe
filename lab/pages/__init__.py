"""Pages beside their data that are written from data/."""
