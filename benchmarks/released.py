"""Released codes beside ours: the same first parameters, batches and noise, and how far apart the parameters end.

    git clone https://github.com/maoliyuan/diffusion-DICE-Pytorch       # 7ab5a92 for docs/research/parity.md
    pip install torch
    python benchmarks/released.py diffusion-dice diffusion-DICE-Pytorch

    git clone https://github.com/ku-dmlab/CORSDICE                      # 20cfa50
    pip install flax
    python benchmarks/released.py cors-dice CORSDICE

It runs the code of the clone. 256-256 networks, published rates, 20 batches of 64 random rows, double precision. Shown
is the largest difference of a parameter, divided by the largest parameter of its network.

Diffusion-DICE: V, Q, the ensemble and W learn by the released losses and optimizers, from our noise; W has our features
of the time. Then both solvers make draws from the exact noise of a mixture.

CORSDICE: compared where the differences that docs/algorithms/cors_dice.md lists do not count: `polyak` 1, no terminals,
no cost, no penalty on slopes, `policy_weight` linear, flax's 1e-6 in LayerNorm. Where TensorFlow Probability is missing
or does not run with this jax, the Gaussian policy's density is the one below.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import math
import subprocess
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from odice.algos import make
from odice.core import networks
from odice.core.diffusion import FREQUENCIES, noised
from odice.types import Batch, Spec
from tests.algos import support
from tests.core import test_diffusion

SPEC, ROWS, HIDDEN, AFTER = Spec(3, 2), 64, (256, 256), (0, 1, 20)
COPIES = 16
"""Noised copies of each action in the loss of W."""
Pairs = Iterable[tuple[Any, Any]]
"""Our parameters and theirs."""
MARKS = {"diffusion-dice": ("diffusion_DICE/model.py", "torch"), "cors-dice": ("learner.py", "flax")}
"""A file of the released code, and the package that it needs beside odice's."""


def widened(tree: Any) -> Any:
    return jax.tree.map(lambda x: x.astype(float) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)


def difference(pairs: Pairs) -> float:
    """The largest difference of a number, relative to the largest one."""
    both = [(np.asarray(ours, float), np.asarray(theirs, float)) for ours, theirs in pairs]
    return max(np.abs(a - b).max() for a, b in both) / max(np.abs(b).max() for _, b in both)


# --- Diffusion-DICE, in torch -----------------------------------------------------------------------------------------


