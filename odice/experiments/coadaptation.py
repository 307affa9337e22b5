"""Lemma 2, Theorems 3 and 4: the feature dot product Psi = grad V(s).grad V(s'), and noise in s' that flips an order.

To first order the backward step of the orthogonal rule changes Psi by -a eta gamma f*' times

    (1) p.H(s).p  +  (2) q.H(s).p  +  (3) grad V(s).H(s').p,      grad V(s') = p + q,  p orthogonal to grad V(s)

Theorem 3 assumes (1) >= l |p|^2 with l > 0 and bounds (2) + (3) from below by beta M, beta <= 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from odice.core import gradients
from odice.experiments.check import ClaimCheck, check
from odice.experiments.pairs import GAMMA, PEARSON, At, Family, with_mirrors

BETA = 3 * np.sqrt(3) / 4
"""The maximum of sin(phi) (1 + |cos(phi)|), from Definition 3."""


def lemma_2(rng: np.random.Generator, count: int = 2000, size: int = 6) -> ClaimCheck:
    """x.A.y for orthonormal x, y: the paper's bound holds, half of it is the sharp one."""
    a = rng.normal(size=(count, size, size))
    a = a + a.transpose(0, 2, 1)
    eigenvalues, vectors = np.linalg.eigh(a)
    gap = eigenvalues[:, -1] - eigenvalues[:, 0]
    x, y = np.linalg.qr(rng.normal(size=(count, size, 2)))[0].transpose(2, 0, 1)
    worst = (np.stack([vectors[..., 0] + vectors[..., -1], vectors[..., 0] - vectors[..., -1]])) / np.sqrt(2)
    form = lambda x, y: np.einsum("ni,nij,nj->n", x, a, y) / gap
    least, sharp = np.min(form(x, y)), form(*worst)
    return check(
        "Lemma 2",
        "x.A.y >= l_min - l_max for orthonormal x, y; half of that is sharp",
        "least x.A.y / (l_max - l_min): {least:.3f} at random, {sharp:.3f} at the worst pair (paper: -1)",
        least >= -0.5 and np.allclose(sharp, -0.5),
        least=least,
        sharp=np.max(sharp),
    )


class Curvature(NamedTuple):
    """Theorem 3's quantities for each draw."""

    change: np.ndarray
    """(Psi(theta'') - Psi(theta')) / a, measured at a small step."""
    formula: np.ndarray
    """Its first-order formula: -eta gamma f*' (1 + 2 + 3)."""
    change_true: np.ndarray
    """The same change under the unprojected backward step."""
    scale: np.ndarray
    """-formula's positive factor eta gamma f*'."""
    curvature: np.ndarray
    """l = p.H(s).p / |p|^2: the theorem assumes it positive."""
    first: np.ndarray
    """sin^2(phi) l m."""
    second: np.ndarray
    """beta M, never positive."""
    trace: np.ndarray

    @property
    def bracket(self) -> np.ndarray:
        return self.first + self.second


def curvature(family: Family) -> Curvature:
    """Measure what Theorem 3 speaks about; `eta` is 1."""

    def measure(at: At):
        a = 1e-6
        forward, backward = at.split()
        change = lambda step: (at.psi(at.params - a * step) - at.psi(at.params - a * forward)) / a
        orthogonal = at.gradient(gradients.orthogonal()).gradient
        scale = GAMMA * PEARSON.weight(at.residual(at.params))[0]
        return change(orthogonal), change(forward + backward), scale, *at.features(at.params), *at.hessians()

    change, change_true, scale, here, there, h_here, h_there = family.map(measure)
    dot = lambda x, y: np.einsum("ni,ni->n", x, y)
    form = lambda x, h, y: np.einsum("ni,nij,nj->n", x, h, y)
    perpendicular = there - (dot(here, there) / dot(here, here))[:, None] * here
    length2 = dot(perpendicular, perpendicular)
    keep = length2 > 1e-6 * dot(there, there)  # parallel features leave no backward step to speak of
    rayleigh = form(perpendicular, h_here, perpendicular) / np.where(keep, length2, 1.0)
    m, most = np.minimum(dot(here, here), dot(there, there)), np.maximum(dot(here, here), dot(there, there))
    eigenvalues = np.linalg.eigvalsh(np.stack([h_here, h_there]))
    spread = np.min(eigenvalues[..., 0] - eigenvalues[..., -1], axis=0)
    measured = Curvature(
        change=change,
        formula=-scale * (form(there, h_here, perpendicular) + form(here, h_there, perpendicular)),
        change_true=change_true,
        scale=scale,
        curvature=rayleigh,
        first=length2 / dot(there, there) * rayleigh * m,
        second=BETA * spread * most,
        trace=np.einsum("nii->n", h_here),
    )
    return Curvature(*(column[keep] for column in measured))


def _theorem_3_holds(c: Curvature) -> tuple[bool, float]:
    """Does the measured change follow the first-order formula, and stay under the bound wherever l > 0?"""
    tolerance = 1e-3 * (np.abs(c.formula) + np.median(np.abs(c.formula)))
    error = np.median(np.abs(c.change - c.formula) / (np.abs(c.formula) + 1e-12))
    follows = np.mean(np.abs(c.change - c.formula) <= tolerance) > 0.98  # a ReLU may switch inside a step
    assumed = c.curvature > 0
    return bool(follows and np.all(c.change[assumed] <= (-c.scale * c.bracket + tolerance)[assumed])), float(error)


