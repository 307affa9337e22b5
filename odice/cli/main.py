"""`odice COMMAND ...`: finds the command's module, imports only that one, and turns bad input into one sentence."""

import gc
import shutil
import sys
import textwrap
from importlib import import_module

from odice import __version__
from odice.errors import OdiceError, exit_code, unknown_name

# command -> what it does, in the order of a user's way through them; the module is odice.cli.<command>
COMMANDS = {
    "data": "check a data set, write its schema, convert it, collect one",
    "train": "learn a policy from a data set, or continue a run",
    "sweep": "train every combination of data, algorithms, settings and seeds",
    "suite": "make named logs of robots, mazes and choices; no download",
    "imitate": "learn a policy from demonstrations, without rewards",
    "evaluate": "what a policy earns: in its environment, or by a log (--data)",
    "select": "rank policies by a log, without a simulator",
    "decide": "from a log to a decision, as one page: train, judge, compare",
    "trial": "plan a trial of a policy, and judge it while it runs",
    "report": "compare runs: tables, statistics, curves",
    "export": "write a policy as an ONNX file, checked against the policy",
    "list": "show the algorithms, presets, divergences and gradient rules",
    "demo": "learn to hop from the log that comes with odice",
    "reproduce": "the paper's tables and figures, on D4RL or the local suite",
    "toy": "the paper's grid world under three gradient rules",
    "bench": "how fast odice is on this machine",
    "theory": "check the paper's theorems numerically",
}

# What the commands import, beyond numpy and safetensors; a deployment has none of it (docs/howto/serve.md).
NEEDED = ("odice", "jax", "jaxlib", "equinox", "optax", "jaxtyping", "gymnasium", "mujoco", "minari", "h5py", "polars")
NEEDED += ("orbax", "threadpoolctl", "tomlkit", "tyro", "pydantic", "rich", "jinja2", "matplotlib")


def usage() -> str:
    name_width, columns = max(map(len, COMMANDS)) + 4, max(50, shutil.get_terminal_size((80, 24)).columns)
    fill = lambda text, indent=0: textwrap.fill(text, columns, subsequent_indent=" " * indent)
    return "\n".join(
        [
            "usage: odice COMMAND [OPTIONS]",
            "",
            fill("Offline reinforcement learning and imitation learning with the DICE family."),
            "",
            "commands:",
            *(fill(f"  {name}".ljust(name_width) + text, name_width) for name, text in COMMANDS.items()),
            "",
            fill("`odice COMMAND --help` explains a command; `odice --version` names the version."),
        ]
    )


def run(argv: list[str]) -> int:
    if sys.platform == "win32":
        raise OdiceError("odice runs on Linux and macOS; on Windows, use it inside WSL.")
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if argv[0] in ("-V", "--version"):
        print(f"odice {__version__}")
        return 0
    if argv[0] not in COMMANDS:
        raise unknown_name("command", argv[0], COMMANDS)
    command, *rest = argv
    try:
        return import_module(f"odice.cli.{command}").main(rest)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        raise OdiceError(
            f"`odice {command}` needs {error.name}, which is not installed here: this is an installation for acting "
            "alone (odice.Policy); install the rest with: pip install odice"
        ) from None


def main(argv: list[str] | None = None) -> int:
    if argv is None:  # a process of its own: imports and tracing make objects that stay, and going through them is slow
        gc.set_threshold(100_000, 50, 100)
    return exit_code(lambda: run(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    sys.exit(main())
