"""Any running AgentGym environment server as a gym (AgentGym-RL 3.1: environments behind one HTTP protocol)."""
