"""Estimates from a log alone: what a policy would earn, how sure that is, and whether it beats what made the log.

| module | what it does |
|---|---|
| `candidate`, `episodes` | what a policy does in the states of a log, as arrays |
| `held_out` | which episodes may be used: those that did not train the policy |
| `features`, `behavior`, `support` | random features, the behavior's probabilities, what is outside the data |
| `fqe`, `importance`, `doubly_robust`, `one_step`, `dice` | one estimator each, its mathematics in the docstring |
| `intervals`, `verdict` | what is known with which confidence, and what may be concluded from it |
| `estimate`, `select` | all of it for one policy, and for several |

All estimate the same thing, the return within `horizon` steps.
"""
