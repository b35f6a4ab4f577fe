"""An example of a gym from outside the tree: say how the coin fell."""
