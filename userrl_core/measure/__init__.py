"""How sure a number is. Two questions that are never mixed: do these two checkpoints differ (`checkpoints`: tasks are the
unit), and do these two recipes differ (`recipes`: seeds are the unit)?"""
