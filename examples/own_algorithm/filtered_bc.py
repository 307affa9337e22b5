"""Filtered cloning, an algorithm outside of odice: imitate a step if its reward beats the average of its batch.

    pi  minimizes  E_D[1{r > mean r} (-log pi(a|s))]

Train it without installing anything, from this folder:

    odice train --plugin filtered_bc --algo filtered-bc --data bundled/hopper-replay --steps 2000 --out runs/filtered

or install the package (`pip install ./examples/own_algorithm`), and `--plugin` is not needed.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

import odice
from odice.building import Learner, policy_network, validate, weighted_cloning


@dataclass(frozen=True)
class FilteredBCConfig:
    """Every field is a flag of `odice train`."""

    policy_hidden: tuple[int, ...] = (256, 256)
    """Widths of the policy's hidden layers."""
    policy_lr: float = 3e-4
    """Adam's learning rate."""
    batch_size: int = 256
    """Transitions per update."""

    def __post_init__(self):
        validate(self)


@odice.register("filtered-bc", FilteredBCConfig, when_diverged=("lower", "policy_lr"))
def filtered_bc(cfg: FilteredBCConfig, spec: odice.Spec) -> odice.Algo:
    """Filtered cloning: steps whose reward beats the average of their batch."""
    learner = Learner(cfg.policy_lr)

    def init(key):
        return learner.init(policy_network(key, spec, cfg.policy_hidden))

    def update(state, batch: odice.Batch, key):
        keep = (batch.reward > jnp.mean(batch.reward)).astype(jnp.float32)
        loss, gradient = jax.value_and_grad(weighted_cloning)(state.params, keep, batch.obs, batch.action)
        return learner.step(state, gradient), {"policy_loss": loss, "kept": jnp.mean(keep)}

    return odice.Algo(init, update, policy=lambda state: state.params)
