"""Estimates from a log alone: what a policy would earn, how sure that is, and whether it beats what made the log.

One file per estimator, its mathematics in the docstring: `fqe`, `importance`, `doubly_robust`, `dice`. All estimate the
same thing, the return within `horizon` steps (`log`), and all start from the behavior: where an estimator has not
learned, it says that the policy is as good as the behavior, never that it is better. `estimate` runs them, `verdict`
judges, `select` ranks.
"""
