"""Audits of what training learns from: credit rules and judges of turns."""
