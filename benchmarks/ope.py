"""How good are the estimates from a log? Policies whose true return the simulator knows, judged by every estimator.

    python benchmarks/ope.py run --out ope --logs cartpole hopper-replay --policies 8 --updates 500
    python benchmarks/ope.py table --out ope
    python benchmarks/ope.py run --out ope --d3rlpy /path/of/venv/bin/python      # beside d3rlpy's FQE

Each log has policies of several algorithms, trained for a few updates, and the same policies with noise on their
weights, so that they spread from good to bad. One file per (log, policy): stop it and start it again, what is there is
not made again.

| number      | what it is
|
|-------------|---------------------------------------------------------------------------------------------------------|
| rank        | Spearman's correlation between estimate and truth, over the policies of a log
|
| regret@1    | (best truth - truth of the policy with the best estimate) / (best - worst truth)
|
| error       | mean absolute error of the estimate / (best - worst truth)
|
| coverage    | share of 95 % intervals that hold the truth (the truth has an error of its own: `--episodes`)
|
| verdicts    | how often the verdict was right, wrong in sign, or "cannot tell"
|
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

import odice
from odice.evaluation.ope.estimate import DEFAULT, ESTIMATORS, estimate
from odice.evaluation.ope.log import make_log
from odice.policy.file import Layout
from odice.policy.policy import Policy

D3RLPY_UPDATES = 10_000
NOISE = (0.0, 0.1, 0.2, 0.4, 0.8)


# --- logs and policies -----------------------------------------------------------------------------------------------


def cartpole_log(episodes: int = 200, seed: int = 0):
    """A controller that balances, and does something random in 30 % of the steps; CartPole-v1 cut at 200 steps."""
    import gymnasium

    env = gymnasium.make("CartPole-v1", max_episode_steps=200)
    rng, out = np.random.default_rng(seed), []
    for e in range(episodes):
        obs, _ = env.reset(seed=seed * 10_000 + e)
        states, actions, rewards, over = [obs], [], [], (False, False)
        while not any(over):
            good = int(states[-1] @ CONTROLLER > 0)
            actions.append(int(rng.integers(2)) if rng.random() < 0.3 else good)
            obs, reward, *over, _ = env.step(actions[-1])
            states.append(obs)
            rewards.append(reward)
        flags = {"terminated": over[0], "truncated": over[1] and not over[0]}
        out.append(
            {"observations": np.array(states), "actions": np.array(actions), "rewards": np.array(rewards), **flags}
        )
    return odice.load(out)


CONTROLLER = np.array([0.1, 0.3, 1.0, 0.6])
LOGS = {"cartpole": (cartpole_log, "CartPole-v1")}


def open_log(name: str):
    """A log made here, or anything that `odice.load` takes; and the environment that knows the truth."""
    if name in LOGS:
        make, env_id = LOGS[name]
        return make(), env_id
    data = odice.load(f"bundled/{name}" if name == "hopper-replay" else name)
    return data, data.meta.env_id


def perturbed(policy: Policy, noise: float, seed: int) -> Policy:
    """Noise on every weight, in units of its layer's spread: another policy, as deterministic as before."""
    rng = np.random.default_rng(seed)
    shaken = {
        k: (t + noise * t.std() * rng.standard_normal(t.shape)).astype(np.float32) for k, t in policy.tensors.items()
    }
    return Policy(
        policy.layout, shaken, policy.obs_mean, policy.obs_scale, policy.action_low, policy.action_high, policy.about
    )


def policies(name: str, data, count: int, algos: list[str], steps: int, folder: Path) -> dict[str, Policy]:
    """`count` policies of the log, by name: trained ones first without, then with more and more noise."""
    if name == "cartpole" and not algos:
        weight = np.stack([-CONTROLLER, CONTROLLER], axis=1).astype(np.float32)
        tensors = {"layers.0.weight": weight, "layers.0.bias": np.zeros(2, np.float32)}
        bases = {"controller": Policy(Layout((4, 2), False, "relu", "argmax"), tensors)}
    else:
        bases = {algo: _trained(name, data, algo, steps, folder) for algo in algos or ["bc"]}
    found, level = {}, 0
    while len(found) < count:
        noise = NOISE[level] if level < len(NOISE) else 0.2 + 0.1 * level
        for base, policy in bases.items():
            found[f"{base}-noise-{noise:.2g}"] = perturbed(
                policy, noise * (5 if base == "controller" else 1), 100 + level
            )
        level += 1
    return dict(list(found.items())[:count])


