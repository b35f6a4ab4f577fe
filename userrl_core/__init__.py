"""What a gym, a user, an agent, a turn and a reward are; rollout; training."""
