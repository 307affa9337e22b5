"""`odice COMMAND ...`: finds the command's module, imports only that one, and turns bad input into one sentence."""

import sys
from importlib import import_module

from odice import __version__
from odice.errors import OdiceError, exit_code, unknown_name

# command -> what it does, in the order of a user's way through them; the module is odice.cli.<command>
COMMANDS = {
    "data": "look a data set over and say what is wrong with it; convert it; collect one",
    "train": "learn a policy from a data set, or continue a run that was interrupted",
    "sweep": "train every combination of data sets, algorithms, settings and seeds, each exactly once",
    "suite": "make the local suite: named logs of robots, mazes and choices, without a download",
    "imitate": "learn a policy from demonstrations, without rewards",
    "evaluate": "what a policy earns: in its environment, or estimated from a log alone (--data)",
    "select": "rank policies by what a log says about them, without a simulator",
    "decide": "from a log to a decision: train candidates, judge them by held-out episodes, write one page",
    "trial": "plan a trial of a policy, and judge it against a control while it is running",
    "report": "compare runs: tables, statistics, curves; one page, Markdown, LaTeX, CSV or figures",
    "export": "write a policy as an ONNX file, checked against the policy",
    "list": "show the algorithms, presets, divergences and gradient rules",
    "demo": "learn to hop from the log that comes with odice: curve, policy, table, video",
    "reproduce": "the paper's tables and figures, on D4RL's files or on the local suite",
    "toy": "the paper's 30 x 30 grid world: three gradient rules, one figure",
    "bench": "how fast odice is on this machine, beside the rate at which it multiplies matrices",
    "theory": "check the paper's four theorems numerically",
}


def usage() -> str:
    width = max(map(len, COMMANDS)) + 2
    lines = [f"  {name:<{width}}{text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "usage: odice COMMAND [OPTIONS]",
            "",
            "Offline reinforcement learning and imitation learning with the DICE family.",
            "",
            "commands:",
            *lines,
            "",
            "`odice COMMAND --help` explains a command; `odice --version` names the version.",
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
    return import_module(f"odice.cli.{command}").main(rest)


def main(argv: list[str] | None = None) -> int:
    return exit_code(lambda: run(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    sys.exit(main())