def _trained(name: str, data, algo: str, steps: int, folder: Path) -> Policy:
    out = folder / "runs" / name / f"{algo}-{steps}"
    if not (out / "policy" / "last").is_dir():
        odice.train(data=data, algo=algo, steps=steps, env="none", out=str(out))
    return Policy.load(out / "policy" / "last")


# --- one policy ------------------------------------------------------------------------------------------------------


def judge(policy: Policy, data, env_id: str, args) -> dict:
    """The truth and every estimate, both discounted as asked and not."""
    found = estimate(policy, data, discount=args.discount, estimators=args.estimators, updates=args.updates)
    truth = true_returns(policy, env_id, found.horizon, args.discount, args.episodes)
    row = {
        "truth": truth.mean(0).tolist(),
        "truth_error": (truth.std(0) / len(truth) ** 0.5).tolist(),
        **found.to_dict(),
    }
    if args.d3rlpy:
        row["d3rlpy"] = d3rlpy_fqe(policy, data, args)
    return row


def true_returns(policy: Policy, env_id: str, horizon: int, discount: float, episodes: int) -> np.ndarray:
    """(episodes, 2) discounted and undiscounted returns within the horizon, played here."""
    from odice.envs.make import make

    env, out = make(env_id, max_steps=horizon), []
    for e in range(episodes):
        obs, _ = env.reset(seed=777_000 + e)
        rewards, over = [], False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(policy(obs))
            rewards.append(float(reward))
            over = terminated or truncated
        out.append((float(np.array(rewards) @ discount ** np.arange(len(rewards))), sum(rewards)))
    env.close()
    return np.array(out)


D3RLPY = """
import sys, json, numpy as np, d3rlpy
arrays, config = np.load(sys.argv[1]), json.loads(sys.argv[2])
fields = {k: arrays[k] for k in ("observations", "actions", "rewards", "terminals", "timeouts")}
data = d3rlpy.dataset.MDPDataset(**fields)
discrete = config["discrete"]
kind = d3rlpy.algos.DiscreteBCConfig if discrete else d3rlpy.algos.BCConfig
clone = kind(batch_size=256).create()
pairs = d3rlpy.dataset.MDPDataset(arrays["states"], arrays["policy"], np.zeros(len(arrays["states"]), np.float32),
                                  np.zeros(len(arrays["states"])), np.eye(1, len(arrays["states"]), len(arrays["states"]) - 1)[0])
clone.fit(pairs, n_steps=5000, n_steps_per_epoch=5000, show_progress=False, experiment_name=None, logger_adapter=d3rlpy.logging.NoopAdapterFactory())
ope = d3rlpy.ope.DiscreteFQE if discrete else d3rlpy.ope.FQE
fqe = ope(algo=clone, config=d3rlpy.ope.FQEConfig(gamma=config["discount"]))
fqe.fit(data, n_steps=config["updates"], n_steps_per_epoch=config["updates"], show_progress=False, logger_adapter=d3rlpy.logging.NoopAdapterFactory())
first = arrays["first"]
print(json.dumps(float(np.mean(fqe.predict_value(first, clone.predict(first))))))
"""


