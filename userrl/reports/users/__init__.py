"""The report of audited users: rows of the warehouse, and the blocks that show them."""
