"""An example of rules from outside the tree: a credit rule and a horizon schedule."""
