"""One run: from settings and a data set to a run directory with a policy."""
