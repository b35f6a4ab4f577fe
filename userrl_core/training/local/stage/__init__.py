"""What a stage of reinforcement learning needs besides its steps: start, restart, outages, clock, metrics."""
