"""What can be wrong with a log: one function per defect, each yields `Finding`s.

A check looks at numbers, never at the names of columns. `error` is for what is certain and makes training wrong,
`warning` for what is very likely a mistake, `note` for what a person should know. A false alarm costs trust, so every
threshold stands well away from what clean data show; the comment next to it says why.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from odice.jsonable import jsonable

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: what, where and how much, and what to do about it."""

    code: str
    severity: Severity
    message: str
    advice: str
    evidence: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; a number that is not finite becomes None."""
        return jsonable(asdict(self))
