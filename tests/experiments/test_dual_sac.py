"""V-DICE as the critic of soft actor-critic: updates of Q and V against numpy, and the collector's loop with it."""

import jax
import numpy as np
import pytest

from odice.collection.behavior import Training, train
from odice.collection.sac import SACConfig
from odice.errors import OdiceError
from odice.experiments.dual_sac import DualSACConfig, dual_sac
from tests.algos.support import SPEC, adam, arrays, close, flatten, heads, make_batch, part, slope, twin

GAMMA, TAU, LR, LAM, ETA, T = 0.9, 0.1, 0.02, 0.7, 0.6, 2.0
LINEAR = {"critic_hidden": (), "policy_hidden": (), "discount": GAMMA, "polyak": TAU, "critic_lr": LR, "policy_lr": LR}
LINEAR |= {"lam": LAM, "eta": ETA, "temperature": T}


def numpy_update(gradient, state, batch):
    """New V, its target and Q, by the equations."""
    s, a, r, s2, m = arrays(batch)
    critic, theta, slow = (flatten(part) for part in (state.critic.params, state.value.params, state.target))
    v = lambda x, at: heads(x, at, count=1)[0]
    backup = r + GAMMA * m * v(theta if gradient == "true" else slow, s2)
    new = adam(
        critic, slope(lambda x: ((twin(x, s, a) - backup) ** 2).mean(1).sum(), critic), state.critic.opt_state, LR
    )
    w = np.maximum(0, 1 + (twin(critic, s, a).min(0) - v(theta, s)) / T / 2)
    F = slope(lambda x: LAM * np.mean(-w * v(x, s)), theta)
    B = slope(lambda x: LAM * np.mean(w * GAMMA * m * v(x, s2)), theta)
    kept = {"true": F + B, "semi": F, "orthogonal": F + ETA * (B - F @ B / (F @ F) * F)}[gradient]
    value = adam(theta, kept + slope(lambda x: (1 - LAM) * np.mean(v(x, s)), theta), state.value.opt_state, LR)
    return {"critic": new, "value": value, "target": TAU * value + (1 - TAU) * slow}


@pytest.mark.parametrize("gradient", ["true", "semi", "orthogonal"])
def test_one_update_of_q_and_v_equals_numpy(gradient):
    algo = dual_sac(DualSACConfig(**LINEAR, gradient=gradient), SPEC)
    state, update = algo.init(jax.random.key(1)), jax.jit(algo.update)
    for i in range(3):
        state, _ = update(state, make_batch(10 + i), jax.random.key(i))
    batch = make_batch()
    after, metrics = update(state, batch, jax.random.key(9))
    for name, expected in numpy_update(gradient, state, batch).items():
        close(part(after, name), expected)
    assert all(np.isfinite(x) and x.shape == () for x in metrics.values())
    dirty = batch._replace(next_obs=batch.next_obs + 7.0 * batch.terminated[:, None])
    np.testing.assert_array_equal(flatten(update(state, dirty, jax.random.key(9))[0]), flatten(after))


def test_a_config_says_which_of_the_two_it_is():
    parts = {kind: jax.eval_shape(kind().build(SPEC).init, jax.random.key(0)) for kind in (SACConfig, DualSACConfig)}
    assert "value" not in parts[SACConfig]._fields
    assert "value" in parts[DualSACConfig]._fields
    for settings, message in [({"lam": 1.0}, "lam"), ({"temperature": 0.0}, "temperature"), ({"eta": -1.0}, "eta")]:
        with pytest.raises(OdiceError, match=message):
            DualSACConfig(**settings)


@pytest.mark.slow
def test_it_learns_in_the_collectors_loop(tmp_path):
    """On the linear-quadratic problem 0 is doing nothing and 100 the optimum."""
    nets = {"critic_hidden": (32,), "policy_hidden": (32,), "critic_lr": 3e-3, "policy_lr": 3e-3, "batch_size": 64}
    training = Training(DualSACConfig(**nets, gradient="semi"), warmup=500, eval_every=500, checkpoint_every=5000)
    run = train("odice/LQR-v0", tmp_path / "run", budget=2500, training=training, quiet=True)
    means = [mean for _, mean in run.curve]
    assert max(means[-2:]) > 0.6 * means[0], means
