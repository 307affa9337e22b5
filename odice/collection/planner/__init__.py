"""Data of mazes: the way is planned on the grid, and a controller or a gait follows it with noise."""
