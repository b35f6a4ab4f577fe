"""The web page over the warehouse (`userrl view`): runs, trajectories, replays, groups, SQL and people."""
