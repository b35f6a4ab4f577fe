"""BabyAI: reach a goal in a world of rooms, described in words (AgentGym-RL B.4, after Chevalier-Boisvert et al.)."""
