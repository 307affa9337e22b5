"""Preset `corl`: what CORL's single-file implementations do (corl-team/CORL, commit eeeeef26), for the data sets of the
paper.

All of them normalise observations, except CQL on AntMaze, and evaluate every 5,000 updates.
"""

from odice.presets.baselines import CQL, td3_bc
from odice.presets.table import Protocol, Row, Setting, Table, rows, settings

_CODE = "CORL, configs of its runs"

_PLAIN = Protocol(normalize_obs=True, source=_CODE)
_MAZE = _PLAIN._replace(eval_episodes=100)


def _bc() -> Table:
    general = settings(
        _CODE, policy="deterministic", policy_hidden=(256, 256), policy_lr=3e-4, init="torch", batch_size=256
    )
    return Table(general, _PLAIN, rows(Row({}, _PLAIN), Row({}, _MAZE)))


def _percent_bc() -> Table:
    table = _bc()
    return table._replace(settings=table.settings | {"top_returns": Setting(0.1, "CORL, 10% BC")})


def _iql() -> Table:
    general = settings(
        _CODE,
        value_hidden=(256, 256),
        critic_hidden=(256, 256),
        policy_hidden=(256, 256),
        value_lr=3e-4,
        critic_lr=3e-4,
        policy_lr=3e-4,
        layer_norm=False,
        fresh_value=False,
        log_std_min=-20.0,
        init="torch",
        polyak=0.005,
        expectile=0.7,
        beta=3.0,
        batch_size=256,
    )
    scaled = _PLAIN._replace(reward="return-range-b")
    slow = Row(settings(f"{_CODE}, this data set", deterministic=True, polyak=0.001), scaled)
    mean = Row(settings(f"{_CODE}, this data set", expectile=0.5, beta=6.0), _PLAIN)
    return Table(
        general,
        _PLAIN,
        rows(
            Row({}, _PLAIN),
            Row(settings(f"{_CODE}, AntMaze", expectile=0.9, beta=10.0), _MAZE._replace(reward="minus-1")),
            hopper_medium_v2=slow,
            hopper_medium_replay_v2=slow,
            hopper_medium_expert_v2=mean,
        ),
    )


def _cql() -> Table:
    general = settings(
        _CODE,
        **CQL,
        cql_weight=10.0,
        lagrange_form="corl",
        backup_order="min-max",
        policy_lr=3e-5,
        init="orthogonal",
    )
    maze = settings(
        f"{_CODE}, AntMaze",
        cql_weight=5.0,
        policy_lr=1e-4,
        lagrange_gap=0.8,
        max_backup=True,
        clip_min=-200.0,
        critic_hidden=(256,) * 5,
    ) | {"second_critic_hidden": Setting((256,) * 3, "CORL: its second critic ignores the depth setting")}
    maze_protocol = Protocol(reward="times-10-minus-5", eval_every=50_000, eval_episodes=100, source=_CODE)
    scaled = Row({}, _PLAIN._replace(reward="return-range-b"))
    return Table(general, _PLAIN, rows(Row({}, _PLAIN), Row(maze, maze_protocol), hopper_medium_v2=scaled))


TABLES = {"bc": _bc(), "bc-10": _percent_bc(), "iql": _iql(), "td3-bc": td3_bc(_CODE, "minus-1", 100), "cql": _cql()}
