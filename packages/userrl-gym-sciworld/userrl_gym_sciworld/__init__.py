"""SciWorld: carry out a scientific task in a simulated house (AgentGym-RL B.5, after Wang et al.)."""
