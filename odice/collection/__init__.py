"""Make data sets: a behavior policy trained in the environment, D4RL's recipes, and planners for mazes."""
