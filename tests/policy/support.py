"""A saved policy, and a way to change its description: what tests of policies' files share."""

import json
from pathlib import Path

import jax

from odice import Policy
from odice.core.policies import GaussianPolicy
from odice.data.preprocess import Fitted
from odice.files import sealed
from odice.types import Spec

FITTED = Fitted(
    obs_mean=(1.0, -2.0, 3.0, 0.5),
    obs_scale=(0.5, 2.0, 10.0, 1.0),
    action_low=(-2.0, 0.0),
    action_high=(2.0, 5.0),
    reward_scale=3.0,
)


def gaussian(**options) -> GaussianPolicy:
    return GaussianPolicy(jax.random.key(0), Spec(4, 2), (32, 32), **options)


def save_policy(folder: Path) -> Path:
    about = {"algorithm": "odice", "config": {"lam": 0.6, "clamp": float("inf")}, "data": {"fingerprint": "abc"}}
    policy = Policy.from_network(
        gaussian().deterministic(), FITTED, env_id="Hopper-v4", reference=(0, 10), scores={"mean": 1.5}, step=7, **about
    )
    policy.save(folder)
    return folder


def description(change):
    def apply(folder):
        content = json.loads((folder / "policy.json").read_text())
        change(content)
        (folder / "policy.json").write_text(json.dumps(sealed(content)))  # as somebody would who means it

    return apply
