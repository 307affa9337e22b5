"""V-DICE in numpy, float64, on linear networks: V(s) = s w + c per head, a Gaussian with mean s W + b; gradients by
hand."""

import jax.numpy as jnp
import numpy as np

from tests.algos import support

GAMMA, LAM, ETA, TAU, LR, DECAY, CLAMP = 0.9, 0.55, 0.7, 0.1, 0.05, 0.3, 0.8
LINEAR = {
    "value_hidden": (),
    "policy_hidden": (),
    "discount": GAMMA,
    "lam": LAM,
    "polyak": TAU,
    "value_lr": LR,
    "policy_lr": LR,
    "policy_weight_decay": DECAY,
    "weight_clamp": CLAMP,
}
NAMES = ("odice", "sdice", "vdice-true")
GRADIENT = {"odice": "orthogonal", "sdice": "semi", "vdice-true": "true"}
OFF = {
    "value_ess": 0.0,
    "policy_ess": 0.0,
    "credit_weight": 0.0,
    "balance": 0.0,
    "double_sampling": "off",
    "value_start": 0.0,
    "cosine_steps": 0,
    "average": 0.0,
    "tanh_mean": False,
}
"""`auto` with nothing adapted."""
adam = support.adam


def eta_of(name):
    return {"eta": ETA} if name == "odice" else {}


def make_batch(seed=0, n=16, discrete=False, credit=False):
    batch = support.make_batch(seed, n, discrete)
    column = jnp.asarray(np.random.default_rng(seed + 100).normal(size=n), jnp.float32)
    return batch._replace(columns={"credit": column}) if credit else batch


def slope(residual, temperature=1.0):
    """The derivative of Pearson's conjugate."""
    return np.maximum(0, 1 + residual / temperature / 2)


def residuals(name, state, batch, start=0.0):
    """R_f and R_b per head, and V(s)."""
    s, _, r, s2, m = support.arrays(batch)
    theta, bar = (support.flatten(net) for net in (state.value.params, state.target))
    count = state.value.params.size
    v, v2 = (support.heads(theta, x, count) + start for x in (s, s2))
    vbar, v2bar = v, v2
    if name != "vdice-true":
        vbar, v2bar = (support.heads(bar, x, count).min(0) + start for x in (s, s2))
    return r + GAMMA * m * v2bar - v, r + GAMMA * m * v2 - vbar, v


def value_step(name, state, batch, slope_f, slope_b):
    """V and its target after one update, for the slopes of f* in the forward and the backward loss."""
    s, _, _, s2, m = support.arrays(batch)
    theta = support.flatten(state.value.params)
    k = 1 / slope_f.size
    d_f, d_b, d_rest = -LAM * slope_f * k, LAM * slope_b * GAMMA * m * k, np.full(slope_f.shape, (1 - LAM) * k)
    # the parameter order of the pytree: weights of all heads, then biases of all heads
    gradient = lambda dv, x: np.concatenate([(dv @ x).ravel(), dv.sum(1)])
    F, B, rest = gradient(d_f, s), gradient(d_b, s2), gradient(d_rest, s)
    combined = {
        "vdice-true": F + B,
        "sdice": F,
        "odice": F + ETA * (B - F @ B / max(F @ F, 1e-10) * F),
    }[name]
    value = adam(theta, combined + rest, state.value.opt_state, LR)
    return value, TAU * value + (1 - TAU) * support.flatten(state.target)


def policy_step(state, batch, weight):
    """The policy after one update of weighted cloning, with coupled weight decay."""
    s, a, *_ = support.arrays(batch)
    net = state.policy.params
    W, b, log_std = (np.asarray(x, np.float64) for x in (net.mean.weights[0], net.mean.biases[0], net.log_std))
    z = (a - (s @ W + b)) / np.exp(log_std)
    d_mean = -(weight[:, None] * z / np.exp(log_std)) / len(a)
    d_log_std = -(weight[:, None] * (z**2 - 1)).sum(0) / len(a)
    theta = np.concatenate([W.ravel(), b, log_std])
    gradient = np.concatenate([(s.T @ d_mean).ravel(), d_mean.sum(0), d_log_std]) + DECAY * theta
    return adam(theta, gradient, state.policy.opt_state, LR)


def paper_weight(residual):
    """max(0, R), clamped, of twin values the mean."""
    return np.minimum(np.maximum(residual, 0), CLAMP).mean(0)


def numpy_update(name, state, batch):
    """One update of the paper's algorithm: the new value, target and policy."""
    r_f, r_b, _ = residuals(name, state, batch)
    value, target = value_step(name, state, batch, slope(r_f), slope(r_b))
    return value, target, policy_step(state, batch, paper_weight(r_f))
