"""Audits of the training signal: credit rules and turn judges."""
