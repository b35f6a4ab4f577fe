"""New instructions for tasks with gold calls, tasks from recorded conversations, and tasks of medium difficulty (TARL)."""
