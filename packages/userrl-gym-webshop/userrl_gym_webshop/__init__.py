"""A web shop of our own, operated through Chromium and its accessibility tree (AgentGym-RL B.1, after WebArena)."""
