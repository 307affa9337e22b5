"""Preset `corl`: what CORL's single-file implementations do (corl-team/CORL, commit eeeeef26), for the data sets of the
paper.

All of them normalize observations, except CQL on AntMaze and ReBRAC, and most evaluate every 5,000 updates.
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


def _awac() -> Table:
    general = settings(
        _CODE,
        beta=0.3333,
        n_actions=1,
        weight_clamp=100.0,
        polyak=0.005,
        critic_hidden=(256, 256, 256),
        policy_hidden=(256, 256, 256),
        critic_lr=3e-4,
        policy_lr=3e-4,
        log_std_min=-20.0,
        init="torch",
        batch_size=256,
    )
    plain = _PLAIN._replace(eval_every=1_000)
    maze = Row(settings(f"{_CODE}, AntMaze", beta=0.1), plain._replace(reward="minus-1", eval_episodes=100))
    return Table(general, plain, rows(Row({}, plain), maze))


# data set: (policy_penalty, critic_penalty)
REBRAC = {
    "halfcheetah-medium-v2": (0.001, 0.01),
    "hopper-medium-v2": (0.01, 0.01),
    "walker2d-medium-v2": (0.05, 0.1),
    "halfcheetah-medium-replay-v2": (0.01, 0.001),
    "hopper-medium-replay-v2": (0.05, 0.5),
    "walker2d-medium-replay-v2": (0.05, 0.01),
    "halfcheetah-medium-expert-v2": (0.01, 0.1),
    "hopper-medium-expert-v2": (0.1, 0.01),
    "walker2d-medium-expert-v2": (0.01, 0.01),
    "antmaze-umaze-v2": (0.003, 0.002),
    "antmaze-umaze-diverse-v2": (0.003, 0.001),
    "antmaze-medium-play-v2": (0.001, 0.0005),
    "antmaze-medium-diverse-v2": (0.001, 0.0),
    "antmaze-large-play-v2": (0.002, 0.001),
    "antmaze-large-diverse-v2": (0.002, 0.002),
}


def _rebrac() -> Table:
    code = "CORL's configs of ReBRAC (tinkoff-ai/CORL, 6afec904)"
    general = settings(
        code,
        discount=0.99,
        polyak=0.005,
        target_noise=0.2,
        noise_clip=0.5,
        policy_delay=2,
        layer_norm=True,
        critic_hidden=(256, 256, 256),
        policy_hidden=(256, 256, 256),
        critic_lr=1e-3,
        policy_lr=1e-3,
        init="torch",
        batch_size=1024,
    )
    slow = settings(f"{code}, AntMaze", discount=0.999, critic_lr=5e-5, policy_lr=3e-4, batch_size=256)
    plain = Protocol(source=code)
    maze = plain._replace(reward="times-100", eval_every=50_000, eval_episodes=100)

    def row(name: str) -> Row:
        policy, critic = REBRAC[name]
        own = settings(f"{code}, this data set", policy_penalty=policy, critic_penalty=critic)
        return Row(own | slow, maze) if name.startswith("antmaze") else Row(own, plain)

    return Table(general, plain, {name: row(name) for name in REBRAC})


TABLES = {
    "awac": _awac(),
    "bc": _bc(),
    "bc-10": _percent_bc(),
    "iql": _iql(),
    "td3-bc": td3_bc(_CODE, "minus-1", 100),
    "cql": _cql(),
    "rebrac": _rebrac(),
}
