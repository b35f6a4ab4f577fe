"""Prefect flows (orchestration only), the command line, the web page and the servers."""
