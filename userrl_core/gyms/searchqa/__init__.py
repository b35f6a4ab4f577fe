"""Deep search: questions of one to three hops, answered with a search engine (AgentGym-RL B.2)."""
