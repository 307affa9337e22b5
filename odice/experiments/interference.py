"""Theorems 1 and 2: what the backward step does to the forward loss and to the total one.

F = -f*'(R) grad V(s) and B = gamma f*'(R) grad V(s') are the forward and backward gradients of f*(R); phi is the angle
between grad V(s) and grad V(s'), k = |grad V(s)| / (gamma |grad V(s')|), B_perp = B - (<F,B>/<F,F>) F. A step of size
a under the orthogonal rule goes from theta over theta' = theta - a F to theta'' = theta' - a eta B_perp.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from odice.core import gradients
from odice.experiments.check import ClaimCheck, check
from odice.experiments.pairs import GAMMA, At, Family, fast_jit, orthogonal_step


def _slope(steps: np.ndarray, changes: np.ndarray) -> float:
    """The order of |change| in the step, from medians over the draws: a ReLU's kink in one draw does not count."""
    return np.polyfit(np.log(steps), np.log(np.median(np.abs(changes), axis=0)), 1)[0]


def theorem_1(family: Family) -> ClaimCheck:
    """The backward step does not touch L_1 to first order, if projected; the true gradient's does."""
    lengths = jnp.logspace(-3, -5, 9)

    def measure(at: At):
        forward, backward = at.split()

        def interference(step):
            change = lambda a: at.forward_loss(at.params - a * step) - at.forward_loss(at.params - a * forward)
            return jax.vmap(change)(lengths / jnp.linalg.norm(step))

        orthogonal = at.gradient(gradients.orthogonal()).gradient
        cosine = jnp.vdot(forward, orthogonal - forward) / (jnp.linalg.norm(forward) * jnp.linalg.norm(backward))
        return interference(orthogonal), interference(forward + backward), cosine

    orthogonal, true, cosine = family.map(measure)
    order, order_true = _slope(np.asarray(lengths), orthogonal), _slope(np.asarray(lengths), true)
    aligned = np.max(np.abs(cosine))
    batch = family.draws.reward.shape[1]
    return check(
        "Theorem 1",
        f"the backward step leaves L1 alone to first order ({family.name}, {batch} sample{'s' * (batch > 1)})",
        "L1(theta'') - L1(theta') ~ step^{order:.2f} orthogonal, step^{order_true:.2f} true; "
        "|cos(F, B_perp)| <= {aligned:.0e}",
        abs(order - 2) < 0.1 and abs(order_true - 1) < 0.1 and aligned < 1e-10,
        order=order,
        order_true=order_true,
        aligned=aligned,
    )


def _angles(at: At):
    """(k, cos phi, sin^2 phi) of a pair."""
    here, there = at.features(at.params)
    norm_here, norm_there = jnp.linalg.norm(here), jnp.linalg.norm(there)
    cosine = jnp.vdot(here, there) / (norm_here * norm_there)
    return norm_here / (GAMMA * norm_there), cosine, 1 - cosine**2


def theorem_2(family: Family) -> ClaimCheck:
    """The total loss falls for eta above the bound and rises below it."""
    margins = jnp.array([0.05, 0.5, 5.0])

    def measure(at: At):
        forward, backward = at.split()
        bound = gradients.combine(gradients.orthogonal(), forward, backward)[1].eta_bound
        k, cosine, sine2 = _angles(at)

        def change(eta):
            step = orthogonal_step(forward, backward, eta)
            return at.loss(at.params - 1e-6 * step / jnp.linalg.norm(step)) - at.loss(at.params)

        scale = 1 + jnp.abs(bound)
        above = jnp.maximum(bound, 0.0) + margins * scale
        changes = jax.vmap(change)(
            jnp.concatenate([above, jnp.stack([bound - 0.05 * scale, jnp.full_like(bound, 1e-3)])])
        )
        return bound, (cosine * k - k**2) / sine2, sine2, k, changes

    bound, paper, sine2, k, changes = family.map(measure)
    above, below, small = changes[:, :-2], changes[:, -2], changes[:, -1]
    wide = sine2 > 1e-3  # a smaller angle leaves too little of B for float64 to see
    tight = wide & (bound > 0.1)  # below the bound there must be room for a positive eta
    agree = np.max(np.abs(bound - paper)[wide] / (1 + np.abs(paper[wide])))
    cot2 = (1 - sine2[wide]) / sine2[wide]
    passed = (
        agree < 1e-8
        and np.all(above[wide] < 0)
        and tight.sum() >= 10
        and np.all(below[tight] > 0)
        and np.all(small[wide & (k >= 1)] < 0)
        and np.all(bound[wide] <= cot2 / 4 * (1 + 1e-8) + 1e-9)
    )
    return check(
        "Theorem 2",
        f"the loss falls for eta above the bound, rises below it, and falls for any eta > 0 if k >= 1 ({family.name})",
        "falls in {falls:.1%} of {pairs:.0f} pairs above, rises in {rises:.1%} of {tight:.0f} pairs just below; "
        "k >= 1, eta = 0.001: falls in {small:.1%} of {large_k:.0f}",
        passed,
        falls=np.mean(above[wide] < 0),
        rises=np.mean(below[tight] > 0),
        small=np.mean(small[wide & (k >= 1)] < 0),
        pairs=wide.sum(),
        tight=tight.sum(),
        large_k=np.sum(wide & (k >= 1)),
        disagreement=agree,
    )


