"""Two environments on which learning takes seconds, and for which the return of a good policy can be computed.

| id                  | observation          | an episode ends                                               |
|---------------------|----------------------|---------------------------------------------------------------|
| `odice/LQR-v0`      | two numbers          | after 50 steps, always truncated                              |
| `odice/Parking-v0`  | position, velocity   | parked or off the road (terminated), or after 100 (truncated) |

**LQR**: a linear system that spirals outwards slowly, pushed along one axis, with a quadratic cost. The optimal gains
and returns follow from the Riccati recursion; the start is close enough to the origin that the optimal action never
meets its bounds, so they are exact. A score of 0 is what doing nothing earns, 100 the optimum.

**Parking**: a unit mass on a road, pushed by a force in [-1, 1], has to come to rest near the origin. Every step costs
1, and leaving the road costs more than any other episode, so that a terminal state can be good or bad. From rest at
distance d no force stops it at the origin in less than 2 sqrt(d) seconds, ten steps each.

`odice.envs.make.make("odice/LQR-v0")` makes them like any other Gymnasium environment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Float
from numpy import ndarray as Arr

LQR, PARKING = "odice/LQR-v0", "odice/Parking-v0"
HORIZON = {LQR: 50, PARKING: 100}


@dataclass(frozen=True, eq=False)
class LinearQuadratic:
    """x' = A x + B u at a cost of x'Qx + u'Ru per step, and what is known about it in closed form."""

    A: Float[Arr, "n n"] = field(
        default_factory=lambda: 1.02 * np.array([[np.cos(0.2), np.sin(0.2)], [-np.sin(0.2), np.cos(0.2)]])
    )
    B: Float[Arr, "n m"] = field(default_factory=lambda: np.array([[0.0], [0.2]]))
    Q: Float[Arr, "n n"] = field(default_factory=lambda: np.eye(2))
    R: Float[Arr, "m m"] = field(default_factory=lambda: np.eye(1))

    def step(self, x: Float[Arr, "*b n"], u: Float[Arr, "*b m"]) -> tuple[Float[Arr, "*b n"], Float[Arr, "*b"]]:
        """The next state and the cost."""
        cost = ((x @ self.Q) * x).sum(-1) + ((u @ self.R) * u).sum(-1)
        return x @ self.A.T + u @ self.B.T, cost

    def riccati(self, steps: int) -> tuple[Float[Arr, "steps m n"], Float[Arr, "n n"]]:
        """The optimal gains u_t = -K_t x_t for so many steps, and the matrix of their cost x_0' P x_0."""
        P, gains = np.zeros_like(self.Q), []
        for _ in range(steps):
            K = np.linalg.solve(self.R + self.B.T @ P @ self.B, self.B.T @ P @ self.A)
            P = self.Q + self.A.T @ P @ (self.A - self.B @ K)
            gains.append(K)
        return np.array(gains[::-1]), P

    def gain(self) -> Float[Arr, "m n"]:
        """The optimal gain for ever, which is the best policy that does not know the time."""
        return self.riccati(1000)[0][0]

    def cost(self, K: Float[Arr, "m n"], steps: int) -> Float[Arr, "n n"]:
        """The matrix of the cost x_0' S x_0 that u = -K x makes in so many steps."""
        closed, once = self.A - self.B @ K, self.Q + K.T @ self.R @ K
        S = np.zeros_like(self.Q)
        for _ in range(steps):
            S = once + closed.T @ S @ closed
        return S


class _Small(gymnasium.Env):
    """What both have in common: a state that is observed as it is, and one bounded push."""

    action_space = Box(-1.0, 1.0, (1,), np.float32)
    state: Float[Arr, " n"]

    def _get_obs(self) -> Float[Arr, " n"]:
        return self.state.astype(np.float32)


class LQREnv(_Small):
    """`odice/LQR-v0`: starts anywhere in a square around the origin."""

    START = 0.5
    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    system = LinearQuadratic()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-self.START, self.START, 2)
        return self._get_obs(), {}

    def step(self, action):
        self.state, cost = self.system.step(self.state, np.clip(action, -1.0, 1.0).astype(np.float64))
        return self._get_obs(), -float(cost), False, False, {}


class ParkingEnv(_Small):
    """`odice/Parking-v0`: starts at rest, away from the origin on either side."""

    DT, REST, ROAD, CRASH = 0.1, 0.1, 2.0, -200.0
    START = (0.3, 1.0)
    observation_space = Box(-np.inf, np.inf, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = np.array([self.np_random.uniform(*self.START) * self.np_random.choice([-1, 1]), 0.0])
        return self._get_obs(), {}

    def step(self, action):
        force, dt = float(np.clip(action[0], -1.0, 1.0)), self.DT
        x, v = self.state
        x, v = x + dt * v + dt**2 / 2 * force, v + dt * force  # exact for a force that is held
        self.state = np.array([x, v])
        parked, crashed = max(abs(x), abs(v)) < self.REST, abs(x) > self.ROAD
        return self._get_obs(), self.CRASH if crashed else -1.0, bool(parked or crashed), False, {}


@cache
def reference(name: str) -> tuple[float, float] | None:
    """Mean returns that count as 0 and 100, where they are known: doing nothing, and the optimum."""
    if name != LQR:
        return None
    system, steps = LQREnv.system, HORIZON[LQR]
    idle = system.cost(np.zeros((1, 2)), steps)
    variance = LQREnv.START**2 / 3  # of each coordinate of the start; the mean of x'Px is then variance * trace P
    return -variance * float(np.trace(idle)), -variance * float(np.trace(system.riccati(steps)[1]))


def register() -> None:
    """Register both with Gymnasium; a second call changes nothing."""
    for name, maker in ((LQR, LQREnv), (PARKING, ParkingEnv)):
        if name not in gymnasium.registry:
            gymnasium.register(name, f"{__name__}:{maker.__name__}", max_episode_steps=HORIZON[name])
