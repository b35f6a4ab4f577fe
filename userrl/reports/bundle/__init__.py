"""Static copies of a run's page, for readers without a server."""
