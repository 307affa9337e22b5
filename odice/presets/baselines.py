"""The `reference` settings of the algorithms the paper compares with: what each one's official code does."""

from typing import Any

from odice.d4rl import ANTMAZE_DATA, LOCOMOTION_DATA
from odice.presets.table import Protocol, Row, Setting, Table, rows, settings

DATA = LOCOMOTION_DATA + ANTMAZE_DATA
"""The data sets of the paper's Table 1."""


# --- IQL, SQL, EQL, f-DVL, XQL: JAX codes that share data handling, networks and evaluation ---------------------------

CLIP = 1 - 1e-5


def _jax_protocols(source: str) -> tuple[Protocol, Protocol]:
    mujoco = Protocol(reward="return-range", clip_actions=CLIP, source=source)
    return mujoco, mujoco._replace(reward="minus-1", eval_every=100_000, eval_episodes=100)


def _jax_networks(source: str, lr: float, **others) -> dict[str, Setting]:
    shared = {"value_hidden": (256, 256), "critic_hidden": (256, 256), "policy_hidden": (256, 256)}
    shared |= {"value_lr": lr, "critic_lr": lr, "policy_lr": lr, "init": "orthogonal", "tanh_mean": True}
    return settings(source, **shared, polyak=0.005, weight_clamp=100.0, fresh_value=True, **others)


def _iql() -> Table:
    code = "official code of IQL (ikostrikov/implicit_q_learning, 09d70024)"
    mujoco, antmaze = _jax_protocols(code)
    general = _jax_networks(code, 3e-4, layer_norm=False, batch_size=256)
    return Table(
        general,
        mujoco,
        rows(
            Row(settings(f"{code}, MuJoCo config", expectile=0.7, beta=3.0), mujoco),
            Row(settings(f"{code}, AntMaze config", expectile=0.9, beta=10.0), antmaze),
        ),
    )


def _ivr(alpha: float, maze: float, diverse: float, **others) -> Table:
    code = "official code of SQL and EQL (ryanxhr/IVR, 58edd26d)"
    mujoco, antmaze = _jax_protocols(code)
    general = _jax_networks(code, 3e-4, layer_norm=True, batch_size=256, **others)
    slow = settings(f"{code}, AntMaze config", value_lr=2e-4, critic_lr=2e-4, policy_lr=2e-4)
    in_maze = lambda value: Row(slow | settings(f"{code}, AntMaze script", alpha=value), antmaze)
    return Table(
        general,
        mujoco,
        rows(
            Row(settings(f"{code}, MuJoCo script", alpha=alpha), mujoco),
            in_maze(maze),
            antmaze_umaze_diverse_v2=in_maze(diverse),
        ),
    )


def _fdvl() -> Table:
    code = "official code of f-DVL (hari-sikchi/DVL, 4b7cf119)"
    mujoco, antmaze = _jax_protocols(code)
    general = _jax_networks(code, 3e-4, layer_norm=True, batch_size=1024)
    general |= settings(code, divergence="pearson", surrogate=True, huber_delta=20.0, lam=1.0)
    moving = settings(f"{code}, MuJoCo config", temperature=3.0)
    moving |= settings(f"{code}, README, locomotion command", random_actions=1)
    maze = settings(f"{code}, AntMaze config", temperature=10.0, cosine_steps=0)
    maze |= settings(f"{code}, README, AntMaze command", divergence="total-variation", lam=0.8)
    return Table(general, mujoco, rows(Row(moving, mujoco), Row(maze, antmaze)))


def _xql() -> Table:
    code = "official code of XQL (Div99/xql, dff09af)"
    mujoco, antmaze = _jax_protocols(code)
    antmaze = antmaze._replace(eval_every=30_000)
    general = _jax_networks(code, 3e-4, layer_norm=True, batch_size=1024, huber_delta=20.0)
    general |= settings(f"{code}, default flags", exponent_cap=7.0, beta=1.0)
    moving = settings(f"{code}, MuJoCo config", temperature=3.0)
    maze = settings(f"{code}, AntMaze config", temperature=10.0, cosine_steps=0)
    # data set: what its script in offline/reproduce says; the mazes' were written for -v0
    scripts: dict[str, dict[str, float]] = {
        "halfcheetah-medium-v2": {"beta": 1.0, "action_noise": 0.1},
        "hopper-medium-v2": {"beta": 5.0},
        "walker2d-medium-v2": {"beta": 10.0},
        "halfcheetah-medium-replay-v2": {"beta": 1.0, "exponent_cap": 5.0, "batch_size": 256},
        "hopper-medium-replay-v2": {"beta": 2.0, "batch_size": 256},
        "walker2d-medium-replay-v2": {"beta": 5.0, "exponent_cap": 5.0},
        "halfcheetah-medium-expert-v2": {"beta": 1.0, "exponent_cap": 5.0},
        "hopper-medium-expert-v2": {"beta": 2.0, "random_actions": 1},
        "walker2d-medium-expert-v2": {"beta": 2.0, "exponent_cap": 5.0, "batch_size": 256},
        "antmaze-umaze-v2": {"beta": 2.0, "batch_size": 256},
        "antmaze-umaze-diverse-v2": {"beta": 5.0, "batch_size": 256, "random_actions": 1},
        "antmaze-medium-play-v2": {"beta": 0.8, "exponent_cap": 5.0, "batch_size": 256},
        "antmaze-medium-diverse-v2": {"beta": 0.6, "batch_size": 256, "value_updates": 4},
        "antmaze-large-play-v2": {"beta": 0.6, "exponent_cap": 5.0},
        "antmaze-large-diverse-v2": {"beta": 0.55, "exponent_cap": 5.0},
    }
    by_data = {}
    for name, values in scripts.items():
        shared, protocol = (moving, mujoco) if name in LOCOMOTION_DATA else (maze, antmaze)
        by_data[name] = Row(shared | settings(f"{code}, script of this data set", **values), protocol)
    return Table(general | moving, mujoco, by_data)


