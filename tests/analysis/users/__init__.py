"""Tests of the audit of users, of their style and of their distance."""
