"""Random data sets for the property tests: small, but with every oddity that the formats must survive."""

import numpy as np
from hypothesis import strategies as st

from odice.data.build import from_episodes
from odice.data.dataset import Dataset, Episode
from odice.data.meta import Meta


@st.composite
def datasets(draw, min_episodes: int = 1) -> Dataset:
    """Discrete or continuous, 1-step episodes, both flags at once, unknown finals, NaN and inf, metadata or none."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lengths = draw(st.lists(st.integers(1, 6), min_size=min_episodes, max_size=5))
    obs_dim, discrete = draw(st.integers(1, 12)), draw(st.booleans())
    n_actions = draw(st.integers(1, 5))
    episodes = []
    for length in lengths:
        terminated, truncated = draw(st.sampled_from([(True, False), (False, True), (True, True)]))
        actions = rng.integers(0, n_actions, length) if discrete else rng.normal(size=(length, n_actions))
        observations = rng.normal(size=(length + 1, obs_dim)).astype(np.float32)
        observations[rng.random(observations.shape) < 0.05] = draw(st.sampled_from([np.nan, np.inf, -0.0, 1e-42]))
        known = draw(st.booleans())
        observations = observations if known else observations[:length]
        rewards = rng.normal(size=length)
        episodes.append(Episode(observations, actions, rewards, terminated, truncated, known))
    bounds = (-2.0,) * n_actions, (2.0,) * n_actions
    meta = Meta(
        source="drawn",
        env_id=draw(st.sampled_from([None, "Hopper-v5", "nobody/knows-this-v0"])),
        action_low=None if discrete else bounds[0],
        action_high=None if discrete else bounds[1],
        n_actions=n_actions + draw(st.integers(0, 2)) if discrete else None,
        ref_min=draw(st.sampled_from([None, -1.5])),
        ref_max=draw(st.sampled_from([None, 20.25])),
        obs_layout=draw(st.sampled_from([None, (("goal", 1), ("rest", obs_dim - 1))])) if obs_dim > 1 else None,
        history=draw(st.sampled_from([(), ("first 3 of 4 steps",)])),
    )
    return from_episodes(episodes, meta=meta)
