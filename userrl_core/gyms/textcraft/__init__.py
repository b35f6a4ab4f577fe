"""TextCraft: make a thing from what the crafting recipes name (AgentGym-RL B.3, after Prasad et al.)."""
