"""What the imitation algorithms learn without a reward: an expert's policy, and a reward that prefers the expert.

Every test here fails when a sign in a loss is turned: the policy then runs from the expert, and so does the reward.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos import make
from odice.core.qdice import recovered_reward
from odice.experiments.gridworld import ENCODINGS, GridWorld, auc, collect
from odice.training.loop import initial_state, make_chunk
from odice.types import Batch, Spec, Transitions

pytestmark = pytest.mark.slow
DISCOUNT, TEMPERATURE = 0.95, 0.01


def trained(name, spec, data, steps, **settings):
    algo = make(name, spec, **settings)
    state = jax.jit(lambda: initial_state(algo, 0))()
    state, metrics = make_chunk(algo, 128, steps)(state, data, 0, 0)
    return algo, state, metrics


# --- a point that an expert brings home -----------------------------------------------------------------------------


def pulls(n=400, seed=0, random=False):
    """A point in the plane; the expert pushes it to the origin, another way along each axis."""
    rng = np.random.default_rng(seed)
    obs = rng.uniform(-1, 1, (n, 2))
    action = rng.uniform(-1, 1, (n, 2)) if random else expert(obs)
    after = obs + 0.3 * action
    fields = (obs, action, np.zeros(n), after)
    return Batch(*(jnp.asarray(x, jnp.float32) for x in fields), terminated=jnp.zeros(n, bool))


def expert(obs):
    return np.stack([-0.8 * obs[:, 0], 0.8 * np.sign(obs[:, 1])], 1)


def as_transitions(batch):
    n = batch.reward.shape[0]
    rows = jnp.arange(n)
    states = jnp.concatenate([batch.obs, batch.next_obs])
    return Transitions(states, rows, rows + n, batch.action, batch.reward, batch.terminated)


SETTINGS = {
    "value-dice": {"gradient_penalty": 1.0, "critic_lr": 1e-3, "policy_lr": 1e-4},  # a saddle: the policy goes slowly
    "iq-learn": {"critic_lr": 1e-3, "policy_lr": 1e-3},
    "oq-dice": {"critic_lr": 1e-3, "policy_lr": 1e-3},
}
SEEDS = (0, 1)


@functools.cache
def pullers(name):
    nets = {"critic_hidden": (64, 64), "policy_hidden": (64, 64), "discount": DISCOUNT}
    algo, data = make(name, Spec(2, 2), **nets, **SETTINGS[name]), as_transitions(pulls())
    begin, chunk = jax.jit(lambda seed: initial_state(algo, seed)), make_chunk(algo, 128, 800)
    return algo, [chunk(begin(seed), data, seed, 0)[0] for seed in SEEDS]


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_imitates_a_continuous_expert(name):
    """Both seeds. A policy that does nothing has an error of 0.65, the root mean square of the expert's
    actions."""
    algo, states = pullers(name)
    new = pulls(seed=1)
    errors = [np.sqrt(np.mean(np.square(np.asarray(algo.act(state, new.obs)) - new.action))) for state in states]
    assert max(errors) < 0.3, errors


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_the_recovered_reward_ranks_the_expert_over_random_moves(name):
    algo, (state, *_) = pullers(name)
    temperature = 0.0 if name == "value-dice" else TEMPERATURE
    reward = lambda batch: np.asarray(
        recovered_reward(
            state.critic.params,
            algo.policy(state),
            batch,
            jax.random.key(3),
            discount=DISCOUNT,
            temperature=temperature,
        )
    )
    assert auc(reward(pulls(seed=1)), reward(pulls(seed=2, random=True))) > 0.85


# --- the toy world --------------------------------------------------------------------------------------------------

WORLD = GridWorld()
CELLS = jnp.asarray(ENCODINGS["one-hot-xy"](WORLD), jnp.float32)


def moves(episodes):
    """The behavior's first trajectories, and per cell which moves it made."""
    log = collect(WORLD, 1000, seed=0)
    keep = log.episode < episodes
    log = type(log)(*(column[keep] for column in log))
    assert log.terminated.sum() == episodes
    made = np.zeros((len(CELLS), 4), bool)
    made[log.cell, log.action] = True
    cell, after, action, ended = map(
        jnp.asarray, (log.cell, log.next_cell, log.action.astype(np.int32), log.terminated)
    )
    return Transitions(CELLS, cell, after, action, jnp.zeros(len(log.cell)), ended), log, made


def arrives(act, horizon=200):
    """Whether a walk from the start comes to a goal."""
    cell, goals = np.zeros(2, int), WORLD.goals()
    table = np.asarray(act(CELLS))
    for _ in range(horizon):
        if goals[tuple(cell)]:
            return True
        cell = WORLD.move(cell, table[WORLD.flat(cell)])
    return False


@pytest.mark.parametrize("episodes", [1, pytest.param(20, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["iq-learn", "oq-dice"])
def test_imitates_the_toy_world(name, episodes):
    data, log, made = moves(episodes)
    algo, state, _ = trained(
        name, Spec(CELLS.shape[1], 4, discrete=True), data, 2000, critic_hidden=(64,), critic_lr=1e-3
    )
    chosen = np.asarray(algo.act(state, CELLS))[log.cell]
    like = made[log.cell, chosen].mean()
    assert like > 0.9, like  # of a random move it would be 0.25 and 0.41
    assert arrives(lambda cells: algo.act(state, cells))
    # the reward of what was done, over that of the moves that were never made there
    other = np.random.default_rng(0).integers(0, 4, len(log.cell))
    moved = WORLD.flat(WORLD.move(WORLD.cells[log.cell], other))
    foreign = ~made[log.cell, other]
    rewards = [
        recovered_reward(
            state.critic.params, algo.policy(state), batch, jax.random.key(0), discount=0.99, temperature=TEMPERATURE
        )
        for batch in (
            data.batch(jnp.arange(len(log.cell))),
            Batch(CELLS[log.cell], jnp.asarray(other, jnp.int32), data.reward, CELLS[moved], data.terminated),
        )
    ]
    assert auc(np.asarray(rewards[0]), np.asarray(rewards[1])[foreign]) > 0.9
