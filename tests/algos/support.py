"""What the tests of the algorithms share: batches, linear networks in numpy, Adam by hand, and a task with a known
answer.

Whole updates are checked on networks without hidden layers: there a loss is a few lines of numpy in float64, its
gradient is taken by central differences, and Adam's step from optax's own moments must land on the updated parameters.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from odice.algos import make
from odice.core.learner import Learned
from odice.training.loop import initial_state, make_chunk
from odice.types import Batch, Spec, Transitions

SPEC = Spec(3, 2)


def make_batch(seed=0, n=16, discrete=False, initial=False, cost=False):
    rng = np.random.default_rng(seed)
    obs, next_obs, first = rng.normal(size=(3, n, 3)).astype(np.float32)
    action = rng.integers(0, 2, n).astype(np.int32) if discrete else rng.uniform(-0.9, 0.9, (n, 2)).astype(np.float32)
    terminated = np.arange(n) % 5 == 0
    fields = (obs, action, rng.normal(size=n).astype(np.float32), next_obs, terminated)
    batch = Batch(*map(jnp.asarray, fields))
    if cost:
        costs = np.random.default_rng(seed).uniform(0, 1, n)
        batch = batch._replace(columns={"cost": jnp.asarray(costs, jnp.float32)})
    return batch._replace(initial_obs=jnp.asarray(first)) if initial else batch


def compiled(name, spec=SPEC, **settings):
    """An algorithm whose update and start are one program each: traced once, and not at every call."""
    algo = make(name, spec, **settings)
    return algo._replace(update=jax.jit(algo.update), init=jax.jit(algo.init))


def warm(name, settings, spec=SPEC, steps=3, **batch_options):
    """An algorithm and a state a few updates old, so that targets and moments are not those of the beginning.

    Results are cached: most of the time of these tests is spent on compiling.
    """
    return _warm(name, tuple(sorted(settings.items())), spec, steps, tuple(batch_options.items()))


@functools.cache
def _warm(name, settings, spec, steps, batch_options):
    algo = compiled(name, spec, **dict(settings))
    state = algo.init(jax.random.key(1))
    for i in range(steps):
        batch = make_batch(10 + i, discrete=spec.discrete, **dict(batch_options))
        state, _ = algo.update(state, batch, jax.random.key(i))
    return algo, state


# --- numpy ----------------------------------------------------------------------------------------------------------


def arrays(batch):
    """The fields of a batch in float64, with the mask instead of `terminated`."""
    s, a, r, s2, d = (np.asarray(x, np.float64) for x in batch[:5])
    return s, a, r, s2, 1 - d


def part(state, name):
    """The parameters of a state's part, or what it has under that name; `a.b` is the part b of the part a."""
    result = functools.reduce(getattr, name.split("."), state)
    return result.params if isinstance(result, Learned) else result


def flatten(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]).astype(np.float64)


def slope(loss, theta, h=1e-5):
    """The gradient of a scalar function by central differences."""
    theta = np.asarray(theta, np.float64)
    steps = np.eye(theta.size) * h
    return np.array([(loss(theta + e) - loss(theta - e)) / (2 * h) for e in steps])


def moments(opt_state):
    """Adam's part of an optimizer's state, wherever a chain or a schedule has put it."""
    is_adam = lambda x: hasattr(x, "mu") and hasattr(x, "nu")
    return next(leaf for leaf in jax.tree.leaves(opt_state, is_leaf=is_adam) if is_adam(leaf))


def adam(theta, gradient, opt_state, lr):
    """One Adam step from optax's moments."""
    adam_state = moments(opt_state)
    t = int(adam_state.count) + 1
    m = 0.9 * flatten(adam_state.mu) + 0.1 * gradient
    v = 0.999 * flatten(adam_state.nu) + 0.001 * gradient**2
    return theta - lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)


def linear(theta, x, outputs=1):
    """x W + b, for parameters in the order of an MLP without hidden layers."""
    cut = x.shape[-1] * outputs
    return x @ theta[:cut].reshape(-1, outputs) + theta[cut : cut + outputs]


def heads(theta, x, count=2):
    """The rows of `count` linear networks with stacked parameters and one output."""
    cut = count * x.shape[-1]
    return theta[:cut].reshape(count, -1) @ x.T + theta[cut : cut + count, None]


