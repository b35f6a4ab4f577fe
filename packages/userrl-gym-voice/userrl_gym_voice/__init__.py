"""TauGym's tasks with a customer who speaks (TARL 4.3)."""
