"""A Ray cluster by its address. Ray is imported when a command names one."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

from odice.errors import OdiceError

ANSWER_SECONDS = 30.0
"""How long a cluster may take to answer."""


def import_ray() -> Any:
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise OdiceError("--ray needs Ray; install it with: pip install 'odice[ray]'") from None
    return ray


def connect(ray: Any, address: str, stack: ExitStack) -> None:
    """Connect to the cluster until the stack is closed; one sentence if it does not answer."""
    if ray.is_initialized():  # by the program that called us
        return
    check_address(address)
    check_answer(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise OdiceError(f"--ray {address}: no cluster answers there ({str(error)[:200]}).") from error
    stack.callback(ray.shutdown)


def check_address(address: str, seconds: float = ANSWER_SECONDS) -> None:
    """Refuse the address of a cluster where nothing listens; Ray itself would try for five minutes."""
    host, colon, port = address.rpartition("://")[2].partition("/")[0].rpartition(":")
    if not colon:  # `auto`, `local`: Ray finds the cluster of this machine, or says at once that there is none
        return
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise OdiceError(f"--ray {address}: the port is not a number; give HOST:PORT, or `auto` on a node.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except OSError as error:
        raise OdiceError(
            f"--ray {address}: no cluster answers there ({error}); start one with `ray start --head --port {port}`, or "
            "correct the address."
        ) from None


def check_answer(address: str, seconds: float = ANSWER_SECONDS) -> None:
    """Refuse an address where something listens that is no cluster: a process of its own tries, because Ray would try
    for minutes, and cannot be interrupted."""
    script = "import sys, ray; print(flush=True)\nray.init(sys.argv[1], log_to_driver=False, logging_level='error')"
    child = subprocess.Popen(
        [sys.executable, "-c", script, address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.readline()  # Ray is imported
    try:
        said = child.communicate(timeout=seconds)[1].strip().splitlines()
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise OdiceError(
            f"--ray {address}: something listens there, but no cluster has answered within {seconds:.0f} s; is it the "
            "port of `ray start --head` (6379 by default)?"
        ) from None
    if child.returncode:
        why = said[-1][:200] if said else "no reason given"
        raise OdiceError(f"--ray {address}: no cluster answers there ({why}).")
