"""Pages of data/ that are written from the data beside them."""
