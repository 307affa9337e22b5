"""Many runs: the runs of a sweep, the processes or the Ray cluster that train them, the store of their results."""