class Diffusion:
    """Both sides of Diffusion-DICE. Each pair is an array of ours and a function of theirs that reads or writes it."""

    def __init__(self, algo: Any):
        sys.modules.setdefault("wandb", types.ModuleType("wandb"))  # it logs there after 1,000 updates
        self.torch = torch = importlib.import_module("torch")
        self.model = importlib.import_module("diffusion_DICE.model")
        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float64)
        importlib.import_module("diffusion_DICE.schedule").marginal_prob_std.__defaults__ = ("cpu",)
        self.update, self.state = jax.jit(algo.update), widened(algo.init(jax.random.key(1)))
        rates = {"value_lr": 3e-4, "weight_decay": 1e-4, "wt_lr": 3e-4, "use_lr_schedule": 0}
        sizes = {"device": "cpu", "q_ensemble_num": 10, "hidden_dim": HIDDEN[0], "M": COPIES, "alpha": 0.5}
        self.theirs = self.model.SDICE_Critic(SPEC.action_dim, SPEC.obs_dim, types.SimpleNamespace(**rates, **sizes))
        self.theirs.wt = guidance_network(torch, self.model)
        for part in (self.theirs.q0, self.theirs.q0_target, self.theirs.v0, self.theirs.q_ensemble, self.theirs.wt):
            part.double()
        self.theirs.wt_optimizer = torch.optim.AdamW(self.theirs.wt.parameters(), lr=3e-4, weight_decay=1e-4)
        with torch.no_grad():
            for part in self.parts().values():
                for ours, theirs in part:
                    theirs.copy_(torch.tensor(np.asarray(ours)))

    @staticmethod
    def build() -> Any:
        sizes = {"value_hidden": HIDDEN, "critic_hidden": HIDDEN, "guidance_hidden": HIDDEN * 2, "score_hidden": (8,)}
        rates = {"value_lr": 3e-4, "critic_lr": 3e-4, "guidance_lr": 3e-4, "cosine_steps": 0}
        more = {"critic_ensemble": 10, "noised_copies": COPIES, "alpha": 0.5}
        return make("diffusion-dice", SPEC, **sizes, **rates, **more)

    def step(self, i: int) -> None:
        torch, batch, key = self.torch, widened(support.make_batch(i, ROWS)), jax.random.key(100 + i)
        drawn = noised(jax.random.split(key, 3)[1], batch.action, COPIES)
        time, noise = np.asarray(drawn.time[0], float), np.asarray(drawn.noise, float).transpose(1, 0, 2)
        self.state, _ = self.update(self.state, batch, key)
        fields = {"s": batch.obs, "a": batch.action, "r": batch.reward, "s_": batch.next_obs, "d": batch.terminated}
        data = {name: torch.tensor(np.asarray(value, float)) for name, value in fields.items()}
        self.theirs.update_v0(data)
        real = torch.rand, torch.randn_like
        torch.rand = lambda *_, **__: torch.tensor((time - 1e-3) / (1 - 1e-3))
        torch.randn_like = lambda *_, **__: torch.tensor(noise)
        self.theirs.update_wt(data)
        torch.rand, torch.randn_like = real

    def parts(self) -> dict[str, list[tuple[np.ndarray, Any]]]:
        """Arrays of ours beside tensors of theirs, in the same layout."""
        values, ours, theirs = self.state.values, self.state, self.theirs
        order = np.r_[SPEC.obs_dim : SPEC.obs_dim + SPEC.action_dim, : SPEC.obs_dim]  # their Q takes the action first
        linear, norm = self.torch.nn.Linear, self.torch.nn.LayerNorm

        def layers(mlp: Any, net: Any, head: int | None = None, first: Any = slice(None)) -> Iterator[tuple[Any, Any]]:
            pick = lambda x: np.asarray(x) if head is None else np.asarray(x)[head]
            for i, (layer, w, b) in enumerate(zip(_only(net, linear), mlp.weights, mlp.biases, strict=True)):
                yield (pick(w)[first] if i == 0 else pick(w)).T, layer.weight
                yield pick(b), layer.bias
            for layer, scale, shift in zip(_only(net, norm), mlp.scales, mlp.shifts, strict=True):
                yield pick(scale), layer.weight
                yield pick(shift), layer.bias

        def twin(ensemble: Any, net: Any) -> list[tuple[Any, Any]]:
            return [pair for i, q in enumerate((net.q1, net.q2)) for pair in layers(ensemble.heads, q, i, order)]

        heads, stacked = ours.ensemble.params.heads, _only(theirs.q_ensemble.critic, self.model.VectorizedLinear)
        several = zip(stacked, heads.weights, heads.biases, strict=True)
        return {
            "V": list(layers(values.value.params.heads, theirs.v0.v, 0)),
            "Q": twin(values.critic.params, theirs.q0),
            "slow Q": twin(values.target, theirs.q0_target),
            "ten Q": [p for m, w, b in several for p in ((w, m.weight), (np.asarray(b)[:, None], m.bias))],
            "W": list(layers(ours.guidance.params.network, theirs.wt.wt)),
        }

    def differences(self) -> dict[str, float]:
        return {
            name: difference((ours, theirs.detach().numpy()) for ours, theirs in part)
            for name, part in self.parts().items()
        }

    def finish(self) -> None:
        """The solvers, with the exact noise of a mixture."""
        torch, released = self.torch, importlib.import_module("diffusion_DICE.dpm_solver_pytorch")
        noise = np.random.default_rng(0).normal(size=(64, 2))
        exact = lambda x, t: torch.tensor(test_diffusion.mixture_noise(x.numpy(), float(t[0])))
        solver = released.DPM_Solver(exact, released.NoiseScheduleVP(schedule="linear"), predict_x0=True)
        for calls in (5, 14, 15):
            with torch.no_grad():
                theirs = solver.sample(torch.tensor(noise), steps=calls, order=2).numpy()
            print(f"solver, {calls} calls: {np.abs(theirs - test_diffusion.solved(noise, calls)).max():.0e}")


