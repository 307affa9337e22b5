"""Is every algorithm its equations? Our updates against independent numpy ones, after 1 and after 20 of them.

    python benchmarks/parity.py                 # the table, in Markdown
    python benchmarks/parity.py --algo xql      # some of it

The other side is the numpy code of tests/algos: losses written out from reading the official codes (none is run), in
float64, gradients by central differences, Adam by hand. It runs by itself: from the same parameters it takes its own
steps with its own moments, and never looks at ours again. Networks have no hidden layers, batches have 16 rows,
learning rates are large. What is shown is the largest difference of any parameter, divided by the largest parameter of
that network; ours is in float32.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from odice.algos import make
from odice.core.learner import Learned
from odice.types import Spec
from tests.algos import support

SPEC, UPDATES = Spec(3, 2), (1, 20)
Numbers = dict[str, np.ndarray]
"""Name of a part of the state -> its new parameters, flat."""


class Case(NamedTuple):
    """One row of the table."""

    label: str
    algo: str
    module: str
    """The test module whose numpy code is the other side."""
    settings: dict[str, Any]
    against: str
    """Whose equations these are."""
    numpy_update: Callable[[Any, Any, Any], Numbers]
    """(module, state, batch) -> the new parameters."""
    batch: dict[str, Any] = {}


class Name(str):
    """The name of an optimizer, in the place of its state, whatever part of it is asked for."""

    def __getitem__(self, _: Any) -> Name:
        return self


class Adam:
    """Adam with moments of its own, one pair for each optimizer."""

    def __init__(self):
        self.moments: dict[str, tuple[int, Any, Any]] = {}

    def __call__(self, theta: np.ndarray, gradient: np.ndarray, name: str, lr: float) -> np.ndarray:
        t, m, v = self.moments.get(name, (0, 0.0, 0.0))
        t, m, v = t + 1, 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        self.moments[name] = t, m, v
        return theta - lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)


def rebuilt(tree: Any, flat: np.ndarray) -> Any:
    """A tree of the same shape with these numbers."""
    leaves, structure = jax.tree.flatten(tree)
    cuts = np.cumsum([np.size(leaf) for leaf in leaves])[:-1]
    parts = [part.reshape(np.shape(leaf)) for part, leaf in zip(np.split(flat, cuts), leaves, strict=True)]
    return jax.tree.unflatten(structure, parts)


def shadow(state: Any) -> Any:
    """The state in float64, with names in the places of its optimizers' states."""
    exact = lambda tree: rebuilt(tree, support.flatten(tree)) if jax.tree.leaves(tree) else tree

    def part(name: str, value: Any) -> Any:
        if isinstance(value, Learned):
            return Learned(exact(value.params), Name(name))
        if isinstance(value, tuple) and any(isinstance(inner, Learned) for inner in value):
            return inside(value, f"{name}.")
        return exact(value)

    def inside(parts: Any, prefix: str = "") -> Any:
        return parts._replace(**{name: part(prefix + name, getattr(parts, name)) for name in parts._fields})

    return inside(state)


def replaced(state: Any, numbers: Numbers) -> Any:
    """The state with new numbers."""

    def put(parts: Any, name: str, flat: np.ndarray) -> Any:
        first, _, rest = name.partition(".")
        old = getattr(parts, first)
        if rest:
            return parts._replace(**{first: put(old, rest, flat)})
        params = rebuilt(support.part(parts, first), flat)
        return parts._replace(**{first: Learned(params, old.opt_state) if isinstance(old, Learned) else params})

    for name, flat in numbers.items():
        state = put(state, name, flat)
    return state._replace(step=state.step + 1) if "step" in state._fields else state


def difference(ours: Any, theirs: Any, numbers: Numbers) -> float:
    """The largest difference of a parameter, relative to the largest one of its part."""
    worst = 0.0
    for name in numbers:
        a, b = (support.flatten(support.part(state, name)) for state in (ours, theirs))
        worst = max(worst, float(np.max(np.abs(a - b)) / np.max(np.abs(b))))
    return worst


