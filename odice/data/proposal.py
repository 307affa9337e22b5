"""What the columns of a table are proposed to mean, and the questions that a person may answer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from odice.data.expression import is_expression
from odice.errors import OdiceError, unknown_name

ROLES = (
    "episode",
    "step",
    "action",
    "propensity",
    "reward",
    "cost",
    "terminated",
    "outcome",
    "observation",
    "left out",
)
"""What a column may be; an outcome is reported and neither seen by the policy nor trained on."""


@dataclass(frozen=True)
class Role:
    """What one column is proposed as, and why."""

    column: str
    role: str
    reason: str
    sure: bool = True


@dataclass(frozen=True)
class Question:
    """What the table does not say for sure, with the answer that holds where nobody gives another."""

    text: str
    """The doubt, in a sentence."""
    about: str
    """A role, whose columns are the answer; a column, whose role is the answer; or `ends`, `incomplete`, `one_step`."""
    default: str = ""
    """Empty where there is none, so that somebody has to answer."""
    options: tuple[str, ...] = ()
    """The possible answers; empty where they are columns."""


@dataclass(frozen=True)
class Proposal:
    """Roles of every column of a table, in the order of the table."""

    roles: tuple[Role, ...]
    one_step: bool = False
    """Whether every row is an episode of its own."""
    complete: bool = False
    """Whether every episode is over at its last row."""
    skip_incomplete: bool = False
    """Whether episodes that lack an action, a reward or a cost are left out."""
    formula: str | None = None
    """The reward, where it is arithmetic of columns."""
    questions: tuple[Question, ...] = field(default=())

    @property
    def doubts(self) -> tuple[str, ...]:
        """The questions as sentences."""
        return tuple(question.text for question in self.questions)

    @property
    def reward(self) -> str | None:
        """The column of the reward, or its arithmetic."""
        return self.formula or next(iter(self.columns("reward")), None)

    def columns(self, role: str) -> tuple[str, ...]:
        """Return the columns that are proposed for a role."""
        return tuple(item.column for item in self.roles if item.role == role)

    def __getitem__(self, column: str) -> Role:
        return next(item for item in self.roles if item.column == column)

    def answered(self, question: Question, answer: str) -> Proposal:
        """Return the proposal with a person's answer to one of its questions.

        Args:
            question: One of `questions`.
            answer: One of its options, or the columns of the role with commas between them. The reward may be
                arithmetic of columns.
        """
        answer = answer.strip()
        rest = replace(self, questions=tuple(item for item in self.questions if item is not question))
        if question.options and answer not in question.options:
            raise unknown_name("answer", answer, question.options)
        if question.about == "ends":
            return replace(rest, complete=answer == "over")
        if question.about == "incomplete":
            return replace(rest, skip_incomplete=answer == "leave out")
        if question.about == "one_step":
            return replace(rest, one_step=answer == "yes")
        if question.about not in ROLES:
            return rest._with({question.about: answer})
        names = [item.column for item in self.roles]
        if question.about == "reward" and answer not in names and is_expression(answer):
            used = [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", answer)]
            seen = [name for name in used if self[name].role in ("observation", "reward")]
            return replace(rest._with(dict.fromkeys([*seen, *self.columns("reward")], "left out")), formula=answer)
        given = [part.strip() for part in answer.split(",") if part.strip()]
        for name in given:
            if name not in names:
                raise unknown_name("column", name, names)
        if not given:
            raise OdiceError(f"Name at least one column as the {question.about}.")
        before = dict.fromkeys(self.columns(question.about), "left out")
        formula = None if question.about == "reward" else self.formula
        return replace(rest._with({**before, **dict.fromkeys(given, question.about)}), formula=formula)

    def _with(self, roles: dict[str, str]) -> Proposal:
        changed: Iterable[Role] = (
            Role(item.column, roles[item.column], "as a person said") if item.column in roles else item
            for item in self.roles
        )
        return replace(self, roles=tuple(changed))
