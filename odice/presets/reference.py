"""Preset `reference`: what the authors' released code does (ODICE-Pytorch, commit 1692507c), with the paper's lambda
and eta.

The algorithms that the paper compares with have their own official codes: `odice.presets.baselines`.
"""

from odice.presets import baselines
from odice.presets.paper import LAMBDA_ETA, lambda_eta
from odice.presets.table import Protocol, Row, Setting, Table

_CODE = "released code, RL settings"

SETTINGS = {
    "lam": Setting(0.6, "released code, command-line default"),
    "eta": Setting(1.0, "released code, command-line default"),
    "value_hidden": Setting((256, 256), _CODE),
    "policy_hidden": Setting((1024, 1024), f"{_CODE}; the paper's text says 256"),
    "value_lr": Setting(2e-4, f"{_CODE}; the paper's text says 1e-4"),
    "policy_lr": Setting(2e-4, f"{_CODE}; the paper's text says 1e-4"),
    "policy_weight_decay": Setting(1e-4, f"{_CODE}; torch's Adam, so coupled"),
    "polyak": Setting(5e-3, _CODE),
    "divergence": Setting("pearson", _CODE),
    "policy_weight": Setting("residual", _CODE),
    "weight_clamp": Setting(100.0, f"{_CODE}; not in the paper"),
    "twin": Setting(True, f"{_CODE}; the paper says it is not needed"),
    "layer_norm": Setting(True, f"{_CODE}, MuJoCo"),
    "tanh_mean": Setting(False, _CODE),
    "init": Setting("torch", _CODE),
}

MUJOCO = Protocol(reward="return-range-b", eval_every=5_000, eval_episodes=10, source=_CODE)
ANTMAZE = Protocol(reward="zero-to-minus-3", eval_every=20_000, eval_episodes=50, source=_CODE)

_MUJOCO_NETS = {}
_ANTMAZE_NETS = {"layer_norm": Setting(False, f"{_CODE}, AntMaze")}
_ANTMAZE_SINGLE = _ANTMAZE_NETS | {"twin": Setting(False, f"{_CODE}: single V for large mazes and umaze-diverse")}

# data set: (networks that differ from SETTINGS, protocol)
_NETS = {
    "antmaze-umaze-v2": (_ANTMAZE_NETS, ANTMAZE),
    "antmaze-umaze-diverse-v2": (_ANTMAZE_SINGLE, ANTMAZE),
    "antmaze-medium-play-v2": (_ANTMAZE_NETS, ANTMAZE),
    "antmaze-medium-diverse-v2": (_ANTMAZE_NETS, ANTMAZE),
    "antmaze-large-play-v2": (_ANTMAZE_SINGLE, ANTMAZE),
    "antmaze-large-diverse-v2": (_ANTMAZE_SINGLE, ANTMAZE),
}


def _rows(tuned: bool) -> dict[str, Row]:
    rows = {}
    for name, (lam, eta, _) in LAMBDA_ETA.items():
        nets, protocol = _NETS.get(name, (_MUJOCO_NETS, MUJOCO))
        rows[name] = Row(nets | (lambda_eta(lam, eta) if tuned else {}), protocol)
    return rows


# No run scripts of S-DICE and of the true gradient were released: they keep the general lambda.
TABLES = {
    "odice": Table(SETTINGS, MUJOCO, _rows(tuned=True)),
    "sdice": Table(SETTINGS, MUJOCO, _rows(tuned=False)),
    "vdice-true": Table(SETTINGS, MUJOCO, _rows(tuned=False)),
    **baselines.TABLES,
}
