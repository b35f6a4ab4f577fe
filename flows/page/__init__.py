"""The web page over the warehouse (`userrl view`): runs, trajectories, replay, groups, questions, people."""
