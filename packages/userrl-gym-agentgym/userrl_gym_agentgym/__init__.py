"""A gym for any running AgentGym environment server (AgentGym-RL 3.1: environments behind one HTTP protocol)."""
