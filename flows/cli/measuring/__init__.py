"""Commands that measure: a policy on tasks."""
