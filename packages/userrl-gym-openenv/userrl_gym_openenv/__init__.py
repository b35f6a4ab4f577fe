"""A gym for any running OpenEnv server, through OpenEnv's own client."""
