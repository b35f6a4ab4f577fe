"""Speeds, costs and error rates, each beside a peer or a limit."""
