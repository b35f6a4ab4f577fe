"""Speeds of one GPU. run_all.sh runs all of them and writes one Markdown table."""
