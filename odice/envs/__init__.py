"""Environments by name, and those that Gymnasium lacks: D4RL's mazes and small ones with known optima."""
