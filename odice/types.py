"""The types that the packages share: transitions, batches, and what an algorithm is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from odice.errors import OdiceError

Metrics = dict[str, Float[Array, ""]]

COLUMNS = {
    "next_action": "the action that the log has at the next state; NaN where it has none",
    "cost": "what each step costs",
    "return_to_go": "the discounted return that followed in the log, in standard deviations from its mean",
    "credit": "what the step did for the return, without luck, in standard deviations from the mean",
}
"""What a batch may carry in addition to its transitions, one entry per row. An algorithm declares what it reads
(`odice.register(..., columns=...)`), and `data.columns` makes it."""


class Spec(NamedTuple):
    """What an algorithm must know of the data before it can build its networks.

    Continuous actions live in [-1, 1] here: `data.preprocess` maps an environment's bounds to that box and back.
    For discrete actions `action_dim` is the number of actions.
    """

    obs_dim: int
    action_dim: int
    discrete: bool = False


class Transitions(NamedTuple):
    """A flat data set on the device. Observations are stored once; row i goes from `obs[index[i]]` to
    `obs[next_index[i]]`.

    Where every row goes to the observation that follows, as in a log of episodes, `next_index` is None.
    """

    obs: Float[Array, "states obs"]
    index: Int[Array, " n"]  # pyright: ignore[reportIncompatibleMethodOverride]
    next_index: Int[Array, " n"] | None
    action: Float[Array, "n act"] | Int[Array, " n"]
    reward: Float[Array, " n"]
    terminated: Bool[Array, " n"]
    initial: Int[Array, " episodes"] | None = None
    """Where in `obs` the episodes start, for algorithms that ask for initial states."""
    expert: Int[Array, " m"] | None = None
    """Which rows are demonstrations, where there are other data too."""
    chosen: Int[Array, " k"] | None = None
    """Rows that the policy learns from, some of them several times, where those are not all rows alike."""
    columns: dict[str, Float[Array, "n ..."]] = {}
    """Further entries of each row, by name (`COLUMNS`)."""

    @property
    def size(self) -> int:
        return self.index.shape[0]

    def batch(self, rows: Int[Array, " b"]) -> Batch:
        """The transitions of these rows. Runs inside jit: gathers, no copies on the host."""
        index = self.index[rows]
        following = index + 1 if self.next_index is None else self.next_index[rows]
        return Batch(
            obs=self.obs[index],
            action=self.action[rows],
            reward=self.reward[rows],
            next_obs=self.obs[following],
            terminated=self.terminated[rows],
            columns={name: column[rows] for name, column in self.columns.items()},
        )


class Batch(NamedTuple):
    """One minibatch. `next_obs` of a terminated row is arbitrary and may only be used behind `mask`."""

    obs: Float[Array, "b obs"]
    action: Float[Array, "b act"] | Int[Array, " b"]
    reward: Float[Array, " b"]
    next_obs: Float[Array, "b obs"]
    terminated: Bool[Array, " b"]
    initial_obs: Float[Array, "b obs"] | None = None
    """First observations of episodes, drawn apart from the rows; None unless the algorithm reads them."""
    expert: Batch | None = None
    """As many transitions of the demonstrations alone, drawn apart; None unless the algorithm reads them."""
    chosen: Batch | None = None
    """As many transitions of those that the policy learns from, drawn apart; None where it learns from this batch."""
    columns: dict[str, Float[Array, "b ..."]] = {}
    """Further numbers of each row, by name (`COLUMNS`): those that the algorithm declares."""

    @property
    def mask(self) -> Float[Array, " b"]:
        """1 where the value of the next state counts, 0 at a true terminal."""
        return 1.0 - self.terminated.astype(self.reward.dtype)

    def column(self, name: str) -> Float[Array, "b ..."]:
        """A further entry of each row; an error says so where the batch has none of this name."""
        if name not in self.columns:
            has = ", ".join(self.columns) or "none"
            raise OdiceError(f"The batch has no column {name!r} (it has {has}): declare it with register(columns=...).")
        return self.columns[name]


class Acts(Protocol):
    """What acts: a pytree of arrays that can be saved as a policy."""

    def mode(self, obs: Float[Array, "*b obs"]) -> Array:
        """The deterministic action at each observation."""
        ...

    def deterministic(self) -> Any:
        """The network behind `mode`, as `core.policies.Deterministic` (a diffusion: `core.diffusion.Sampler`): what a
        policy file stores."""
        ...


class Algo(NamedTuple):
    """An algorithm: three pure functions that close over a frozen config and the data's `Spec`.

    The state is any pytree of arrays. The run, the policy file and the evaluation know nothing of it but
    `policy(state)`.
    """

    init: Callable[[PRNGKeyArray], Any]
    update: Callable[[Any, Batch, PRNGKeyArray], tuple[Any, Metrics]]
    policy: Callable[[Any], Acts]
    initial_states: bool = False
    """Whether `update` reads `Batch.initial_obs`."""
    expert: bool = False
    """Whether `update` reads `Batch.expert`."""

    def act(self, state: Any, obs: Float[Array, "*b obs"]) -> Array:
        """The deterministic action of a state's policy."""
        return self.policy(state).mode(obs)