def theorem_3(family: Family) -> ClaimCheck:
    """The bound on the change of Psi holds where its assumption does; how often that is, on real networks."""
    c = curvature(family)
    holds, error = _theorem_3_holds(c)
    assumed = c.curvature > 0
    return check(
        "Theorem 3",
        f"the bound on the change of Psi holds wherever l > 0 ({family.name})",
        "l > 0 in {assumed:.0%} of {draws:.0f} draws; Psi falls in {falls:.0%} of those, {falls_all:.0%} of all "
        "({falls_true:.0%} unprojected); the bound promises a fall in {promised:.0%}",
        holds,
        assumed=np.mean(assumed),
        draws=assumed.size,
        falls=np.mean(c.change[assumed] < 0),
        falls_all=np.mean(c.change < 0),
        falls_true=np.mean(c.change_true < 0),
        promised=np.mean(assumed & (c.bracket > 0)),
        promised_sharp=np.mean(assumed & (c.first + c.second / 2 > 0)),
        trace=np.max(np.abs(c.trace)),
        error=error,
    )


def theorem_3_well_conditioned(family: Family) -> ClaimCheck:
    """Where beta is small enough for the bound to promise a fall, Psi falls."""
    c = curvature(family)
    holds, error = _theorem_3_holds(c)
    promised = (c.curvature > 0) & (c.bracket > 0)
    return check(
        "Theorem 3",
        "Psi falls wherever the bound says so: Hessians near a multiple of 1",
        "the bound promises a fall in {promised:.0%} of {draws:.0f} draws; Psi falls in {falls:.1%} of those",
        holds and promised.sum() >= 50 and np.all(c.change[promised] < 0),
        promised=np.mean(promised),
        draws=promised.size,
        falls=np.mean(c.change[promised] < 0),
        error=error,
    )


def theorem_3_mirror(family: Family) -> ClaimCheck:
    """Negating a network's last layer keeps Psi and every angle but negates l and the change of Psi."""
    c = curvature(with_mirrors(family))
    ratio = lambda column: np.median(np.abs(np.sum(column.reshape(2, -1), axis=0))) / np.median(np.abs(column))
    gap_l, gap = ratio(c.curvature), ratio(c.change)
    return check(
        "Theorem 3",
        "whether Psi falls is a matter of V's sign: V and -V (last layer negated) move Psi in opposite directions",
        "l(V) + l(-V) = {gap_l:.0e}, change(V) + change(-V) = {gap:.0e} of their size",
        gap_l < 1e-9 and gap < 1e-3,
        gap_l=gap_l,
        gap=gap,
    )


def _noise_flips(
    a: np.ndarray, s: np.ndarray, s_next: np.ndarray, theta: np.ndarray, constant: float
) -> tuple[bool, bool]:
    """Theorem 4's proof for V(s) = (A^T s).theta: do its noise and the opposite noise flip the sign of V(s') - V(s)?

    The noise is as short as the theorem's condition Psi > M - C |noise|^2 allows.
    """
    here, there = a.T @ s, a.T @ s_next
    largest = max(here @ here, there @ there)
    length = np.sqrt((largest - here @ there) / constant) * (1 + 1e-6)
    x = np.linalg.solve(a @ a.T, a @ (there - here))
    noise = -length * x / np.linalg.norm(x)
    gap = lambda noise: (a.T @ (s_next + noise) - here) @ theta
    return bool(gap(noise) * gap(0.0) < 0), bool(gap(-noise) * gap(0.0) < 0)


def theorem_4(rng: np.random.Generator, count: int = 500, states: int = 4, size: int = 7) -> ClaimCheck:
    """The proof's noise flips V(s') - V(s) when K means the eigenvalues of A A^T; Kmin / 2 serves as C as well."""
    paper, sharp, opposite = [], [], []
    for _ in range(count):
        a = rng.normal(size=(states, size))
        s = rng.normal(size=states)
        s_next = s + 0.1 * rng.normal(size=states)
        theta = rng.normal(size=size)
        least, *_, most = np.linalg.eigvalsh(a @ a.T)
        flipped, reverse = _noise_flips(a, s, s_next, theta, least**2 / (2 * most))
        paper.append(flipped)
        opposite.append(reverse)
        sharp.append(_noise_flips(a, s, s_next, theta, least / 2)[0])
    return check(
        "Theorem 4",
        "the noise flips the sign of V(s') - V(s) in the linear case, with K = eigenvalues of A A^T",
        "flips in {paper:.1%} of {count:.0f} draws (C = Kmin / 2 suffices: {sharp:.1%}; "
        "the opposite noise: {opposite:.1%})",
        all(paper) and all(sharp) and not any(opposite),
        paper=np.mean(paper),
        sharp=np.mean(sharp),
        opposite=np.mean(opposite),
        count=count,
    )


def theorem_4_eigenvalues() -> ClaimCheck:
    """Definition 4 read literally, with the eigenvalues of a square A itself, does not carry the proof: a shear."""
    a = np.array([[1.0, 10.0], [0.0, 1.0]])  # eigenvalues 1 and 1, singular values 10.1 and 0.099
    weak = np.linalg.svd(a)[0][:, 1]  # the direction in which features hardly move
    s = np.array([weak[1], -weak[0]])
    s = s - weak / 2  # the features of s and s' = s + weak have the same length
    s_next = s + weak
    literal = np.abs(np.linalg.eigvals(a)) ** 2
    singular = np.linalg.eigvalsh(a @ a.T)
    constants = [k.min() ** 2 / (2 * k.max()) for k in (literal, singular)]
    flips = [_noise_flips(a, s, s_next, a.T @ weak, constant)[0] for constant in constants]
    return check(
        "Theorem 4",
        "Definition 4's eigenvalues of A itself are not enough: a shear is a counterexample",
        "C = {literal:.1e} from A: the sign stays; C = {singular:.1e} from A A^T: it flips",
        flips == [False, True],
        literal=constants[0],
        singular=constants[1],
    )
