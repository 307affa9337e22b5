"""Making data sets here: a behavior that learns in the environment, D4RL's recipes over it, and planners for mazes."""
