"""The core: gyms, users, agents, turns and rewards; rollout; training."""
