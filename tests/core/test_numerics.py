"""Against loops."""

import numpy as np

from odice.core.numerics import nearest, returns_to_go


def test_returns_to_go():
    rng = np.random.default_rng(0)
    lengths = np.array([3, 1, 7, 7, 2])
    rewards = rng.normal(size=lengths.sum()).astype(np.float32)
    expected, at = [], 0
    for length in lengths:
        own = rewards[at : at + length].astype(np.float64)
        expected += [sum(0.9**k * r for k, r in enumerate(own[t:])) for t in range(length)]
        at += length
    np.testing.assert_allclose(returns_to_go(rewards, lengths, 0.9), expected, rtol=1e-12)


def test_nearest(monkeypatch):
    monkeypatch.setattr("odice.core.numerics.ROWS", 3)
    rng = np.random.default_rng(0)
    points, known = rng.normal(size=(10, 2)), rng.normal(size=(30, 2))
    for point, rows in zip(points, nearest(points, known, 4), strict=True):
        distance = [float(np.hypot(*(point - other))) for other in known]
        assert set(rows) == set(np.argsort(distance)[:4])
