"""The random worlds that the algorithms are compared on: lotteries, a corridor, an inventory, a hospital and others.

The truth of each is computed (`odice.experiments.world`), not estimated.
"""

from __future__ import annotations

import numpy as np

from odice.experiments.world import ENDS, REDRAW, World


def _contexts(n: int, width: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, width))


def _noisy(actions: np.ndarray, n: int, noise: float) -> np.ndarray:
    """Agents who take these actions, and any action at all with probability `noise`."""
    return (1 - noise) * np.eye(n)[actions] + noise / n


def lottery(name: str, chance: float, prize: float, sure: float) -> World:
    """One decision: action 0 pays `sure`, action 1 `prize` with probability `chance`; half of the log chose each.

    The contexts that are observed mean nothing.
    """
    n = 1024
    probability = np.broadcast_to([[1.0, 0.0], [chance, 1 - chance]], (n, 2, 2))
    reward = np.broadcast_to([[sure, 0.0], [prize, 0.0]], (n, 2, 2))
    return World(
        name,
        _contexts(n, 3, seed=1),
        probability,
        reward,
        np.full((n, 2, 2), ENDS),
        agents=(np.full((n, 2), 0.5),),
        episodes=6000,
        summary=f"sure {sure:g} or {chance:g} x {prize:g}",
    )


def corridor() -> World:
    """Twenty doors: take 0.6, or gamble on 1.5 with odds that are seen and change from door to door."""
    odds = np.array([0.2, 0.3, 0.5, 0.6])
    probability = np.stack([np.tile([1.0, 0.0], (4, 1)), np.stack([odds, 1 - odds], axis=1)], axis=1)
    reward = np.broadcast_to([[0.6, 0.0], [1.5, 0.0]], (4, 2, 2))
    return World(
        "corridor",
        odds[:, None],
        probability,
        reward,
        np.full((4, 2, 2), REDRAW),
        agents=(np.full((4, 2), 0.5),),
        horizon=20,
        episodes=300,
        summary="20 doors, a sure 0.6 or odds of 1.5",
    )


def inventory() -> World:
    """Thirty weeks of one article: order 0 to 12, demand is Poisson of 5, the shelf holds 20.

    Three buyers with their own order-up-to level wrote the log; orders are amounts (continuous actions).
    """
    size, most, demand = 21, 12, np.arange(16)
    chance = np.exp(-5.0) * np.cumprod(np.r_[1.0, 5.0 / np.arange(1, 16)])
    chance /= chance.sum()
    stock, order = np.arange(size)[:, None, None], np.arange(most + 1)[None, :, None]
    filled = np.minimum(stock + order, size - 1)
    sold = np.minimum(filled, demand)
    left = filled - sold
    reward = 4.0 * sold - 2.0 * (filled - stock) - 0.4 * left - 1.0 * (demand - sold)
    agents = []
    for level in (4, 9, 16):
        wanted = np.clip(level - np.arange(size), 0, most)
        near = np.exp(-0.5 * np.square((np.arange(most + 1) - wanted[:, None]) / 1.5))
        agents.append(0.9 * near / near.sum(axis=1, keepdims=True) + 0.1 / (most + 1))
    return World(
        "inventory",
        stock[:, :, 0] / 5.0 - 2.0,
        np.broadcast_to(chance, left.shape),
        reward,
        left,
        agents=tuple(agents),
        shares=(0.35, 0.35, 0.3),
        horizon=30,
        levels=np.arange(most + 1.0),
        episodes=250,
        summary="30 weeks of orders, Poisson demand, three buyers",
    )


def hospital() -> World:
    """Stays of at most 15 days whose deaths are mostly chance; wait, treat, or treat hard, which is a risk by itself.

    Severity 1 to 8 moves by one; 0 is recovery (+1). Two kinds of physicians, one of them cautious.
    """
    n = 8
    severity = np.arange(1, n + 1)
    probability, reward, after = np.zeros((n, 3, 4)), np.zeros((n, 3, 4)), np.zeros((n, 3, 4), int)
    better = np.stack([0.25 - 0.01 * severity, 0.40 - 0.015 * severity, 0.38 + 0.02 * severity], axis=1)
    death = np.stack([0.008 + 0.008 * severity] * 3, axis=1) + np.array([0.0, 0.004, 0.03])
    worse = np.stack([0.25 + 0.01 * severity, np.full(n, 0.22), np.full(n, 0.18)], axis=1)
    for s in range(n):
        for a in range(3):
            probability[s, a] = better[s, a], worse[s, a], death[s, a], 1 - better[s, a] - worse[s, a] - death[s, a]
            reward[s, a] = (1.0 if s == 0 else 0.0), 0.0, -1.0, 0.0
            after[s, a] = s - 1 if s else ENDS, min(s + 1, n - 1), ENDS, s
    cautious = _noisy(np.where(severity > 6, 1, 0), 3, 0.4)
    eager = _noisy(np.where(severity > 3, 2, 1), 3, 0.4)
    return World(
        "hospital",
        severity[:, None] / 4.0 - 1.0,
        probability,
        reward,
        after,
        agents=(cautious, eager),
        shares=(0.5, 0.5),
        horizon=15,
        start=np.array([0, 0.1, 0.2, 0.3, 0.2, 0.1, 0.1, 0]),
        episodes=900,
        summary="stays whose deaths are mostly chance",
    )


