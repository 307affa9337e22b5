"""A policy behind HTTP: rows in, decisions out, and a log of every decision.

    pip install ./packaging/policy -r examples/serve/requirements.txt
    POLICY=runs/a/policy/last LOG=decisions.jsonl FALL_BACK=wait uvicorn app:app --app-dir examples/serve --port 8000
    curl localhost:8000/decide -H 'content-type: application/json' -d '{"rows": [{"age": 71, "ward": "north"}]}'

Every decision is in the log before it is answered. On SIGTERM the server takes no new requests, answers those it has,
and leaves. `table.py` turns the log into a table for `odice trial`, `drift.py` compares it with the training data.

Variables: POLICY (the policy's folder), LOG (a file), FALL_BACK (what to do where the policy should not be followed:
the name of a choice, or JSON; without it the answer there has no action).
"""

import itertools
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import numpy as np
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, FiniteFloat

from odice.encoding import encode
from odice.errors import OdiceError
from odice.policy import Policy

MOST_ROWS = 1_000
MOST_BYTES = 4 << 20
"""Of a request: every row is kept in the log, whatever else it holds."""


class Rows(BaseModel):
    """What to decide: rows of the table that the policy was learned from, or lists of numbers."""

    rows: list[dict[str, Any] | list[float]] = Field(min_length=1, max_length=MOST_ROWS)
    episode: str | None = None
    """Who the decisions are for (a patient, a customer): steps of one episode stand together in the log."""


class Outcome(BaseModel):
    """What came of a decision."""

    id: str
    reward: FiniteFloat
    ended: bool = False


class Service:
    """A policy, its fall-back and its log."""

    def __init__(self, policy: Policy, log: str, fall_back: str | None):
        self.policy = policy
        self.fall_back = None if fall_back is None else self._action(fall_back)
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._prefix, self._numbers = f"{time.time_ns():x}", itertools.count()

    def _action(self, text: str) -> Any:
        """The fall-back, if it is an action of this policy."""
        if self.policy.choices:
            if text not in self.policy.choices:
                raise SystemExit(f"FALL_BACK is {text!r}; the choices are {', '.join(self.policy.choices)}.")
            return text
        return json.loads(text)

    def decide(self, row: Mapping[str, Any] | list[float]) -> dict[str, Any]:
        """The action, how unlike the training data the row is, what to do, and why."""
        reason: list[str] = []
        try:
            obs = encode(self.policy.columns, row) if isinstance(row, Mapping) else np.asarray(row, np.float32)
            if self.policy.guard is None:
                action, novelty, decision = self.policy(obs), None, "act"
            else:
                action, novelty, decision = self.policy.guarded(obs)
                novelty, reason = float(novelty), self.policy.guard.explain(obs) if decision != "act" else []
            action = self.name(action)
        except OdiceError as error:  # a word it does not know, a missing value, a number that is not finite
            action, novelty, decision, reason = None, None, "fall back", [str(error)]
        if decision == "fall back":
            action = self.fall_back
        return {"action": action, "novelty": novelty, "decision": decision, "reason": reason}

    def name(self, action: np.ndarray) -> Any:
        return self.policy.choices[int(action)] if self.policy.choices else np.asarray(action).tolist()

    def new_id(self) -> str:
        return f"{self._prefix}-{next(self._numbers)}"

    def write(self, entries: list[dict[str, Any]]) -> None:
        """One system call for all lines: they are in the file, or the request fails."""
        text = "".join(json.dumps(entry, allow_nan=False) + "\n" for entry in entries).encode()
        if os.write(self._log, text) != len(text):
            raise OSError("the log could not be written")


service = Service(
    Policy.load(os.environ["POLICY"]), os.environ.get("LOG", "decisions.jsonl"), os.environ.get("FALL_BACK")
)
app = FastAPI(title="odice policy")


@app.middleware("http")
async def limit(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Refuse what is too long, or does not say how long it is, before it is read."""
    size = request.headers.get("content-length", "" if "transfer-encoding" in request.headers else "0")
    if not size.isdecimal() or int(size) > MOST_BYTES:
        return JSONResponse({"detail": f"a request has a Content-Length of at most {MOST_BYTES:,} bytes"}, 413)
    return await answer(request)


@app.exception_handler(RequestValidationError)
async def refuse(_: Request, error: RequestValidationError) -> Response:
    """What is wrong and where, without what was sent: JSON cannot say NaN."""
    return JSONResponse({"detail": [{name: each[name] for name in ("loc", "msg")} for each in error.errors()]}, 422)


@app.get("/health")
async def health() -> dict[str, Any]:
    about = service.policy.about
    columns = [column["name"] for column in service.policy.columns]
    return {"policy": repr(service.policy), "columns": columns, "health": about.get("health", {}).get("verdict")}


@app.post("/decide")
async def decide(body: Rows) -> list[dict[str, Any]]:
    answers = [{"id": service.new_id(), **service.decide(row)} for row in body.rows]
    now = time.time()
    known = {"time": now, "episode": body.episode}
    try:
        service.write([{**known, **answer, "row": row} for row, answer in zip(body.rows, answers, strict=True)])
    except ValueError:
        raise HTTPException(422, "a row holds a number that is not finite") from None
    return answers


@app.post("/outcome")
async def outcome(body: Outcome) -> dict[str, bool]:
    service.write([{"time": time.time(), "id": body.id, "reward": body.reward, "ended": body.ended}])
    return {"logged": True}
