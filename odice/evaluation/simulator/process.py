"""Evaluations in a process of their own, which can be ended whatever an environment does.

A simulator may hang inside `step`, where no Python code can interrupt it, or take its whole process with it. So the
environments of a run live in one worker that lasts as long as the run: it is told their name, makes them itself, and is
handed policies as arrays. Nothing is pickled. An episode's return is a function of the policy and its seed, so the
numbers are those of an evaluation in this process, bit for bit.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import select
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from odice.errors import OdiceError
from odice.evaluation.simulator.evaluate import Evaluation, Evaluator
from odice.evaluation.simulator.rollout import GivenUp
from odice.plugins import load_entry_points, load_plugins
from odice.policy.file import VECTORS, Layout
from odice.policy.policy import Policy

START_SECONDS = 300.0
"""To import a simulator and build an environment, on a busy machine."""
GRACE_SECONDS = 10.0
"""How much later than the limit that the worker keeps itself it is killed."""


class Unfit(Exception):
    """The worker cannot make the environments that this process has: they were registered here, and only here."""


class EvaluatorProcess:
    """The environments of an `Evaluator`, in a worker. `Unfit` if they can only be made in this process."""

    def __init__(self, evaluator: Evaluator, *, allow_import: bool, plugins: Sequence[str] = ()):
        self.env_id, self.reference = evaluator.env_id, evaluator.reference
        hello = {"env": self.env_id, "allow_import": allow_import, "plugins": list(plugins), "spec": evaluator.spec}
        (self._from, theirs_out), (theirs_in, self._to) = os.pipe(), os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "odice.evaluation.simulator.process", str(theirs_in), str(theirs_out)],
                pass_fds=(theirs_in, theirs_out),
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
                start_new_session=True,  # a terminal's Ctrl-C is for the run, which ends this worker itself
            )
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        weakref.finalize(self, _close, self._from, self._to)
        if "unfit" in (answer := self._ask(hello, b"", START_SECONDS)):
            self.close()
            raise Unfit(answer["unfit"])

    def __call__(self, policy: Policy, *, episodes: int, seed: int, max_seconds: float) -> Evaluation:
        """Run episodes as `Evaluator` does. `GivenUp` if they take too long or the worker is gone: make a new one
        then."""
        asked = {"episodes": episodes, "seed": seed, "max_seconds": max_seconds, "layout": policy.layout._asdict()}
        found = self._ask(asked, _packed(policy), max_seconds + GRACE_SECONDS)
        if "error" in found:
            raise (GivenUp if found["late"] else OdiceError)(found["error"])
        return Evaluation(
            env_id=self.env_id,
            returns=np.array(found["returns"], np.float64),
            lengths=np.array(found["lengths"], np.int64),
            seeds=np.array(found["seeds"], np.int64),
            reference=self.reference,
            seconds=found["seconds"],
            costs=None if found["costs"] is None else np.array(found["costs"], np.float64),
        )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def _ask(self, message: dict[str, Any], body: bytes, seconds: float) -> dict[str, Any]:
        try:
            _send(self._to, message, body)
            answer = _receive(self._from, time.monotonic() + seconds)
        except BrokenPipeError:
            answer = None
        except TimeoutError:
            self.close()
            raise GivenUp(f"{self.env_id} hangs: nothing came back for {seconds:g} s.") from None
        if answer is None:
            self._process.wait()
            raise GivenUp(f"{self.env_id} ended the process that it ran in ({_ending(self._process.returncode)}).")
        return answer[0]

    def close(self) -> None:
        """End the worker, whatever it does. Whoever waits for its answer gets `GivenUp`."""
        self._process.kill()
        self._process.wait()


def _close(*pipes: int) -> None:
    for pipe in pipes:
        os.close(pipe)


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


# --- messages ---------------------------------------------------------------------------------------------------------

_SIZES = struct.Struct("<QQ")  # of the JSON, and of the arrays behind it


def _send(pipe: int, message: dict[str, Any], body: bytes = b"") -> None:
    text = json.dumps(message).encode()
    data = memoryview(_SIZES.pack(len(text), len(body)) + text + body)
    while data:
        data = data[os.write(pipe, data) :]


def _receive(pipe: int, deadline: float | None = None) -> tuple[dict[str, Any], bytes] | None:
    """A message and its arrays; None if the other side is gone."""
    head = _read(pipe, _SIZES.size, deadline)
    if head is None:
        return None
    size, rest = _SIZES.unpack(head)
    text = _read(pipe, size, deadline)
    body = _read(pipe, rest, deadline)
    return None if text is None or body is None else (json.loads(text), body)


def _read(pipe: int, size: int, deadline: float | None) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise TimeoutError
        if not (some := os.read(pipe, min(1 << 20, size - len(found)))):
            return None
        found += some
    return bytes(found)


def _packed(policy: Policy) -> bytes:
    """The arrays of a policy, as an NPZ without pickles."""
    vectors = {name: array for name in VECTORS if (array := getattr(policy, name)) is not None}
    file = io.BytesIO()
    np.savez(file, **policy.tensors, **vectors)
    return file.getvalue()


def _unpacked(layout: dict[str, Any], body: bytes) -> Policy:
    with np.load(io.BytesIO(body), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    vectors = {name: arrays.pop(name, None) for name in VECTORS}
    return Policy(Layout(**{**layout, "sizes": tuple(layout["sizes"])}), arrays, **vectors)


# --- the worker -------------------------------------------------------------------------------------------------------


def main(commands: int, answers: int) -> None:
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    hello, _ = _receive(commands) or sys.exit()
    try:
        load_entry_points()
        load_plugins(hello["plugins"])
        evaluator = Evaluator(hello["env"], allow_import=hello["allow_import"])
    except Exception as error:
        return _send(answers, {"unfit": str(error)})
    if evaluator.spec is None or evaluator.spec != hello["spec"]:
        return _send(answers, {"unfit": "another environment has this name here"})
    _send(answers, {})
    while (asked := _receive(commands)) is not None:
        _send(answers, _evaluate(evaluator, *asked))


def _evaluate(evaluator: Evaluator, asked: dict[str, Any], body: bytes) -> dict[str, Any]:
    limit = asked["max_seconds"]
    with open(os.devnull, "w") as nowhere:
        # ends this process without Python's help, should the environment never give it a turn and nobody be left to
        # kill it
        faulthandler.dump_traceback_later(limit + GRACE_SECONDS, exit=True, file=nowhere)
        try:
            policy = _unpacked(asked["layout"], body)
            found = evaluator(policy, episodes=asked["episodes"], seed=asked["seed"], max_seconds=limit)
        except OdiceError as error:
            return {"error": str(error), "late": isinstance(error, GivenUp)}
        finally:
            faulthandler.cancel_dump_traceback_later()
    numbers = {name: getattr(found, name).tolist() for name in ("returns", "lengths", "seeds")}
    return {**numbers, "seconds": found.seconds, "costs": None if found.costs is None else found.costs.tolist()}


def _leave_with(parent: int) -> None:
    """End with the run, also if it was killed and this worker is busy."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
