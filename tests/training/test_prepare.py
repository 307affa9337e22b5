"""From data to what the loop needs."""

import numpy as np
import pytest

from odice.data.build import from_steps
from odice.data.meta import Meta
from odice.errors import OdiceError
from odice.training.prepare import prepare
from odice.training.settings import resolve


def pendulum(largest, **meta):
    rng, n = np.random.default_rng(0), 400
    actions = rng.uniform(-1, 1, (n, 1))
    actions[7] = largest
    flags = np.arange(n) % 20 == 19
    return from_steps(rng.normal(size=(n, 3)), actions, rng.normal(size=n), truncated=flags, meta=Meta(**meta))


@pytest.mark.parametrize(
    ("largest", "env", "known", "bounds"),
    [
        (1.5, "Pendulum-v1", {}, ((-2.0,), (2.0,))),
        (1.5, None, {"env_id": "Pendulum-v1"}, ((-2.0,), (2.0,))),
        (1.5, "Pendulum-v1", {"action_low": (-3.0,), "action_high": (3.0,)}, ((-3.0,), (3.0,))),
    ],
    ids=["given", "named by the data", "declared"],
)
def test_action_bounds_come_from_the_environment_where_the_data_declare_none(largest, env, known, bounds):
    prepared = prepare(resolve(pendulum(largest, **known), algo="bc", env=env))
    assert (prepared.fitted.action_low, prepared.fitted.action_high) == bounds
    assert np.max(prepared.source.action) == np.float32(largest / bounds[1][0])


@pytest.mark.parametrize(
    ("largest", "env", "known"), [(1.5, "none", {"env_id": "Pendulum-v1"}), (2.5, "Pendulum-v1", {})]
)
def test_actions_without_bounds_are_refused(largest, env, known):
    with pytest.raises(OdiceError, match=rf"action\[0\] reaches from -0\.9994 to {largest}, but no bounds are known"):
        prepare(resolve(pendulum(largest, **known), algo="bc", env=env))