# --- TD3+BC ---------------------------------------------------------------------------------------------------------


def td3_bc(source: str, maze_reward: str, maze_episodes: int) -> Table:
    """The paper's settings, which are the official code's and CORL's too."""
    general = settings(
        source,
        alpha=2.5,
        discount=0.99,
        polyak=0.005,
        target_noise=0.2,
        noise_clip=0.5,
        policy_delay=2,
        critic_hidden=(256, 256),
        policy_hidden=(256, 256),
        critic_lr=3e-4,
        policy_lr=3e-4,
        init="torch",
        batch_size=256,
    )
    mujoco = Protocol(normalize_obs=True, source=source)
    antmaze = mujoco._replace(reward=maze_reward, eval_episodes=maze_episodes)
    return Table(general, mujoco, rows(Row({}, mujoco), Row({}, antmaze)))


# --- CQL ------------------------------------------------------------------------------------------------------------


CQL: dict[str, Any] = {
    "cql_temperature": 1.0,
    "n_actions": 10,
    "backup_entropy": False,
    "polyak": 0.005,
    "critic_hidden": (256, 256, 256),
    "policy_hidden": (256, 256, 256),
    "critic_lr": 3e-4,
    "batch_size": 256,
}
"""What the official code and CORL have in common."""


def _cql() -> Table:
    code = "official code of CQL (aviralkumar2907/CQL, d67dbe9c)"
    # Its networks start as rlkit's do, its policy has no learnt scale of the spread, and it clones for 40,000 updates
    # first.
    general = settings(f"CORL's start of the networks, not that of the {code}", init="orthogonal") | settings(
        code, **CQL, lagrange_form="official", backup_order="max-min"
    )
    general |= settings(f"{code}, README", cql_weight=10.0, policy_lr=1e-4)
    mujoco = Protocol(steps=3_000_000, source=f"{code}; evaluation as elsewhere here")
    maze = settings(f"{code}, README, AntMaze", cql_weight=5.0, lagrange_gap=5.0, max_backup=True)
    return Table(
        general, mujoco, rows(Row({}, mujoco), Row(maze, mujoco._replace(reward="times-4-minus-2", eval_episodes=100)))
    )


# --- OptiDICE -------------------------------------------------------------------------------------------------------


def _optidice() -> Table:
    code = "official code of OptiDICE (secury/optidice, b9fc38d2)"
    general = settings(
        code,
        alpha=1.0,
        divergence="soft-chi2",
        extraction="projection",
        e_loss="minimax",
        normalize=True,
        initial="episodes",
        entropy=True,
        mixture=5,
        warmup_steps=500_000,
        value_hidden=(256, 256),
        critic_hidden=(256, 256),
        policy_hidden=(256, 256),
        value_lr=3e-4,
        critic_lr=3e-4,
        policy_lr=3e-4,
        init="glorot",
        batch_size=512,
    )
    protocol = Protocol(
        steps=3_000_000,
        reward="standard-tenth",
        normalize_obs=True,
        eval_every=10_000,
        eval_episodes=3,
        source=f"{code}; written for MuJoCo -v0 and Maze2D",
    )
    maze = Row(settings(f"{code}, README, Maze2D command", e_loss="mse", alpha=0.001), protocol)
    return Table(general, protocol, rows(Row({}, protocol), Row({}, protocol), maze2d_umaze_v1=maze))


# --- codes without D4RL's data: general values, no rows ---------------------------------------------------------------


def _algae_dice() -> Table:
    code = "official code of AlgaeDICE (google-research/algae_dice)"
    general = settings(
        f"{code}, flags of train_eval.py",
        alpha=0.01,
        exponent=1.5,
        discount=0.99,
        polyak=0.005,
        policy_delay=2,
        critic_lr=1e-3,
        policy_lr=1e-3,
        batch_size=256,
    )
    general |= settings(
        f"{code}, algae.py",
        gradient="true",
        online_share=0.05,
        init_temperature=1.0,
        orthogonal_penalty=1e-4,
        critic_hidden=(256, 256),
        policy_hidden=(256, 256),
        init="orthonormal",
    )
    source = f"{code}: 500,000 steps and as many updates, bootstrapping where time ran out; it collects its own data"
    return Table(general, Protocol(steps=500_000, convention="bootstrap", source=source))