def run(case: Case) -> list[float]:
    """The differences after each of `UPDATES`."""
    module = importlib.import_module(f"tests.algos.{case.module}")
    algo = make(case.algo, SPEC, **case.settings)
    update, ours = jax.jit(algo.update), algo.init(jax.random.key(1))
    theirs, adam, differences = shadow(ours), Adam(), []
    module.adam = adam
    key = getattr(module, "KEY", jax.random.key(0))
    for i in range(max(UPDATES)):
        batch = batch_of(case, module, i)
        ours, _ = update(ours, batch, key)
        numbers = case.numpy_update(module, theirs, batch)
        theirs = replaced(theirs, numbers)
        if i + 1 in UPDATES:
            differences.append(difference(ours, theirs, numbers))
    return differences


def batch_of(case: Case, module: Any, seed: int) -> Any:
    if case.module == "test_rebrac":
        return module.batch_with_next_actions(seed)
    if case.module in ("test_union", "test_rgm"):
        return module.union_batch(seed)
    return support.make_batch(seed, **case.batch)


# --- the other sides ------------------------------------------------------------------------------------------------


def implicit(name: str) -> Case:
    module = importlib.import_module("tests.algos.test_implicit")
    parts = ("value", "critic", "target", "policy")
    step = lambda m, state, batch: dict(zip(parts, m.numpy_update(name, state, batch), strict=True))
    against = "the paper's conjugate" if name == "fdvl" else "official JAX code"
    return Case(name, name, "test_implicit", module.LINEAR | module.EXTRA[name], against, step)


def vdice(name: str) -> Case:
    module = importlib.import_module("tests.algos.numpy_vdice")
    parts = ("value", "target", "policy")
    step = lambda m, state, batch: dict(zip(parts, m.numpy_update(name, state, batch), strict=True))
    settings = module.LINEAR | module.eta_of(name) | {"twin": True}
    return Case(name, name, "numpy_vdice", settings, "released ODICE-Pytorch", step)


def averaged(name: str) -> Case:
    """With a critic that averages over next states."""
    module, plain = importlib.import_module("tests.algos.test_auto"), vdice(name)

    def step(m, state, batch):
        *networks, _ = module.numpy_update(name, state, batch, averaged="both")
        critic = module.numpy_critic(name, state, batch)
        return dict(zip(("value", "target", "policy", "next_state"), (*networks, critic), strict=True))

    settings = module.OFF | plain.settings | {"gradient": module.GRADIENT[name], "double_sampling": "both"}
    label = f"{name} (double_sampling both)"
    return plain._replace(label=label, algo="auto", settings=settings, against="its equations", numpy_update=step)


def optidice(variant: str) -> Case:
    module = importlib.import_module("tests.algos.test_optidice")
    parts = {"value": "value", "e": "advantage", "policy": "actor", "data_policy": "data_policy"}
    step = lambda m, state, batch: {parts[k]: v for k, v in m.numpy_update(variant, state, batch).items()}
    settings, against = module.LINEAR | module.VARIANTS[variant], "official code of OptiDICE"
    return Case(f"optidice ({variant})", "optidice", "test_optidice", settings, against, step, {"initial": True})


def td3_bc() -> Case:
    module = importlib.import_module("tests.algos.test_td3_bc")
    parts = ("critic", "policy", "policy_target", "critic_target")

    def step(m, state, batch):
        return dict(zip(parts, m.numpy_update(state, batch, (state.step + 1) % 2 == 0), strict=True))

    return Case("td3-bc", "td3-bc", "test_td3_bc", module.LINEAR, "official code of TD3+BC", step)


def rebrac() -> Case:
    module = importlib.import_module("tests.algos.test_rebrac")
    step = lambda m, state, batch: m.numpy_update(state, batch, (state.step + 1) % 2 == 0)
    return Case("rebrac", "rebrac", "test_rebrac", module.LINEAR, "CORL's ReBRAC", step)


def awac(case: str) -> Case:
    module = importlib.import_module("tests.algos.test_awac")
    settings = module.LINEAR | module.CASES[case]
    against = "CORL's AWAC" if case == "awac" else "its equations"
    step = lambda m, state, batch: m.numpy_update(case, state, batch)
    return Case(case, case.split(",")[0], "test_awac", settings, against, step)


def cql() -> Case:
    module = importlib.import_module("tests.algos.test_cql")

    def step(m, state, batch):
        after = m.numpy_update(state, batch)
        return {name: after[name] for name in ("policy", "critic", "target", "log_alpha")}

    return Case("cql", "cql", "test_cql", module.LINEAR, "CORL's CQL", step)