def d3rlpy_fqe(policy: Policy, data, args) -> float:
    """d3rlpy's FQE in its own environment. It evaluates d3rlpy algorithms only, so a clone of the policy's actions
    stands for it."""
    log = make_log(policy, data)
    states, file = np.asarray(data.observations), args.out / "d3rlpy.npz"
    np.savez(
        file,
        observations=data.step_observations(),
        actions=data.actions if not data.discrete else data.actions[:, None],
        rewards=data.rewards,
        terminals=data.step_flags("terminated").astype(np.float32),
        timeouts=data.step_flags("truncated").astype(np.float32),
        states=states,
        policy=policy(states) if not data.discrete else policy(states)[:, None],
        first=states[log.first + np.arange(log.episodes)],
    )
    config = {"discount": args.discount, "updates": D3RLPY_UPDATES, "discrete": bool(data.discrete)}
    done = subprocess.run(
        [args.d3rlpy, "-c", D3RLPY, str(file), json.dumps(config)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise odice.OdiceError(f"d3rlpy failed: {done.stderr.strip().splitlines()[-1][:200]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


# --- the tables ------------------------------------------------------------------------------------------------------


def ranks(x: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata

    return rankdata(x)


def score(truth: np.ndarray, mean: np.ndarray, low: np.ndarray | None, high: np.ndarray | None) -> list[str]:
    spread = truth.max() - truth.min()
    if spread < 1e-6:  # all policies are alike: nothing to rank
        return ["-", "-", "-", "-"]
    rank = float(np.corrcoef(ranks(truth), ranks(mean))[0, 1]) if np.ptp(mean) > 0 else 0.0
    regret = (truth.max() - truth[int(mean.argmax())]) / spread
    cells = [f"{rank:.2f}", f"{regret:.2f}", f"{np.mean(np.abs(mean - truth)) / spread:.2f}"]
    covered = "-" if low is None or high is None else f"{np.mean((low <= truth) & (truth <= high)):.0%}"
    return [*cells, covered]


def table(out: Path) -> None:
    print("| log | policies | estimator | rank | regret@1 | error | coverage |\n|---|---|---|---|---|---|---|")
    verdicts = ["\n| log | right | wrong sign | cannot tell |", "|---|---|---|---|"]
    for folder in sorted(p for p in out.iterdir() if p.is_dir() and p.name != "runs"):
        rows = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
        truth = np.array([row["truth"][0] for row in rows])
        for name in ESTIMATORS:
            found = [row["estimates"].get(name) for row in rows]
            if all(found):
                columns = [np.array([one["discounted"][key] for one in found]) for key in ("mean", "low", "high")]
                print(f"| {folder.name} | {len(rows)} | {name} |", " | ".join(score(truth, *columns)), "|")
        if all("d3rlpy" in row for row in rows):
            other = np.array([row["d3rlpy"] for row in rows])
            print(f"| {folder.name} | {len(rows)} | d3rlpy FQE |", " | ".join(score(truth, other, None, None)), "|")
        better = [row["truth"][0] > row["behavior"]["mean"] for row in rows]
        said = [row["verdict"]["answer"] for row in rows]
        right = sum(s == ("better" if b else "not better") for s, b in zip(said, better, strict=True))
        silent = said.count("cannot tell")
        verdicts.append(f"| {folder.name} | {right} | {len(rows) - right - silent} | {silent} |")
    print("\n".join(verdicts))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--logs", nargs="+", default=["cartpole", "hopper-replay"])
    parser.add_argument("--policies", type=int, default=20, help="per log")
    parser.add_argument(
        "--algos", nargs="*", default=[], help="trained for the policies; by default bc, and a controller"
    )
    parser.add_argument("--steps", type=int, default=1000, help="updates of each trained policy")
    parser.add_argument("--updates", type=int, default=None, help="updates of FQE")
    parser.add_argument("--estimators", nargs="+", default=list(DEFAULT))
    parser.add_argument("--discount", type=float, default=0.99)
    parser.add_argument("--episodes", type=int, default=50, help="of the truth")
    parser.add_argument("--d3rlpy", default=None, help="a Python that has d3rlpy")
    args = parser.parse_args()
    if args.what == "table":
        table(args.out)
        return 0
    for name in args.logs:
        data, env_id = open_log(name)
        for label, policy in policies(name, data, args.policies, args.algos, args.steps, args.out).items():
            file = args.out / Path(name).stem / f"{label}.json"
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                text = json.dumps(judge(policy, data, env_id, args))
                file.write_text(text)
                print(file, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