def _copti_dice() -> Table:
    code = "official code of CoptiDICE (google-deepmind/constrained_optidice, c58783e)"
    general = settings(
        f"{code}, flags of run_experiment.py",
        alpha=0.01,
        cost_limit=0.1,
        bound_radius=0.01,
        divergence="soft-chi2",
        gradient_penalty=1e-5,
        discount=0.995,
        value_lr=3e-4,
        policy_lr=3e-4,
        batch_size=1024,
    )
    # Its policy, a mixture of Gaussians behind residual blocks of 1024, is not here.
    general |= settings(f"{code}, networks of V and chi", value_hidden=(512, 512, 256), layer_norm=True)
    source = f"{code}; its examples run 50 updates, so the length is ours"
    return Table(general, Protocol(convention="bootstrap", source=source))


def _cors_dice() -> Table:
    code = "official code of CORSDICE (ku-dmlab/CORSDICE, 20cfa50)"
    general = settings(
        f"{code}, configs/mujoco_config.py",
        discount=0.99,
        polyak=0.005,
        value_hidden=(256, 256),
        critic_hidden=(256, 256),
        policy_hidden=(256, 256),
        layer_norm=True,
        value_lr=3e-4,
        critic_lr=3e-4,
        policy_lr=3e-4,
        cost_lr=3e-4,
    )
    general |= settings(f"{code}, flags of train_evaluation.py", alpha=1.0, batch_size=256)
    general |= settings(
        f"{code}, README: 0.1 of V's rate, and what the command says",
        divergence="soft-chi2",
        gradient_penalty=0.01,
        state_lr=3e-5,
    )
    general |= settings(
        f"{code}, actor.py and common.py", policy_weight="linear", weight_clamp=100.0, init="orthogonal"
    )
    source = f"{code}: a million updates on DSRL's data; costs and rewards as they are"
    return Table(general, Protocol(eval_every=10_000, source=source))


# --- Diffusion-DICE -----------------------------------------------------------------------------------------------


def _diffusion_dice() -> Table:
    code = "official code of Diffusion-DICE (maoliyuan/diffusion-DICE-Pytorch, 7ab5a92)"
    general = settings(
        f"{code}, model.py",
        discount=0.99,
        polyak=0.005,
        fresh_value=True,
        layer_norm=True,
        value_hidden=(256, 256),
        critic_hidden=(256, 256),
        guidance_hidden=(256, 256, 256, 256),
        weight_clamp=100.0,
        init="torch",
    )
    flags = f"{code}, default flags of utils.py; the README leaves alpha and the candidates to the user"
    general |= settings(flags, alpha=0.5, candidates=1, weight_decay=1e-4, batch_size=512)
    general |= settings(f"{code}, configs", value_lr=3e-4, critic_lr=3e-4, guidance_lr=3e-4, solver_steps=15)
    general |= settings(f"{code}, pretrain_behavior.py", score_lr=1e-4, cosine_steps=0)
    general |= settings("ours, in the place of its U of residual blocks (512, 256, 128)", score_hidden=(512, 512, 512))
    moving = settings(f"{code}, configs/mujoco.yaml", critic_ensemble=10, noised_copies=16, guidance=4.0)
    maze = settings(f"{code}, configs/antmaze.yaml", critic_ensemble=0, noised_copies=32)
    mujoco = Protocol(reward="return-range-b", eval_every=40_000, source=f"{code}; the behavior learns jointly here")
    antmaze = mujoco._replace(reward="minus-1", eval_episodes=50)
    scales = {"medium-expert": 2.0, "umaze": 1.0, "antmaze-medium": 2.0, "large": 4.0}
    by_data = {}
    for name in DATA:
        shared, protocol = (moving, mujoco) if name in LOCOMOTION_DATA else (maze, antmaze)
        scale = next((value for part, value in scales.items() if part in name), 4.0)
        by_data[name] = Row(shared | settings(f"{code}, configs, s by the name of the data", guidance=scale), protocol)
    return Table(general | moving, mujoco, by_data)


TABLES = {
    "algae-dice": _algae_dice(),
    "copti-dice": _copti_dice(),
    "cors-dice": _cors_dice(),
    "diffusion-dice": _diffusion_dice(),
    "iql": _iql(),
    "sql": _ivr(1.0, 0.1, 3.0, sparse_ratio=False),
    "eql": _ivr(2.0, 0.5, 5.0, sharpness=10.0, exponent_cap=5.0),
    "fdvl": _fdvl(),
    "xql": _xql(),
    "td3-bc": td3_bc("official code of TD3+BC (sfujim/TD3_BC, 8791ad7)", "none", 10),
    "cql": _cql(),
    "optidice": _optidice(),
}