def theorem_2_maximum() -> ClaimCheck:
    """Over k the bound peaks at k = cos(phi) / 2 with cot^2(phi) / 4; from plane vectors with a prescribed angle."""
    phi, k = jnp.linspace(0.05, 1.5, 30)[:, None], jnp.linspace(0.01, 2.0, 400)[None, :]

    def bound(phi, k):
        forward = -jnp.stack([k * GAMMA, jnp.zeros_like(k)])
        backward = GAMMA * jnp.stack([jnp.cos(phi), jnp.sin(phi)])
        return gradients.combine(gradients.orthogonal(), forward, backward)[1].eta_bound

    bounds = fast_jit(jnp.vectorize(bound))
    peak = 1 / (4 * jnp.tan(phi) ** 2)
    excess = float(jnp.max(bounds(*jnp.broadcast_arrays(phi, k)) - peak))
    at_peak = float(jnp.max(jnp.abs(bounds(phi, jnp.cos(phi) / 2) / peak - 1)))
    return check(
        "Theorem 2",
        "the bound's maximum over k is cot^2(phi) / 4, at k = cos(phi) / 2",
        "never above it by more than {excess:.0e}; reached within {at_peak:.0e}",
        excess < 1e-9 and at_peak < 1e-9,
        excess=excess,
        at_peak=at_peak,
    )


def theorem_2_linear_term(family: Family, lam: float = 0.5) -> ClaimCheck:
    """With (1 - lam) V(s) added, Theorem 2's bound is not enough, but cot^2(phi) / 4 is."""

    def measure(at: At):
        objective = lambda params: (1 - lam) * jnp.mean(at.value(params, at.draw.here)) + lam * at.loss(params)
        linear = (1 - lam) * at.features(at.params)[0]
        k, cosine, sine2 = _angles(at)
        forward, backward = at.split()

        def change(eta):
            step = linear + lam * orthogonal_step(forward, backward, eta)
            return objective(at.params - 1e-6 * step / jnp.linalg.norm(step)) - objective(at.params)

        bound = jnp.maximum((cosine * k - k**2) / sine2, 0.0)
        peak = cosine**2 / sine2 / 4
        return *jax.vmap(change)(jnp.stack([bound + 0.01, peak + 0.05])), sine2

    theorem, sufficient, sine2 = family.map(measure)
    wide = sine2 > 1e-3
    return check(
        "Theorem 2",
        "with the linear term the bound is not enough (the appendix says it is); eta > cot^2(phi) / 4 always is",
        "objective rises in {rises:.1%} of {pairs:.0f} pairs at the bound + 0.01, "
        "in {rises_peak:.1%} at cot^2(phi) / 4 + 0.05",
        np.any(theorem[wide] > 0) and np.all(sufficient[wide] < 0),
        rises=np.mean(theorem[wide] > 0),
        rises_peak=np.mean(sufficient[wide] > 0),
        pairs=wide.sum(),
    )


def linear_direction(single: Family, batch: Family) -> ClaimCheck:
    """The linear term's gradient lies on F's line for one sample (pointing the other way), and off it for a batch."""

    def measure(at: At):
        forward, _ = at.split()
        linear, _ = at.features(at.params)
        return jnp.vdot(forward, linear) / (jnp.linalg.norm(forward) * jnp.linalg.norm(linear))

    single_cosine, batch_cosine = single.map(measure), batch.map(measure)
    return check(
        "Appendix",
        "(1 - lam) grad V(s) has the direction of F: for one sample, up to sign; not for a batch",
        "cosine {single:.3f} for one sample; median {batch:.3f}, nearest to 0 {least:.3f} for a batch of {size:.0f}",
        np.all(single_cosine < -1 + 1e-9) and np.min(np.abs(batch_cosine)) < 0.999,
        single=np.max(single_cosine),
        batch=np.median(batch_cosine),
        least=batch_cosine[np.argmin(np.abs(batch_cosine))],
        size=batch.draws.reward.shape[1],
    )
