"""Rollouts: engines, the sandbox, episodes, trajectories. One path for training, scoring and testing."""
