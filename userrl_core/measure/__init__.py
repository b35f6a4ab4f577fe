"""Every interval, test and verdict is computed here, and shown elsewhere (`userrl/reports`).

Two questions are never mixed: do these two checkpoints differ (`checkpoints`: tasks are the unit), and do these two recipes
differ (`recipes`: seeds are the unit)? `comparison` asks either of a table of scores. `collapse`, `forgetting` and `claims`
hold the rules by which a run has collapsed, a gym was forgotten and a claim is reproduced.
"""
