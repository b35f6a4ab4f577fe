"""TextCraft: make a thing from given crafting recipes (AgentGym-RL B.3, after Prasad et al.)."""
