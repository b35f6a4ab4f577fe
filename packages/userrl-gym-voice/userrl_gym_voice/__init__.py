"""A customer who speaks: TauGym's tasks in sound (TARL 4.3)."""
