"""What every registered algorithm must do: learn, save, load, resume bit for bit, export, compile once, share a `vmap`.

The task is small enough for seconds: half of the logged actions push the right way, the other half pushes a little the
wrong way. Cloning them all earns a third of what imitating the better half does. The two halves overlap a little: where
there is a gap between two kinds of action, OptiDICE's information projection, which seeks modes, stays at the nearer
one.
"""

import dataclasses
import functools
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import odice
from odice.algos import algorithms, entry
from odice.data.columns import MAKERS, make_columns
from odice.data.transitions import to_transitions
from odice.errors import OdiceError
from odice.training.checkpoint import Checkpoints
from odice.training.loop import Loop, first_state, initial_state, make_chunk
from odice.training.settings import resolve
from odice.types import Spec

NAMES = sorted(algorithms())
SPEC, PIECE = Spec(3, 2), 50
IMITATES = {"bc", "bc-10", "iq-learn", "oq-dice", "value-dice"}
"""They do not read rewards, and have nothing else here that tells good pushes from bad ones."""
RUN: dict[str, typing.Any] = {"eval_every": 500, "checkpoint_every": 500, "keep": 1, "quiet": True}
RUN |= {"holdout": 0.0, "convention": "qlearning", "normalize_obs": False}  # a state acts as its policy does


def pushes(n: int = 2000, seed: int = 0, good: float = 0.5) -> dict[str, np.ndarray]:
    """States, pushes along each axis of which a share is good, and how much they helped.

    A state's last number is how much the push before it helped, so a pair of states tells pushes apart; nothing else of
    the next state does.
    """
    rng = np.random.default_rng(seed)
    obs = rng.uniform(-1, 1, (n, 3)).astype(np.float32)
    right = np.sign(obs[:, :2])
    strength = np.where(rng.random(n) < good, 0.8, -0.3)[:, None]
    action = np.clip(right * strength + rng.normal(0, 0.2, (n, 2)), -1, 1).astype(np.float32)
    ends = rng.random(n) < 0.1
    ends[-1] = True
    rewards = np.mean(right * action, axis=1).astype(np.float32)
    obs[1:, 2] = np.where(ends[:-1], obs[1:, 2], rewards[:-1])
    return {
        "observations": obs,
        "actions": action,
        "rewards": rewards,
        "terminals": ends,
        "timeouts": np.zeros(n, bool),
        "costs": np.zeros(n, np.float32),
    }


def earned(act) -> float:
    """What a policy earns per step on states it has not seen."""
    obs = np.random.default_rng(99).uniform(-1, 1, (2000, 3)).astype(np.float32)
    return float(np.mean(np.sign(obs[:, :2]) * np.asarray(act(obs))))


def tiny(name: str, **more) -> dict[str, typing.Any]:
    """Settings of an algorithm for a task of this size: small networks, large steps, a short horizon."""
    hints = typing.get_type_hints(entry(name).config)
    values = {
        "batch_size": 64,
        "discount": 0.5,
        "discriminator_steps": 200,
        "state_only": False,
        "discriminator_penalty": 0.1,
    }
    if name == "cql":
        values["n_actions"] = 3  # of 10: they are most of its update
    for field in hints:
        if field.endswith("hidden"):
            values[field] = (32,)
        elif field == "lr" or field.endswith("_lr"):
            values[field] = 3e-3
    return {key: value for key, value in values.items() if key in hints} | more


def updates(name: str) -> int:
    """How long a run is: AlgaeDICE's temperature starts at 1, and takes its time to fall."""
    return 2500 if name == "algae-dice" else 1000


@functools.cache
def build(name: str, spec: Spec = SPEC):
    return entry(name).build(resolve("x", algo=name, steps=updates(name), **tiny(name)).config, spec)


def train(name: str, out):
    """A run on the pushes; an algorithm that asks for demonstrations gets some good ones too."""
    options = RUN | tiny(name) | {"algo": name, "out": out, "steps": updates(name)}
    if not build(name).expert:
        return odice.train(pushes(), **options)
    return odice.imitate(pushes(200, seed=1, good=1.0), suboptimal=pushes(), absorbing=False, **options)


@functools.cache
def one_per_update() -> list[str]:
    """One algorithm for each update function: sdice saves, resumes and compiles as odice does."""
    values: dict[str, str] = {}
    for name in NAMES:
        update = build(name).update
        values.setdefault(f"{update.__module__}.{update.__qualname__}", name)
    return sorted(values.values())


