"""New instructions for tasks with gold calls, and tasks from recorded conversations (TARL appendix A)."""