def twin(theta, s, a):
    return heads(theta, np.concatenate([s, a], -1))


def gaussian(theta, s, a, tanh=False):
    """log N(a; mean, diag(exp(log_std))^2) for a linear mean and parameters in the order of GaussianPolicy."""
    mean, log_std = linear(theta, s, a.shape[-1]), np.clip(theta[-a.shape[-1] :], -5, 2)
    mean = np.tanh(mean) if tanh else mean
    return (-0.5 * ((a - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)).sum(-1)


def log_slope(u):
    """log(1 - tanh(u)^2) = -2 log cosh(u), added over the last axis. The left side, as it is written, has no digits
    left where u is large, and a difference quotient of it fewer still."""
    return -2 * (np.logaddexp(u, -u) - np.log(2)).sum(-1)


def close(tree, expected, **tolerance):
    np.testing.assert_allclose(flatten(tree), expected, **({"rtol": 5e-4, "atol": 5e-5} | tolerance))


def same(a, b, **tolerance):
    close(a, flatten(b), **({"rtol": 1e-6, "atol": 1e-7} | tolerance))


def zero(gradient):
    """True if no gradient at all arrives."""
    return all(not np.any(leaf) for leaf in jax.tree.leaves(gradient))


# --- a task with a known answer -------------------------------------------------------------------------------------

GOAL = 0.5


def two_steps(n=2000, discrete=False):
    """Episodes of two steps: the first action is where the second step starts, and only there is a reward, -(x -
    1/2)^2 * 4.

    So the best first action is 1/2 (of the discrete -1, -1/2, 0, 1/2, 1: number 3), and it takes the value of the
    second state to know it. Actions are uniform, whose mean is 0: cloning does not find the answer, and neither does a
    flipped sign.
    """
    rng = np.random.default_rng(0)
    action = rng.integers(0, 5, n) if discrete else rng.uniform(-1, 1, (n, 1))
    moved = (action / 2 - 1 if discrete else action[:, 0]).repeat(2)
    obs = np.stack([moved * np.tile([0, 1], n), np.tile([0, 1], n)], 1)
    later = rng.permutation(n)  # the second step's actions do not matter
    both = np.stack([action, action[later]], 1).reshape(2 * n, *action.shape[1:])
    second = np.tile([False, True], n)
    index = np.arange(2 * n)
    reward = np.where(second, -4 * (moved - GOAL) ** 2, 0.0)
    return Transitions(
        obs=jnp.asarray(obs, jnp.float32),
        index=jnp.asarray(index),
        next_index=jnp.asarray(np.where(second, index, index + 1)),
        action=jnp.asarray(both, jnp.int32 if discrete else jnp.float32),
        reward=jnp.asarray(reward, jnp.float32),
        terminated=jnp.asarray(second),
        initial=jnp.asarray(index[::2]),
    )


def learn(name, *, steps=800, batch=128, discrete=False, data=None, **settings):
    """The first action after training on `two_steps` (or on `data`), and the metrics of the second half of training."""
    spec = Spec(2, 5 if discrete else 1, discrete)
    algo = make(name, spec, **settings)
    state, data = jax.jit(lambda seed: initial_state(algo, seed))(0), data or two_steps(discrete=discrete)
    half = make_chunk(algo, batch, steps // 2)
    state, _ = half(state, data, 0, 0)
    state, metrics = half(state, data, 0, steps // 2)
    return np.asarray(algo.act(state, jnp.zeros(2))), metrics


def assert_best(action, discrete=False, atol=0.2):
    """Of `two_steps`."""
    if discrete:
        assert action == 3
    else:
        np.testing.assert_allclose(action, [0.5], atol=atol)


def assert_a_limit_moves_the_policy(name, **settings):
    """The best first action is 1/2; every first action above 0 costs its size. A low limit pulls it down."""
    data = two_steps()
    data = data._replace(columns={"cost": jnp.where(data.terminated, 0.0, jnp.maximum(data.action[:, 0], 0.0))})
    (free, loose), (held, tight) = (
        learn(name, steps=2000, data=data, cost_limit=limit, batch_size=128, **settings) for limit in (1.0, 0.01)
    )
    assert_best(free)
    assert held < free - 0.2
    assert tight["cost_estimate"] < 0.03 < loose["cost_estimate"]
    assert tight["price"] > 0.5 > loose["price"]
