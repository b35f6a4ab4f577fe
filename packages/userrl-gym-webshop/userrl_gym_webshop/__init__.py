"""A web shop of our own, driven through Chromium and its accessibility tree (AgentGym-RL B.1, after WebArena)."""