def guidance_network(torch: Any, model: Any) -> Any:
    """W with our features of the time."""
    frequencies = torch.tensor(FREQUENCIES.astype(np.float32)).double()

    class Guidance(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = [SPEC.obs_dim + SPEC.action_dim + 2 * len(FREQUENCIES), *HIDDEN * 2, 1]
            self.wt = model.mlp(sizes, activation=model.SiLU, squeeze_output=True)

        def forward(self, action: Any, t: Any, condition: Any) -> Any:
            angle = 2 * np.pi * t[..., None] * frequencies
            return self.wt(torch.cat([condition, action, torch.sin(angle), torch.cos(angle)], -1))

    return Guidance()


def _only(net: Any, kind: type) -> list[Any]:
    return [layer for layer in net if isinstance(layer, kind)]


# --- CORSDICE, in flax ------------------------------------------------------------------------------------------------


class Cors:
    """Both sides of CORSDICE; ours starts from their parameters."""

    def __init__(self, algo: Any):
        stand_in_for_tfp()
        divergences = importlib.import_module("divergence")
        divergences.ArrayLike = object  # it asks isinstance of a type that this jax does not allow there
        self.common = importlib.import_module("common")
        first = self.batch(0)
        rates = {"tau": 1.0, "alpha": 0.1, "lr_ratio": 0.1, "gradient_penalty_coeff": 0.0, "initial_lambda": 1.0}
        sizes = {"hidden_dims": HIDDEN, "layernorm": True, "max_timesteps": 1000, "max_steps": 1_000_000}
        kind = divergences.FDivergence.SOFT_CHI
        learner = importlib.import_module("learner").Learner
        self.theirs = learner(0, first.obs, first.action, divergence=kind, **rates, **sizes)
        for name in ("actor", "critic", "value", "value2", "advantage", "cost_lambda"):
            model = getattr(self.theirs, name)
            params = widened(model.params)
            setattr(self.theirs, name, model.replace(params=params, opt_state=model.tx.init(params)))
        self.theirs.target_critic = self.theirs.target_critic.replace(params=self.theirs.critic.params)
        self.update, self.state = jax.jit(algo.update), self.with_theirs(widened(algo.init(jax.random.key(1))))

    @staticmethod
    def build() -> Any:
        networks.LAYER_NORM_EPS = 1e-6
        sizes = {"value_hidden": HIDDEN, "critic_hidden": HIDDEN, "policy_hidden": HIDDEN, "cosine_steps": 1_000_000}
        rates = {"polyak": 1.0, "alpha": 0.1, "state_lr": 3e-5, "gradient_penalty": 0.0, "policy_weight": "linear"}
        return make("cors-dice", SPEC, **sizes, **rates)

    @staticmethod
    def batch(i: int) -> Batch:
        return widened(support.make_batch(i, ROWS, initial=True))._replace(terminated=jnp.zeros(ROWS, bool))

    def step(self, i: int) -> None:
        batch, zeros = self.batch(i), jnp.zeros(ROWS)
        self.state, _ = self.update(self.state, batch, jax.random.key(i))
        named = {"observations": batch.obs, "actions": batch.action, "rewards": batch.reward, "costs": zeros}
        named |= {"masks": jnp.ones(ROWS), "next_observations": batch.next_obs, "timesteps": zeros}
        self.theirs.update(self.common.Batch(initial_observations=batch.initial_obs, **named))

    def with_theirs(self, state: Any) -> Any:
        """A state of ours with their numbers."""
        heads = lambda tree: (tree.heads.weights, tree.heads.biases, tree.heads.scales, tree.heads.shifts)
        for where, params in self.where().values():
            state = eqx.tree_at(lambda s, where=where: heads(where(s)), state, stacked(params))
        actor = self.theirs.actor.params
        mean = lambda s: (s.base.policy.params.mean.weights, s.base.policy.params.mean.biases)
        return eqx.tree_at(mean, state, policy_layers(actor))

    def where(self) -> dict[str, tuple[Callable[[Any], Any], list[Any]]]:
        """Where a network stands in our state, and their parameters of each of its heads."""
        theirs = self.theirs
        twin = lambda model: [model.params["Critic_0"], model.params["Critic_1"]]
        return {
            "V": (lambda s: s.base.value.params, [theirs.value.params]),
            "Q": (lambda s: s.base.critic.params, twin(theirs.critic)),
            "slow Q": (lambda s: s.base.target, twin(theirs.target_critic)),
            "ν": (lambda s: s.visits.nu.params, [theirs.value2.params]),
            "e": (lambda s: s.visits.flow.params, [theirs.advantage.params]),
        }

    def differences(self) -> dict[str, float]:
        found = {}
        for name, (where, params) in self.where().items():
            heads = where(self.state).heads
            ours = [*heads.weights, *heads.biases, *heads.scales, *heads.shifts]
            found[name] = difference(zip(ours, [x for part in stacked(params) for x in part], strict=True))
        policy, actor = self.state.base.policy.params, self.theirs.actor.params
        weights, biases = policy_layers(actor)
        ours = [*policy.mean.weights, *policy.mean.biases, policy.log_std]
        return found | {"policy": difference(zip(ours, [*weights, *biases, actor["log_stds"]], strict=True))}

    def finish(self) -> None:
        pass


def stacked(heads: list[Any]) -> tuple[list[Any], ...]:
    """Weights, biases, scales and shifts of flax's MLPs, layer by layer, a first axis over the heads."""
    each = []
    for params in heads:
        layers = params["MLP_0"]
        named = lambda kind, layers=layers: [layers[k] for k in sorted(layers) if k.startswith(kind)]
        dense, norm = named("Dense"), named("LayerNorm")
        each.append(([x["kernel"] for x in dense], [x["bias"] for x in dense],
                     [x["scale"] for x in norm], [x["bias"] for x in norm]))  # fmt: skip
    return tuple([jnp.stack(xs) for xs in zip(*part, strict=True)] for part in zip(*each, strict=True))


def policy_layers(actor: Any) -> tuple[list[Any], list[Any]]:
    layers = [*(actor["MLP_0"][name] for name in sorted(actor["MLP_0"])), actor["Dense_0"]]
    return [layer["kernel"] for layer in layers], [layer["bias"] for layer in layers]


def stand_in_for_tfp() -> None:
    """The one density that CORSDICE takes from TensorFlow Probability, where that does not import."""
    try:
        importlib.import_module("tensorflow_probability.substrates.jax")
        return
    except Exception as error:  # it reaches into jax, so anything may be raised
        print(f"TensorFlow Probability does not import ({type(error).__name__}); the density is ours on both sides")

    class Gaussian:
        def __init__(self, loc: Any, scale_diag: Any):
            self.loc, self.scale = loc, scale_diag

        def log_prob(self, x: Any) -> Any:
            z = (x - self.loc) / self.scale
            return jnp.sum(-0.5 * z**2 - jnp.log(self.scale) - 0.5 * math.log(2 * math.pi), axis=-1)

    parts = ("tensorflow_probability", "tensorflow_probability.substrates", "tensorflow_probability.substrates.jax")
    top, middle, last = (sys.modules.setdefault(name, types.ModuleType(name)) for name in parts)
    vars(last).update(
        distributions=types.SimpleNamespace(MultivariateNormalDiag=Gaussian, Distribution=object),
        bijectors=types.SimpleNamespace(),
    )
    vars(middle).update(jax=last)
    vars(top).update(substrates=middle)


# --- the command ------------------------------------------------------------------------------------------------------


def commit(clone: Path) -> str:
    said = subprocess.run(["git", "-C", str(clone), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return said.stdout.strip() or "of unknown commit"


def missing(name: str, clone: Path) -> str | None:
    """Why the comparison cannot be made."""
    mark, package = MARKS[name]
    if not (clone / mark).is_file():
        return f"{clone}: there is no {mark} in it; clone the released code of {name} and name its folder."
    if importlib.util.find_spec(package) is None:
        return f"The released code of {name} needs {package}, which is not installed here: pip install {package}."
    return None


def main(name: str, clone: Path) -> int:
    if why := missing(name, clone):
        print(why, file=sys.stderr)
        return 2
    jax.config.update("jax_enable_x64", True)
    sys.path.insert(0, str(clone))
    kind = {"diffusion-dice": Diffusion, "cors-dice": Cors}[name]
    both = kind(kind.build())
    package = MARKS[name][1]
    print(f"{clone.resolve().name} {commit(clone)}, {package} {importlib.metadata.version(package)}")
    print(f"| updates | {' | '.join(both.differences())} |\n|--:|{'--:|' * len(both.differences())}")
    for i in range(max(AFTER) + 1):
        if i in AFTER:
            print(f"| {i} | {' | '.join(f'{apart:.0e}' for apart in both.differences().values())} |", flush=True)
        both.step(i)
    both.finish()
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algo", choices=sorted(MARKS))
    parser.add_argument("clone", type=Path, help="the folder of the released code")
    args = parser.parse_args()
    sys.exit(main(args.algo, args.clone))
