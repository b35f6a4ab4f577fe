"""Our own web shop, operated through Chromium and its accessibility tree (AgentGym-RL B.1, after WebArena)."""