def one_per_head() -> list[str]:
    """One algorithm for each kind of policy: an exported graph knows nothing else."""
    values: dict[str, str] = {}
    for name in NAMES:
        algo = build(name)
        policy = jax.eval_shape(lambda algo=algo: algo.policy(initial_state(algo, 0)))
        values.setdefault(type(policy).__name__, name)
    return sorted(values.values())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Every algorithm is trained once, when the first test asks for it."""
    runs: dict[str, odice.Run] = {}

    def get(name: str):
        if name not in runs:
            runs[name] = train(name, tmp_path_factory.mktemp(name) / "run")
        return runs[name]

    return get


class Compiled:
    """An algorithm in the program that its run compiled too (so it is compiled once for all tests)."""

    def __init__(self, name: str, **options):
        log = odice.load(pushes())
        columns = make_columns(MAKERS, log, 0.5)
        transitions = to_transitions(log, columns=columns | {"credit": columns["return_to_go"]})
        transitions = transitions._replace(expert=np.arange(100, dtype=np.int32))
        self.algo, self.data = build(name), jax.device_put(transitions)
        self.begin = first_state(self.algo, options.get("seeds", False), None)
        self.chunk = make_chunk(self.algo, 64, PIECE, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n if n in one_per_update() else pytest.param(n, marks=pytest.mark.long) for n in NAMES]
)
def test_learns(name, trained):
    behavior = float(np.mean(pushes()["rewards"]))
    assert behavior == pytest.approx(0.25, abs=0.03)
    score = earned(trained(name).policy)
    assert score > (0.8 * behavior if name in IMITATES else 0.4), score


@pytest.mark.slow
@pytest.mark.parametrize("name", one_per_update())
def test_the_saved_policy_acts_like_the_saved_state(name, trained):
    run = trained(name)
    algo = build(name)
    like = jax.eval_shape(lambda: initial_state(algo, 0))
    checkpoints = Checkpoints(run.path / "checkpoints")
    restored = checkpoints.restore(lambda facts: {"state": like})
    checkpoints.close()
    assert restored is not None
    assert restored.step == run.policy.about["step"] == updates(name)
    obs = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
    np.testing.assert_allclose(run.policy(obs), algo.act(restored.arrays["state"], jnp.asarray(obs)), atol=1e-5)


class Killed(BaseException):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("name", one_per_update())
def test_resumes_bit_for_bit(name, trained, tmp_path, monkeypatch):
    advance, seen = Loop._advance, []

    def counted(self, length):
        seen.append(length)
        if len(seen) == 12:
            raise Killed
        advance(self, length)

    monkeypatch.setattr(Loop, "_advance", counted)
    with pytest.raises(Killed):
        train(name, tmp_path / "run")
    again = train(name, tmp_path / "run")
    assert len(seen) == 12 + updates(name) // PIECE - 10  # ten pieces of fifty were in the checkpoint
    assert again.result == trained(name).result
    assert (again.path / "metrics.jsonl").read_bytes() == (trained(name).path / "metrics.jsonl").read_bytes()


@pytest.mark.slow
def test_every_kind_of_policy_is_exported_with_parity(trained, tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    from odice.policy.onnx import export_onnx

    for name in one_per_head():  # not a parameter: finding them traces every algorithm, and each run collects the tests
        policy, path = trained(name).policy, tmp_path / f"{name}.onnx"
        exported = export_onnx(policy, path)
        assert exported.difference <= exported.allowed, name
        obs = np.random.default_rng(2).normal(size=(20, 3)).astype(np.float32)
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(session.run(None, {"observation": obs})[0], policy(obs), atol=1e-5, err_msg=name)


@pytest.mark.long
@pytest.mark.parametrize("name", one_per_update())
def test_compiles_once_and_seeds_share_a_vmap(name):
    seeds, firsts = jnp.asarray([3, 4]), (0, PIECE)
    alone, vmapped = Compiled(name), Compiled(name, seeds=True)
    states = vmapped.begin(seeds)
    for first in firsts:
        states, _ = vmapped.chunk(states, vmapped.data, seeds, first)
    for i, seed in enumerate((3, 4)):
        state = alone.begin(seed)
        for first in firsts:
            state, _ = alone.chunk(state, alone.data, seed, first)
        for a, b in zip(jax.tree.leaves(states), jax.tree.leaves(state), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-3, atol=1e-3)
    assert vmapped.chunk._cache_size() == 1  # one program for both pieces; `alone` may serve other tests too


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_action_space_is_refused_in_words(name):
    """An algorithm either learns choices, or says that it cannot."""
    spec, refused = Spec(3, 4, discrete=True), None
    try:
        algo = build(name, spec)
    except OdiceError as error:
        refused = str(error)
    if refused is not None:
        assert "discrete" in refused or "continuous" in refused
    else:
        state = jax.eval_shape(lambda: initial_state(algo, 0))
        assert jnp.issubdtype(jax.eval_shape(algo.act, state, jnp.zeros((5, 3))).dtype, jnp.integer)


def test_every_setting_explains_itself():
    import tyro

    for name in NAMES:
        config = entry(name).config
        assert dataclasses.is_dataclass(config)
        text = tyro.extras.get_parser(config).format_help()
        assert "--batch-size" in text, name
