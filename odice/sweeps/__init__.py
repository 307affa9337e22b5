"""Many runs: the cells of a sweep, the processes or the Ray cluster that run them, the store of their results."""
