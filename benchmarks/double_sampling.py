"""One next state per transition: how wrong does it make V-DICE, and does `double_sampling` repair it?

    python benchmarks/double_sampling.py

Random MDPs with eight states, three actions and three next states for each, 600 logged transitions, whole-data updates,
tables instead of networks. The exact answer takes the mean over next states inside f* (`tests.oracles.tabular`), by
Newton's method, for the true gradient, and as a fixed point for the semi-gradient. Shown is the largest error of V over
states and of the weight w over pairs (s, a) that the policy is cloned with, and what the cloned policy earns beside the
exact one: medians over the problems.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from odice.algos import make
from odice.training.loop import initial_state
from odice.types import Spec
from tests.algos.numpy_vdice import GRADIENT, OFF
from tests.oracles import tabular, test_tabular

SEEDS, STEPS, LAM, DIVERGENCE = (7, 8, 9, 10, 11), 20_000, 0.5, "soft-chi2"
OPTIONS = {"lam": LAM, "divergence": DIVERGENCE}


def exact(name: str, mdp: tabular.TabularMDP, log: tabular.Log) -> tuple[np.ndarray, np.ndarray]:
    """V over the living states, and w over the pairs of the log."""
    problem = tabular.expected_loss(mdp, log, **OPTIONS)
    value = (
        tabular.minimize(problem)
        if name == "vdice-true"
        else tabular.semi_fixed_point(mdp, log, averaged=True, **OPTIONS)
    )
    return value, problem.curves.weight(problem.residual(value))


def cloned(mdp: tabular.TabularMDP, log: tabular.Log, weight: np.ndarray) -> np.ndarray:
    """pi(a|s) in proportion to share times weight; uniform where nothing is cloned."""
    pairs = tabular.pairs(log)
    mass = np.zeros((mdp.states, mdp.actions))
    np.add.at(mass, (log.state, log.action), log.share * weight[pairs.row])
    whole = mass.sum(1, keepdims=True)
    return np.where(whole > 0, mass / np.where(whole > 0, whole, 1), 1 / mdp.actions)


def learned(name: str, option: str, transitions, log: tabular.Log) -> tuple[np.ndarray, np.ndarray]:
    """V over all states, and the mean over each pair's rows of the weight that its policy is cloned with."""
    spec = Spec(test_tabular.STATES, test_tabular.ACTIONS, discrete=True)
    settings = test_tabular.SETTINGS | OPTIONS | {"polyak": 0.1, "value_lr": 0.02, "cosine_steps": STEPS}
    parts = OFF | {"gradient": GRADIENT[name], "double_sampling": option, "policy_weight": "ratio"}
    algo = make("auto", spec, **(parts | settings))
    batch = transitions.batch(jnp.arange(transitions.size))
    update = lambda _, state: algo.update(state, batch, jax.random.key(0))[0]
    state = jax.jit(lambda state: jax.lax.fori_loop(0, STEPS, update, state))(initial_state(algo, 0))
    value = np.asarray(state.value.params(transitions.obs)[0], np.float64)
    v, v_next = value[log.state], value[np.asarray(batch.next_obs).argmax(1)]
    residual = np.asarray(batch.reward) + settings["discount"] * np.asarray(batch.mask) * v_next - v
    if state.next_state is not None:
        residual = np.asarray(state.next_state.params(batch.obs, batch.action)[0], np.float64) - v
    weight, pairs = tabular.CURVES[DIVERGENCE].weight(residual), tabular.pairs(log)
    return value, np.bincount(pairs.row, weight) / np.bincount(pairs.row)


def errors(name: str, option: str, seed: int) -> tuple[float, float, float]:
    mdp, log, transitions = test_tabular.tabular_data(seed)
    value, weight = exact(name, mdp, log)
    ours, our_weight = learned(name, option, transitions, log)
    earned = [float(mdp.initial @ tabular.evaluate(mdp, cloned(mdp, log, w))) for w in (our_weight, weight)]
    return (
        float(np.max(np.abs(ours[~mdp.terminal] - value))),
        float(np.max(np.abs(our_weight - weight))),
        earned[0] - earned[1],
    )


def main() -> None:
    print("| algorithm | `double_sampling` | error of V | error of w | return, minus the exact policy's |")
    print("|---|---|---|---|---|")
    for name in ("vdice-true", "sdice"):
        for option in ("off", "policy", "both"):
            median = np.median([errors(name, option, seed) for seed in SEEDS], axis=0)
            print(f"| `{name}` | `{option}` | {median[0]:.1e} | {median[1]:.1e} | {median[2]:+.4f} |", flush=True)


if __name__ == "__main__":
    main()
