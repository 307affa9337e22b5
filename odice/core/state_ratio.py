"""The visitation ratio of states, w(s) = d^pi(s) / d_D(s), learned from the ratio of actions.

Semi-gradient values give the ratio of a policy's actions to the data's, w(a|s) = pi(a|s) / pi_D(a|s). The visits d of
that policy obey the Bellman flow  d(s) = (1 - gamma) p0(s) + gamma sum P(s | s', a') w(a'|s') pi_D(a'|s') d(s'),  and
nothing else does. So the problem "minimize D_f(d || d_D) under the flow" has one feasible point, and its dual

    nu   minimizes  (1 - gamma) E_p0[nu(s0)] + E_{s ~ D}[f*(e(s))]
    e(s) = E_{a ~ D}[w(a|s) (gamma m nu(s') - nu(s))],     m = 1 - terminated

has w(s) = max(0, (f')^-1(e(s))) at its minimum, whichever f is taken. The mean over actions and next states is inside
f*, so a second network learns it, and one sample gives an unbiased gradient of the rest:

    e    minimizes  E_D[(w(a|s) (gamma m nu(s') - nu(s)) - e(s))^2]
    nu   descends   (1 - gamma) grad nu(s0) + w(s) w(a|s) (gamma m grad nu(s') - grad nu(s))

One step: e with the old nu, then nu with the new e.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from odice.core.discriminator import steepness
from odice.core.divergences import Divergence
from odice.core.learner import Learned, Learner
from odice.core.networks import Ensemble
from odice.core.vdice import residual
from odice.types import Batch


class Visits(NamedTuple):
    """The two networks of the estimator."""

    nu: Learned[Ensemble]
    flow: Learned[Ensemble]
    """e(s)."""


class StateRatio(NamedTuple):
    """The estimator of w(s); it owns its state."""

    init: Callable[[PRNGKeyArray], Visits]
    ratio: Callable[[Visits, Float[Array, "b obs"]], Float[Array, " b"]]
    """w(s)."""
    step: Callable[..., tuple[Visits, Float[Array, ""]]]
    """(state, w(a|s), batch, key) -> the next state, and e's squared error."""


def state_ratio(
    divergence: Divergence,
    make: Callable[[PRNGKeyArray], Ensemble],
    nu_learner: Learner,
    flow_learner: Learner,
    *,
    discount: float,
    gradient_penalty: float = 0.0,
) -> StateRatio:
    """The estimator of w(s), with two networks from `make`; slopes of nu above 5 are penalised."""

    def init(key) -> Visits:
        key_nu, key_flow = jax.random.split(key)
        return Visits(nu_learner.init(make(key_nu)), flow_learner.init(make(key_flow)))

    def ratio(state: Visits, obs) -> Float[Array, " b"]:
        return divergence.weight(state.flow.params(obs)[0])

    def flow_of(nu: Ensemble, batch: Batch) -> Float[Array, " b"]:
        return residual(nu(batch.obs), nu(batch.next_obs), jnp.zeros_like(batch.mask), batch.mask, discount)[0]

    def step(state: Visits, action_ratio: Float[Array, " b"], batch: Batch, key):
        assert batch.initial_obs is not None
        first = batch.initial_obs
        target = action_ratio * flow_of(state.nu.params, batch)
        error = lambda net: jnp.mean(jnp.square(target - net(batch.obs)[0]))
        loss, gradient = jax.value_and_grad(error)(state.flow.params)
        state = state._replace(flow=flow_learner.step(state.flow, gradient))
        weight = ratio(state, batch.obs) * action_ratio

        def dual(nu: Ensemble):
            start = (1 - discount) * jnp.mean(nu(first))
            bend = steepness(nu, first, batch.obs, key) if gradient_penalty else 0.0
            return start + jnp.mean(weight * flow_of(nu, batch)) + gradient_penalty * bend

        return state._replace(nu=nu_learner.step(state.nu, jax.grad(dual)(state.nu.params))), loss

    return StateRatio(init, ratio, step)