def bandit() -> World:
    """Fifty arms, each with its own prize and its own chance of it; the log pulls all of them, the dear ones more."""
    n, arms = 256, 50
    rng = np.random.default_rng(3)
    mean, chance = rng.uniform(0.2, 0.8, arms), rng.choice([0.05, 0.1, 0.3, 0.6, 1.0], arms)
    prize = mean / chance
    pulls = np.exp(0.3 * rng.normal(size=arms) + 0.2 * np.log(prize))
    probability = np.broadcast_to(np.stack([chance, 1 - chance], axis=1), (n, arms, 2))
    reward = np.broadcast_to(np.stack([prize, np.zeros(arms)], axis=1), (n, arms, 2))
    return World(
        "bandit",
        _contexts(n, 2, seed=2),
        probability,
        reward,
        np.full((n, arms, 2), ENDS),
        agents=(np.broadcast_to(pulls / pulls.sum(), (n, arms)),),
        episodes=10_000,
        summary="50 arms with prizes of different luck",
    )


def dosing() -> World:
    """Eight visits; each patient has a best dose of 2 to 6, and luck grows with the dose (a rare large success).

    Doses are amounts from 0 to 10 (continuous actions).
    """
    n, levels, chance = 256, np.linspace(0.0, 10.0, 101), 0.1
    seen = _contexts(n, 2, seed=4)
    best = 4.0 + 2.0 * np.tanh(seen[:, 0] + 0.5 * seen[:, 1])
    effect = 1.0 - np.square((levels - best[:, None]) / 3.0)
    luck = 0.3 * levels / np.sqrt(chance * (1 - chance))  # so that the standard deviation is 0.3 per unit of dose
    reward = np.stack([effect + luck * (1 - chance), effect - luck * chance], axis=2)
    usual = np.exp(-0.5 * np.square((levels - (0.5 * best[:, None] + 2.5)) / 1.8))
    return World(
        "dosing",
        seen,
        np.broadcast_to([chance, 1 - chance], reward.shape),
        reward,
        np.full(reward.shape, REDRAW),
        agents=(usual / usual.sum(axis=1, keepdims=True),),
        horizon=8,
        levels=levels,
        episodes=800,
        summary="doses whose luck grows with the amount",
    )


def grid() -> World:
    """A grid of 7 x 7 without any chance, and three agents of different skill: the return tells them apart.

    Each step costs 0.05 and the far corner pays 1; three walls of fire cost 0.5.
    """
    size, moves = 7, ((1, 0), (0, 1), (-1, 0), (0, -1))
    cells = [(x, y) for x in range(size) for y in range(size)]
    fire = {(2, 1), (2, 2), (4, 4), (4, 5), (5, 2)}
    after, reward = np.zeros((len(cells), 4, 1), int), np.zeros((len(cells), 4, 1))
    for s, (x, y) in enumerate(cells):
        for a, (dx, dy) in enumerate(moves):
            to = min(max(x + dx, 0), size - 1), min(max(y + dy, 0), size - 1)
            goal = to == (size - 1, size - 1)
            after[s, a, 0] = ENDS if goal else cells.index(to)
            reward[s, a, 0] = -0.05 + 1.0 * goal - 0.5 * (to in fire)
    start = np.zeros(len(cells))
    start[[cells.index((0, y)) for y in range(4)]] = 0.25
    toward = np.array([0 if x < size - 1 and (y == size - 1 or (x + y) % 2) else 1 for x, y in cells])
    draft = World("", np.array(cells, float), np.ones(after.shape), reward, after, (), horizon=30, start=start)
    good = draft.best_table[0].argmax(axis=1)
    return World(
        "grid",
        np.array(cells, float) / 3.0 - 1.0,
        np.ones(after.shape),
        reward,
        after,
        agents=(_noisy(toward, 4, 0.9), _noisy(toward, 4, 0.4), _noisy(good, 4, 0.15)),
        shares=(0.5, 0.3, 0.2),
        horizon=30,
        start=start,
        episodes=400,
        summary="a grid without chance, three agents of different skill",
    )


WORLDS: dict[str, World] = {
    world.name: world
    for world in (
        lottery("lottery-30", 0.3, 1.5, 0.6),
        lottery("lottery-20", 0.2, 3.0, 0.8),
        lottery("lottery-10", 0.1, 5.0, 0.8),
        lottery("lottery-05", 0.05, 10.0, 0.8),
        corridor(),
        inventory(),
        hospital(),
        bandit(),
        dosing(),
        grid(),
    )
}
"""Every world by name."""
