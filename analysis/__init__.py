"""Numbers from conversations: statistics, audits of credit and of users, logs of other tools, re-verification."""
