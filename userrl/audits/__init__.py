"""Audits: credit rules, turn judges, simulated users, and agents across users."""