def value_dice() -> Case:
    module = importlib.import_module("tests.algos.test_value_dice")
    step = lambda m, state, batch: dict(zip(("critic", "policy"), m.numpy_update(state, batch)[:2], strict=True))
    return Case("value-dice", "value-dice", "test_value_dice", module.LINEAR, "official code, offline fork", step)


def inverse(name: str, against: str) -> Case:
    module = importlib.import_module("tests.algos.test_inverse")
    more = {"oq-dice": {"lam": module.LAM, "eta": module.ETA}}.get(name, {})
    parts = ("critic", "policy", "target")
    step = lambda m, state, batch: dict(zip(parts, m.numpy_update(name, state, batch), strict=True))
    return Case(name, name, "test_inverse", module.LINEAR | more, against, step)


def algae(gradient: str) -> Case:
    module = importlib.import_module("tests.algos.test_algae_dice")

    def step(m, state, batch):
        log_temperature = state.log_temperature
        temperature = float(np.exp(log_temperature.params))
        critic = m.numpy_critic(gradient, state, batch, temperature)
        policy, entropy = m.numpy_policy(gradient, state, critic, batch, temperature)
        climb = np.array([temperature * (entropy + 2)])
        return {
            "critic": critic,
            "target": m.TAU * critic + (1 - m.TAU) * support.flatten(state.target),
            "policy": policy,
            "log_temperature": m.adam(support.flatten(log_temperature.params), climb, log_temperature.opt_state, m.LR),
        }

    settings = module.LINEAR | {"gradient": gradient}
    against = "its equations" if gradient == "orthogonal" else "official code of AlgaeDICE"
    return Case(f"algae-dice ({gradient})", "algae-dice", "test_algae_dice", settings, against, step, {"initial": True})


def copti() -> Case:
    module = importlib.import_module("tests.algos.test_copti_dice")

    def step(m, state, batch):
        theta, policy = support.flatten(state.dual.params), support.flatten(state.policy.params)
        gradient = support.slope(lambda x: m.numpy_losses(x, theta, batch)[0], theta)
        weight = m.numpy_losses(theta, theta, batch)[1]
        s, a = support.arrays(batch)[:2]
        own = support.slope(lambda x: -np.mean(weight * support.gaussian(x, s, a, tanh=True)), policy)
        dual = m.adam(theta, gradient, state.dual.opt_state, m.LR)
        return {"dual": dual, "policy": m.adam(policy, own, state.policy.opt_state, m.LR)}

    against = "official code of CoptiDICE"
    return Case("copti-dice", "copti-dice", "test_copti_dice", module.LINEAR, against, step, module.COSTLY)


def cors(weight: str) -> Case:
    module = importlib.import_module("tests.algos.test_cors_dice")
    settings, form = module.LINEAR | {"policy_weight": weight}, module.WEIGHTS[weight]
    step = lambda m, state, batch: m.numpy_update(state, batch, form)
    against = "official code of CORSDICE, with the slow Q" if weight == "linear" else "its equations"
    return Case(f"cors-dice ({weight})", "cors-dice", "test_cors_dice", settings, against, step, module.COSTLY)


def idrl() -> Case:
    """Half of the updates are in the second round, on the rows that the first leaves."""
    module = importlib.import_module("tests.algos.test_idrl")
    step = lambda m, state, batch: m.numpy_update(state, batch, length=10)
    settings = module.LINEAR | {"total_steps": 20}
    return Case("idrl", "idrl", "test_idrl", settings, "its equations", step, {"initial": True})


def diffusion() -> Case:
    module = importlib.import_module("tests.algos.test_diffusion_dice")
    step = lambda m, state, batch: m.numpy_update(state, batch, m.KEY)[0]
    against = "official code of Diffusion-DICE; the score's network is ours"
    return Case("diffusion-dice", "diffusion-dice", "test_diffusion_dice", module.TINY, against, step)


