"""Evaluations in a process of their own, which can be ended whatever an environment does.

A simulator may hang inside `step`, where no Python code can interrupt it, or crash its process. So the environments of
a run live in a worker process that lasts as long as the run. It is a `subprocess` and not a `multiprocessing.Process`,
which would run a user's script again (`spawn`) or copy JAX's threads (`fork`). Messages are JSON and NPZ over a
`multiprocessing` connection; nothing is pickled. An episode's return is a function of the policy and its seed, so the
numbers are those of an evaluation in this process, bit for bit.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import numpy as np

from odice.errors import OdiceError
from odice.evaluation.simulator.evaluate import Evaluation, Evaluator
from odice.evaluation.simulator.rollout import EvaluationTimeout
from odice.plugins import load_entry_points, load_plugins
from odice.policy.file import VECTORS
from odice.policy.policy import Policy
from odice.policy.sampler import read_network

START_SECONDS = 300.0
"""Time to import a simulator and build an environment, on a busy machine."""
GRACE_SECONDS = 10.0
"""How long after the time limit, which the worker enforces itself, it is killed."""


class UnknownToWorker(Exception):
    """The worker cannot make the environments of this process: they are registered in this process only."""


class EvaluatorProcess:
    """The environments of an `Evaluator`, in a worker process.

    Raises:
        UnknownToWorker: if the environments can only be made in this process.
    """

    def __init__(self, evaluator: Evaluator, *, allow_import: bool, plugins: Sequence[str] = ()):
        self.env_id, self.reference = evaluator.env_id, evaluator.reference
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "odice.evaluation.simulator.process", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
                start_new_session=True,  # Ctrl-C in a terminal is for the run, which ends this worker itself
            )
        setup = {"env": self.env_id, "allow_import": allow_import, "plugins": list(plugins), "spec": evaluator.spec}
        answer = self._request(setup, START_SECONDS)
        if "refused" in answer:
            self.close()
            raise UnknownToWorker(answer["refused"])

    def __call__(self, policy: Policy, *, episodes: int, seed: int, max_seconds: float) -> Evaluation:
        """Run episodes as `Evaluator` does.

        Raises:
            EvaluationTimeout: if they take too long or the worker ended; a new worker is needed then.
        """
        request = {"episodes": episodes, "seed": seed, "max_seconds": max_seconds, "layout": policy.layout.describe()}
        answer = self._request(request, max_seconds + GRACE_SECONDS, _pack(policy))
        if "error" in answer:
            raise (EvaluationTimeout if answer["late"] else OdiceError)(answer["error"])
        return Evaluation(
            env_id=self.env_id,
            returns=np.array(answer["returns"], np.float64),
            lengths=np.array(answer["lengths"], np.int64),
            seeds=np.array(answer["seeds"], np.int64),
            reference=self.reference,
            seconds=answer["seconds"],
            costs=None if answer["costs"] is None else np.array(answer["costs"], np.float64),
        )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def _request(self, message: dict[str, Any], seconds: float, arrays: bytes = b"") -> dict[str, Any]:
        """Send a message, and return the answer."""
        try:
            _send(self._connection, message)
            if arrays:
                self._connection.send_bytes(arrays)
            if not self._connection.poll(seconds):
                self.close()
                raise EvaluationTimeout(f"{self.env_id} hangs: no answer for {seconds:g} s.")
            return json.loads(self._connection.recv_bytes())
        except (EOFError, ConnectionError, BrokenPipeError):
            self._process.wait()
            code = self._process.returncode
            ending = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise EvaluationTimeout(f"{self.env_id} ended the process that it ran in ({ending}).") from None

    def close(self) -> None:
        """Kill the worker. A thread that waits for its answer gets `EvaluationTimeout`."""
        self._process.kill()
        self._process.wait()


def _send(connection: Connection, message: dict[str, Any]) -> None:
    connection.send_bytes(json.dumps(message).encode())


def _pack(policy: Policy) -> bytes:
    """The arrays of a policy, as an NPZ without pickles."""
    vectors = {name: array for name in VECTORS if (array := getattr(policy, name)) is not None}
    file = io.BytesIO()
    np.savez(file, **policy.tensors, **vectors)
    return file.getvalue()


def _unpack(layout: dict[str, Any], arrays: bytes) -> Policy:
    with np.load(io.BytesIO(arrays), allow_pickle=False) as file:
        tensors = {name: file[name] for name in file.files}
    vectors = {name: tensors.pop(name, None) for name in VECTORS}
    return Policy(read_network(layout, _refuse), tensors, **vectors)


def _refuse(reason: str) -> NoReturn:
    raise OdiceError(f"The run sent no policy: {reason}.")


# --- the worker -------------------------------------------------------------------------------------------------------


def main(connection: Connection) -> None:
    """Make the environments, then answer requests until the run closes the connection."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        setup = json.loads(connection.recv_bytes())
        evaluator = _evaluator(connection, setup)
        while evaluator is not None:
            _send(connection, _evaluate(evaluator, json.loads(connection.recv_bytes()), connection.recv_bytes()))
    except (EOFError, ConnectionError):  # the run is over
        return


def _evaluator(connection: Connection, setup: dict[str, Any]) -> Evaluator | None:
    """Make the environments and answer whether they are those of the run."""
    try:
        load_entry_points()
        load_plugins(setup["plugins"])
        evaluator = Evaluator(setup["env"], allow_import=setup["allow_import"])
    except Exception as error:
        _send(connection, {"refused": str(error)})
        return None
    if evaluator.spec is None or evaluator.spec != setup["spec"]:
        _send(connection, {"refused": "another environment has this name in the worker"})
        return None
    _send(connection, {})
    return evaluator


def _evaluate(evaluator: Evaluator, request: dict[str, Any], arrays: bytes) -> dict[str, Any]:
    limit = request["max_seconds"]
    with open(os.devnull, "w") as null:
        # ends this process even if the environment never returns to Python and the run, which would kill it, is gone
        faulthandler.dump_traceback_later(limit + GRACE_SECONDS, exit=True, file=null)
        try:
            policy = _unpack(request["layout"], arrays)
            result = evaluator(policy, episodes=request["episodes"], seed=request["seed"], max_seconds=limit)
        except OdiceError as error:
            return {"error": str(error), "late": isinstance(error, EvaluationTimeout)}
        finally:
            faulthandler.cancel_dump_traceback_later()
    numbers = {name: getattr(result, name).tolist() for name in ("returns", "lengths", "seeds")}
    return {**numbers, "seconds": result.seconds, "costs": None if result.costs is None else result.costs.tolist()}


def _end_with(parent: int) -> None:
    """End with the run, also if it was killed and this worker is busy."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
