"""The paper's lemmas and theorems as measurements, in float64, on the gradients that training uses.

`docs/explanation/theory.md` says what each row shows, and where the paper's text needs a correction.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from odice.core.divergences import DIVERGENCES
from odice.experiments import coadaptation, interference
from odice.experiments.check import ClaimCheck, check
from odice.experiments.pairs import fast_jit, networks, quadratics


def lemma_1() -> ClaimCheck:
    """The weight f*' is never negative."""
    y = jnp.linspace(-50.0, 50.0, 20_001)
    slope = lambda d, y: jax.grad(lambda y: jnp.sum(d.conjugate(y)))(y)
    least = fast_jit(lambda y: jnp.stack([jnp.minimum(d.weight(y), slope(d, y)) for d in DIVERGENCES.values()]).min())(
        y
    )
    return check(
        "Lemma 1",
        "f*' >= 0 for every divergence",
        "least weight {least:.1e} over {count:.0f} divergences, y in [-50, 50]",
        least >= 0,
        least=least,
        count=len(DIVERGENCES),
    )


def checks(seed: int = 0, draws: int = 800) -> list[ClaimCheck]:
    """Every check, in the paper's order; the process keeps its float32 outside of this call."""
    rng = np.random.default_rng(seed)
    with jax.enable_x64(True):
        relu, tanh, softplus = (networks(rng, f, draws) for f in (jax.nn.relu, jnp.tanh, jax.nn.softplus))
        batch = networks(rng, jnp.tanh, draws, batch=16)
        return [
            lemma_1(),
            *map(interference.theorem_1, [relu, batch]),
            *map(interference.theorem_2, [relu, tanh]),
            interference.theorem_2_maximum(),
            interference.theorem_2_linear_term(tanh),
            interference.linear_direction(tanh, batch),
            coadaptation.lemma_2(rng),
            *map(coadaptation.theorem_3, [relu, tanh, softplus]),
            coadaptation.theorem_3_mirror(tanh),
            coadaptation.theorem_3_well_conditioned(quadratics(rng, draws)),
            coadaptation.theorem_4(rng),
            coadaptation.theorem_4_eigenvalues(),
        ]
