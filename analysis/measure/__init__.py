"""All intervals, tests and verdicts. They are computed here and shown elsewhere (`userrl/reports`).

Two questions are kept apart. `checkpoints` asks whether two checkpoints differ: tasks are the unit. `recipes` asks
whether two recipes differ: seeds are the unit. `comparison` asks either question about a table of scores. `collapse`,
`forgetting` and `claims` hold the rules by which a run has collapsed, a gym was forgotten and a claim is reproduced.
"""
