"""A release gate: the policy of its rules, the costs and clusters that they use, and their answers."""
