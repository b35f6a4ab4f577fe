"""Commands that measure policies on tasks."""