def union(name: str, against: str) -> Case:
    """SMODICE's discriminator learns in the first update alone here, so that the others count."""
    module = importlib.import_module("tests.algos.test_union")
    settings = module.SETTINGS[name] | ({"discriminator_steps": 1} if name == "smodice" else {})

    def step(m, state, batch):
        c, v, actor = (support.flatten(support.part(state, name)) for name in ("discriminator", "value", "actor"))
        pi = actor[:-1]
        own = jax.random.split(jax.random.key(0))[0]
        beta, penalty, reward_of = m.CASES[name]
        reward = reward_of(m.net(c, m.LOOK[name](batch)))

        def value_loss(theta):
            x = m.numpy_residual(theta, reward, batch)
            start = (1 - m.GAMMA) * m.net(theta, np.asarray(batch.initial_obs, np.float64)).mean()
            return start + beta * np.log(np.mean(np.exp(x / beta))) + penalty * np.sum(theta[:3] ** 2)

        x = m.numpy_residual(v, reward, batch)
        weight = np.exp(x / beta) / np.mean(np.exp(x / beta))
        after: Numbers = {"discriminator": c, "value": v, "actor": actor}
        if name != "smodice" or state.step < 1:
            slope = support.slope(lambda theta: m.numpy_discriminator_loss(name, theta, batch, own), c)
            after["discriminator"] = m.adam(c, slope, state.discriminator.opt_state, 3e-4)
        if name != "smodice" or state.step >= 1:
            after["value"] = m.adam(v, support.slope(value_loss, v), state.value.opt_state, 3e-4)
            cloning = lambda theta: -np.mean(weight * m.squashed_log_prob(theta, batch))
            gradient = np.append(support.slope(cloning, pi), 0.0)  # the weight of the entropy does not learn here
            after["actor"] = m.adam(actor, gradient, state.actor.opt_state, 3e-4)
        return after

    return Case(name, name, "test_union", settings, against, step)


def rgm(form: str) -> Case:
    """The discriminator learns in the first update alone."""
    module = importlib.import_module("tests.algos.test_rgm")

    def step(m, state, batch):
        if state.step >= 1:
            return {"discriminator": support.flatten(state.discriminator.params), **m.numpy_update(form, state, batch)}
        own = jax.random.split(jax.random.key(0))[0]
        c = support.flatten(state.discriminator.params)
        slope = support.slope(lambda theta: m.numpy_discriminator_loss("rgm", theta, batch, own), c)
        return {"discriminator": m.adam(c, slope, state.discriminator.opt_state, m.LR)}

    against = {"official": "official code of RGM", "kl": "its equations, normalized"}[form]
    return Case(f"rgm ({form})", "rgm", "test_rgm", module.LINEAR | module.FORMS[form], against, step)


def clone(policy: str) -> Case:
    def step(m, state, batch):
        s, a, *_ = support.arrays(batch)
        loss = {
            "deterministic": lambda theta: np.mean((np.tanh(support.linear(theta, s, 2)) - a) ** 2),
            "gaussian": lambda theta: -np.mean(support.gaussian(theta, s, a, tanh=True)),
        }[policy]
        theta = support.flatten(state.policy.params)
        return {"policy": m.adam(theta, support.slope(loss, theta), state.policy.opt_state, 0.05)}

    settings = {"policy_hidden": (), "policy_lr": 0.05, "policy": policy}
    return Case(f"bc ({policy})", "bc", "test_bc", settings, "CORL's BC, IQL's policy", step)


def cases() -> Iterator[Case]:
    yield from map(vdice, ("odice", "sdice", "vdice-true"))
    yield averaged("odice")
    yield from map(optidice, ("cloning", "projection"))
    yield from map(implicit, ("iql", "sql", "eql", "fdvl", "xql"))
    yield td3_bc()
    yield rebrac()
    yield from map(awac, ("awac", "crr", "crr, exp"))
    yield cql()
    yield from map(algae, ("true", "semi", "orthogonal"))
    yield copti()
    yield from map(cors, ("ratio", "linear"))
    yield idrl()
    yield diffusion()
    yield value_dice()
    yield inverse("iq-learn", "official code of IQ-Learn")
    yield inverse("oq-dice", "its equations")
    yield union("demo-dice", "official code of DemoDICE")
    yield union("lobs-dice", "official code of LobsDICE")
    yield union("smodice", "official code of SMODICE, normalized weights")
    yield from map(rgm, ("official", "kl"))
    yield from map(clone, ("deterministic", "gaussian"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algo", action="append", help="only these")
    chosen = parser.parse_args().algo
    heads = [f"{n} update{'s' if n > 1 else ''}" for n in UPDATES]
    print(f"| algorithm | equations of | {' | '.join(heads)} |\n|---|---|{'---|' * len(heads)}")
    began = time.perf_counter()
    for case in cases():
        if chosen is None or case.algo in chosen:
            print(f"| {case.label} | {case.against} | {' | '.join(f'{x:.1e}' for x in run(case))} |", flush=True)
    print(f"\n{time.perf_counter() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
