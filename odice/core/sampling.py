"""The rows of a batch, a pure function of (seed, step).

So a resumed run sees the batches an uninterrupted one would have seen, and N seeds under one `vmap` see the batches of
N separate runs.
"""

from __future__ import annotations

import jax
from jaxtyping import Array, Int, PRNGKeyArray


def seed_keys(seed: int | Int[Array, ""]) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """The two streams of a seed: one initializes the networks, the other drives the updates."""
    init_key, loop_key = jax.random.split(jax.random.key(seed))
    return init_key, loop_key


def step_keys(loop_key: PRNGKeyArray, step: Int[Array, ""]) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """The keys of one update: for its batch rows, and for the algorithm's own randomness."""
    rows_key, update_key = jax.random.split(jax.random.fold_in(loop_key, step))
    return rows_key, update_key


def sample_rows(rows_key: PRNGKeyArray, batch_size: int, size: int | Int[Array, ""]) -> Int[Array, " b"]:
    """Draw row numbers uniformly, with replacement."""
    return jax.random.randint(rows_key, (batch_size,), 0, size)


def sample_batches(
    loop_key: PRNGKeyArray, steps: Int[Array, " k"], batch_size: int, size: int | Int[Array, ""]
) -> Int[Array, "k b"]:
    """The rows of the batches of these steps."""
    return jax.vmap(lambda step: sample_rows(step_keys(loop_key, step)[0], batch_size, size))(steps)


def sample_apart(
    loop_key: PRNGKeyArray, steps: Int[Array, " k"], batch_size: int, size: int, stream: int
) -> Int[Array, "k b"]:
    """Further draws for the batches of these steps, independent of their rows and of every other `stream`.

    Args:
        loop_key: The key of the updates (`seed_keys`).
        steps: The steps of the batches.
        batch_size: Draws for each batch.
        size: The draws are numbers below this.
        stream: `INITIAL`, `EXPERT` or `CHOSEN`.
    """

    def one(step):
        return sample_rows(jax.random.fold_in(step_keys(loop_key, step)[0], stream), batch_size, size)

    return jax.vmap(one)(steps)


INITIAL, EXPERT, CHOSEN = 1, 2, 3
"""Streams of `sample_apart`: numbers of episodes, whose first observations go with a batch; of demonstrations; and of
rows that the policy learns from."""
