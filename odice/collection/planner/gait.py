"""A walk for D4RL's ant: ten numbers, found by random search in the ant's own world.

Legs 1 and 3 move against legs 2 and 4. The phase of the stride is read off the ankles' angles and velocities, so the
walk is a function of the observation and of the wanted direction alone: a log of it can be cloned. Each leg's hip
sweeps in proportion to how far its sweep points along the direction, its ankle stretches in proportion to how far the
leg itself does, and torques pull the joints to where the stride wants them. The torso may keep any heading.

The numbers of `WALK` come from `python -m odice.collection.planner.gait` (cross-entropy search, seed 0;
docs/research/mazes.md has its cost). Nothing is copied from a trained agent.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Arr

LEGS = np.pi / 4 + np.pi / 2 * np.arange(4)
"""Where legs 1 to 4 point in the torso's frame."""
MIRROR = np.array([1.0, -1.0, -1.0, 1.0])
"""Ankles 2 and 3 turn about axes opposite to those of 1 and 4."""
PAIRS = np.array([1.0, -1.0, 1.0, -1.0])


def yaw(state: Float[Arr, " 29"]) -> float:
    """How far the torso is twisted about the vertical."""
    w, _, _, z = state[3:7]
    return float(2 * np.arctan2(z, w))


def uprightness(state: Float[Arr, " 29"]) -> float:
    """Cosine of the torso's tilt: 1 upright, -1 on its back."""
    _, x, y, _ = state[3:7]
    return float(1 - 2 * (x * x + y * y))


@dataclass(frozen=True)
class Walk:
    """How the ant walks; call it with a state and a direction to get an action."""

    frequency: float = 6.0
    """Radians per second, to weigh the ankles' velocities against their angles."""
    swing: float = 0.8
    """Sweep of a hip, in radians."""
    lift: float = 0.1
    """Lift of a foot, as an angle of the ankle."""
    reach: float = 0.3
    """Stretch of a leg that points along the direction, as an angle of the ankle."""
    bend: float = 0.9
    """Mean angle of the ankles."""
    lead: float = 0.4
    """How far the wanted phase is ahead of the one that is observed."""
    stiffness: float = 1.0
    """Share of the largest torque per radian off."""
    damping: float = 0.0
    """Share of the largest torque per radian per second."""
    turn: float = 0.3
    """How strongly the nearest side of the torso turns towards the direction."""
    phase: float = -0.8
    """Phase of the sweep relative to the lift."""

    def __call__(self, state: Float[Arr, " 29"], direction: Float[Arr, " 2"]) -> Float[Arr, " 8"]:
        """The action, in [-1, 1], that walks along `direction`, a vector in the plane."""
        joints, rates = state[7:15].reshape(4, 2), state[21:29].reshape(4, 2)
        ankle, ankle_rate = MIRROR * joints[:, 1], MIRROR * rates[:, 1]
        observed = np.arctan2(PAIRS @ (ankle - self.bend), PAIRS @ ankle_rate / self.frequency)
        phase = observed + self.lead + np.where(PAIRS > 0, 0.0, np.pi)
        off = yaw(state) - np.arctan2(direction[1], direction[0])
        legs = LEGS + off
        forward = -np.cos(phase + self.phase)  # from back to front while the foot is lifted
        hip_aim = -forward * (self.swing * np.sin(legs) + self.turn * np.sin(4 * off) / 4)
        ankle_aim = self.bend + self.lift * np.sin(phase) - self.reach * forward * np.cos(legs)
        hip_torque = self.stiffness * (hip_aim - joints[:, 0]) - self.damping * rates[:, 0]
        ankle_torque = MIRROR * (self.stiffness * (ankle_aim - ankle) - self.damping * ankle_rate)
        torques = np.stack([hip_torque, ankle_torque], 1).reshape(-1)
        return np.clip(np.roll(torques, 2), -1.0, 1.0)  # motors are in the order of legs 4, 1, 2, 3


WALK = Walk(
    frequency=6.14,
    swing=1.19,
    lift=0.079,
    reach=0.365,
    bend=0.88,
    lead=0.763,
    stiffness=1.876,
    damping=0.063,
    turn=0.485,
    phase=-1.182,
)

SPREAD = Walk(1.0, 0.2, 0.1, 0.1, 0.1, 0.2, 0.3, 0.03, 0.2, 0.3)
"""Standard deviations of the first candidates of the search, around the defaults of `Walk`."""
DIRECTIONS, STEPS, NOISE = 3, 50, 0.2
CANDIDATES, KEPT = 40, 8


def trial(walk: Walk, seed: int, noise: float = NOISE) -> float:
    """Score a walk: meters per second along three random directions, less half of the way to the side.

    A tilted torso costs too. Lying on its back ends the trial and costs half a meter per second.
    """
    from odice.envs.antmaze import AntEnv

    env, rng = AntEnv(), np.random.default_rng(seed)
    obs, _ = env.reset(seed=seed)
    total, tilted = 0.0, 0.0
    seconds = DIRECTIONS * STEPS * env.dt
    for angle in rng.uniform(-np.pi, np.pi, DIRECTIONS):
        along, start = np.array([np.cos(angle), np.sin(angle)]), obs[:2].copy()
        for _ in range(STEPS):
            env.simulate(walk(obs, along) + noise * rng.standard_normal(8))
            obs = env._get_obs()
            if uprightness(obs) < 0:
                return float(total / seconds - 0.5)
            tilted += max(0.0, 0.7 - uprightness(obs))
        moved = obs[:2] - start
        total += moved @ along - 0.5 * abs(moved @ [-along[1], along[0]])
    return float((total - 0.1 * tilted) / seconds)


def search(start: Walk, spread: Walk, rounds: int, trials: int, seed: int, report=print) -> Walk:
    """Cross-entropy search: keep the best of the candidates, draw the next ones around them."""
    rng = np.random.default_rng(seed)
    mean, width = np.array(astuple(start)), np.array(astuple(spread))
    for number in range(rounds):
        points = mean + width * rng.standard_normal((CANDIDATES, len(mean)))
        points[0] = mean
        points[:, 0] = np.abs(points[:, 0])
        seeds = rng.integers(2**31, size=trials)
        scores = np.array([np.mean([trial(Walk(*point), int(one)) for one in seeds]) for point in points])
        best = np.argsort(-scores)[:KEPT]
        mean = 0.3 * mean + 0.7 * points[best].mean(0)
        width = 0.3 * width + 0.7 * points[best].std(0) + 0.005
        report(f"round {number}: best {scores.max():.2f} m/s, kept {scores[best].mean():.2f}, mean {scores[0]:.2f}")
    return Walk(*mean.round(3).tolist())


def main() -> None:
    """Search in two passes, print the numbers, and what they give with seeds that the search did not see."""
    import argparse

    parser = argparse.ArgumentParser(prog="python -m odice.collection.planner.gait")
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    report = lambda line: print(line, flush=True)
    walk = search(Walk(), SPREAD, 40, 1, seed, report)  # many rounds of one trial per candidate: fast, but it falls
    print(walk)
    half = Walk(*(np.array(astuple(SPREAD)) / 2).tolist())
    walk = search(walk, half, 10, 4, seed + 1, report)  # few rounds of four trials per candidate
    print(walk)
    scores = [trial(walk, 10**9 + number) for number in range(50)]
    print(f"50 new trials: {np.mean(scores):.2f} m/s, standard deviation {np.std(scores):.2f}, least {min(scores):.2f}")


if __name__ == "__main__":
    main()
