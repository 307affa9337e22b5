"""Making data here: a behaviour that learns in the environment, D4RL's recipes over it, and planners for mazes."""
