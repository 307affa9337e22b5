"""Preset `corl`: what CORL's single-file implementations do (corl-team/CORL, commit eeeeef26), for the data sets of the paper.

All of them normalise observations, except CQL on AntMaze, and evaluate every 5,000 updates.
"""

from odice.presets import Protocol, Row, Setting, Table
from odice.presets.paper import LAMBDA_ETA

_CODE = "CORL, configs of its runs"

DATA = tuple(LAMBDA_ETA)
ANTMAZE = tuple(name for name in DATA if name.startswith("antmaze"))
MUJOCO = tuple(name for name in DATA if name not in ANTMAZE)

_PLAIN = Protocol(normalise_obs=True, source=_CODE)
_MAZE = _PLAIN._replace(eval_episodes=100)


def _bc() -> Table:
    settings = {
        "policy": Setting("deterministic", _CODE),
        "policy_hidden": Setting((256, 256), _CODE),
        "policy_lr": Setting(3e-4, _CODE),
        "init": Setting("torch", _CODE),
        "batch_size": Setting(256, _CODE),
    }
    return Table(settings, _PLAIN, {name: Row({}, _MAZE if name in ANTMAZE else _PLAIN) for name in DATA})


def _percent_bc() -> Table:
    table = _bc()
    return table._replace(settings=table.settings | {"top_returns": Setting(0.1, "CORL, 10% BC")})


TABLES = {"bc": _bc(), "bc-10": _percent_bc()}
