"""Small worlds that are simulated on the spot: realistic, clean data in which the doctor must find nothing.

Each returns step arrays for `odice.data.build.from_steps`; tests plant one defect in a copy of them.
"""

import numpy as np
import pytest


def _collect(rng, episodes, limit, reset, step):
    """Episodes of at most `limit` steps; `step(state, rng) -> (obs, action, reward, next state, terminated)`."""
    rows = {
        key: []
        for key in ("observations", "actions", "rewards", "terminated", "truncated", "episode", "next_observations")
    }
    for e in range(episodes):
        state = reset(rng)
        for t in range(limit):
            obs, action, reward, state, ended = step(state, rng)
            values = (obs(), action, reward, ended, t == limit - 1 and not ended, e, obs(state))
            for key, value in zip(rows, values, strict=True):
                rows[key].append(value)
            if ended:
                break
    return {key: np.array(value) for key, value in rows.items()}


def linear(seed=0, episodes=60, limit=200):
    """A noisy mass on a spring with a drifting load, under a noisy linear controller; ends if it swings out too far."""
    a = np.array([[1.0, 0.05, 0, 0], [-0.15, 0.99, 0.02, 0], [0, 0, 0.98, 0.05], [0, 0, -0.05, 0.98]])

    def step(x, rng):
        u = np.clip(-0.5 * x[1] + 1.5 * rng.normal(), -1, 1)
        new = a @ x + np.array([0, 0.15, 0, 0.02]) * u + 0.01 * rng.normal(size=4)
        reward = -(x[0] ** 2) - 0.1 * u**2
        return (lambda s=x: s), [u], reward, new, bool(abs(new[0]) > 0.62)

    return _collect(np.random.default_rng(seed), episodes, limit, lambda rng: rng.normal(size=4) * 0.1, step)


def pendulum(seed=0, episodes=40, limit=150, discrete=False, raw_angle=False):
    """A torque-limited pendulum that never terminates; a raw angle wraps at pi, which is not a jump."""

    def obs_of(s):
        return np.array(
            [(s[0] + np.pi) % (2 * np.pi) - np.pi, s[1]] if raw_angle else [np.cos(s[0]), np.sin(s[0]), s[1]]
        )

    def step(s, rng):
        torque = rng.integers(3) if discrete else np.clip(np.sign(s[1]) + rng.normal(), -2, 2)
        force = 2.0 * (torque - 1) if discrete else torque
        speed = np.clip(s[1] + (15 * np.sin(s[0]) + 3 * force) * 0.05, -8, 8)
        angle = (s[0] + np.pi) % (2 * np.pi) - np.pi
        reward = -(angle**2) - 0.1 * s[1] ** 2 - 0.001 * force**2
        new = np.array([s[0] + speed * 0.05, speed])
        return (lambda x=s: obs_of(x)), torque if discrete else [torque], reward, new, False

    reset = lambda rng: rng.uniform([-np.pi, -1], [np.pi, 1])
    return _collect(np.random.default_rng(seed), episodes, limit, reset, step)


def cartpole(seed=0, episodes=120, limit=200):
    """Two actions, reward 1 for every step, ends when the pole falls: lengths vary a lot and some reach the limit."""

    def step(s, rng):
        good = s[2] + 0.5 * s[3] + 0.1 * s[1] > 0
        action = int(good if rng.random() < 0.6 else rng.integers(2))
        force = 10.0 if action else -10.0
        _, v, th, w = s
        temp = (force + 0.05 * w**2 * np.sin(th)) / 1.1
        acc = (9.8 * np.sin(th) - np.cos(th) * temp) / (0.5 * (4 / 3 - 0.1 * np.cos(th) ** 2 / 1.1))
        new = s + 0.02 * np.array([v, temp - 0.05 * acc * np.cos(th) / 1.1, w, acc])
        return (lambda y=s: y), action, 1.0, new, bool(abs(new[2]) > 0.21 or abs(new[0]) > 2.4)

    return _collect(np.random.default_rng(seed), episodes, limit, lambda rng: rng.uniform(-0.05, 0.05, 4), step)


def goal(seed=0, episodes=80, limit=60):
    """A ball walks to a corner: reward 1 and the end of the episode on arrival, else 0; some run out of time."""

    def step(s, rng):
        pull = np.array([1.0, 1.0]) - s[:2]
        u = np.clip(4 * pull / (np.linalg.norm(pull) + 0.1) + 3 * rng.normal(size=2), -1, 1)
        velocity = 0.8 * s[2:] + 0.03 * u
        new = np.concatenate([s[:2] + velocity * 0.35, velocity])
        arrived = bool(np.linalg.norm(new[:2] - 1) < 0.15)
        return (lambda y=s: y), u, float(arrived), new, arrived

    reset = lambda rng: np.concatenate([rng.uniform(-1, 0, 2), np.zeros(2)])
    return _collect(np.random.default_rng(seed), episodes, limit, reset, step)


def contacts(seed=0, episodes=60, limit=200):
    """A bouncing ball with a spin: velocities jump at every contact with the floor, positions never do."""

    def step(s, rng):
        z, v, x, u, spin = s
        thrust = np.clip(0.5 + rng.normal(), -1, 1)
        v, z = v + (-9.8 + 3 * thrust) * 0.02, z + v * 0.02
        if z < 0:
            z, v, u, spin = -z, -0.95 * v + 0.6, u + 0.5 * spin + rng.normal() * 0.3, -0.6 * spin + rng.normal()
        new = np.array([z, v, x + u * 0.02, 0.98 * u, spin])
        return (lambda y=s: y), [thrust], z - 0.01 * thrust**2, new, bool(abs(new[2]) > 1.5)

    reset = lambda rng: np.array([1 + 0.2 * rng.random(), 0, 0, rng.normal() * 0.5, rng.normal()])
    return _collect(np.random.default_rng(seed), episodes, limit, reset, step)


def grid(seed=0, episodes=100, limit=60):
    """A 12 x 12 grid: whole-number observations, four actions, a reward of 1 in the corner. Short paths may repeat."""
    moves = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])

    def step(s, rng):
        action = int(rng.integers(2) if rng.random() < 0.7 else rng.integers(4))
        new = np.clip(s + moves[action], 0, 11)
        arrived = bool((new == 11).all())
        return (lambda y=s: y), action, float(arrived), new, arrived

    return _collect(np.random.default_rng(seed), episodes, limit, lambda rng: rng.integers(0, 6, 2), step)


WORLDS = {
    "linear": linear,
    "pendulum": pendulum,
    "pendulum-discrete": lambda seed=0, **k: pendulum(seed, discrete=True, **k),
    "pendulum-raw-angle": lambda seed=0, **k: pendulum(seed, raw_angle=True, **k),
    "cartpole": cartpole,
    "goal": goal,
    "contacts": contacts,
    "grid": grid,
}


@pytest.fixture(scope="session")
def simulate():
    """`simulate(name, seed=0, **options)` -> step arrays, each made once per session and handed out as copies."""
    made = {}

    def get(name, **options):
        key = (name, *sorted(options.items()))
        if key not in made:
            made[key] = WORLDS[name](**options)
        return {k: v.copy() for k, v in made[key].items()}

    return get
