"""Filtered cloning, an algorithm outside of odice: imitate a step if its reward beats the average of its batch.

    pi  minimizes  E_D[1{r > mean r} (-log pi(a|s))]

Train it without installing anything, from this folder:

    odice train --plugin filtered_bc --algo filtered-bc --data bundled/hopper-replay --steps 2000 --out runs/filtered

or install the package (`pip install ./examples/own_algorithm`), and `--plugin` is not needed.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax

import odice
from odice.core.policies import policy_network


@dataclass(frozen=True)
class FilteredBCConfig:
    """Every field is a flag of `odice train`."""

    policy_hidden: tuple[int, ...] = (256, 256)
    """Widths of the policy's hidden layers."""
    policy_lr: float = 3e-4
    """Adam's learning rate."""
    batch_size: int = 256
    """Transitions per update."""


@odice.register("filtered-bc", FilteredBCConfig, when_diverged=("lower", "policy_lr"))
def filtered_bc(cfg: FilteredBCConfig, spec: odice.Spec) -> odice.Algo:
    """Filtered cloning: steps whose reward beats the average of their batch."""
    optimizer = optax.adam(cfg.policy_lr)

    def init(key):
        policy = policy_network(key, spec, cfg.policy_hidden)
        return {"policy": policy, "opt": optimizer.init(policy)}

    def loss(policy, batch: odice.Batch):
        keep = (batch.reward > jnp.mean(batch.reward)).astype(jnp.float32)
        return -jnp.mean(keep * policy.log_prob(batch.obs, batch.action))

    def update(state, batch: odice.Batch, key):
        value, gradient = jax.value_and_grad(loss)(state["policy"], batch)
        step, opt = optimizer.update(gradient, state["opt"])
        return {"policy": optax.apply_updates(state["policy"], step), "opt": opt}, {"policy_loss": value}

    return odice.Algo(init, update, policy=lambda state: state["policy"])
