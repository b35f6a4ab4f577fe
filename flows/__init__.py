"""Prefect flows and nothing but orchestration; the command line."""
