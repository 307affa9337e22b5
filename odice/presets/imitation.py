"""Imitation: settings for demonstrations without rewards. Used as they are, or under the names `paper` and `reference`.

The released code has its own settings for imitation (ODICE-Pytorch, commit 1692507c), for hopper-expert-v2 and
walker2d-expert-v2. Data sets without a row get hopper's weight decay.
"""

from odice.presets.paper import SETTINGS as PAPER
from odice.presets.table import Protocol, Row, Setting, Table, settings

_CODE = "released code, imitation settings"
_TEXT = "paper, appendix 'Experimental Details', offline imitation"

PROTOCOL = Protocol(steps=500_000, reward="zero", normalize_obs=True, convention="bootstrap", source=_CODE)
"""No rewards; observations normalized by the demonstrations, with std + 1e-3; every step whose next state is known."""

_DECAY = {"hopper-expert-v2": 1e-5, "walker2d-expert-v2": 1e-3}


def _vdice(general: dict[str, Setting], protocol: Protocol = PROTOCOL, decays: bool = True) -> Table:
    """A table with the weight decay of each data set."""
    decay = lambda value, where: {"policy_weight_decay": Setting(value, f"{_CODE}: {where}")}
    if not decays:
        return Table(general, protocol, {name: Row({}, protocol) for name in _DECAY})
    rows = {name: Row(decay(value, name), protocol) for name, value in _DECAY.items()}
    return Table(general | decay(1e-5, "hopper's, for want of others"), protocol, rows)


def _family(table: Table) -> dict[str, Table]:
    return dict.fromkeys(("odice", "sdice", "vdice-true"), table)


_LAMBDA_ETA = settings(f"{_CODE} and {_TEXT}", lam=0.4, eta=1.0)
_TANH = settings(_CODE, tanh_mean=True)
_CLONING = settings("the paper does not say which BC it used: O-DICE's policy with weight 1", policy="gaussian")
_RATE = settings(_CODE, policy_lr=1e-4)

_REFERENCE = settings(
    _CODE,
    value_hidden=(256, 256),
    policy_hidden=(1024, 1024),
    value_lr=1e-4,
    policy_lr=1e-4,
    polyak=5e-3,
    divergence="pearson",
    policy_weight="residual",
    weight_clamp=100.0,
    twin=True,
    layer_norm=False,
    tanh_mean=True,
    init="torch",
)
_REFERENCE_PROTOCOL = PROTOCOL._replace(
    final_obs="next-reset", source=f"{_CODE}; the last transition of a cut episode leads into the next episode"
)
_PAPER_PROTOCOL = PROTOCOL._replace(steps=1_000_000, source=f"{_TEXT}; normalized as the released code does")

# Codes of ValueDICE (absorbing states instead of terminals) and IQ-Learn (raw observations); the defaults are theirs.
_VALUE_DICE = PROTOCOL._replace(absorbing=True, source="official code of ValueDICE (google-research), offline")
_IQ_LEARN = PROTOCOL._replace(normalize_obs=False, source="official code of IQ-Learn (Div99/IQ-Learn, 1f5492dd)")
# Demonstrations and imperfect data: a normalized KL has no minimum over V where rows are terminated.
_UNION = PROTOCOL._replace(
    absorbing=True, source="absorbing states, which the official codes leave out; as long as the others"
)
_DEMO_DICE = "official code of DemoDICE and LobsDICE (KAIST-AILab/imitation-dice, e377b73); the defaults are its"
_SMODICE = (
    "official code of SMODICE (JasonMa2016/SMODICE, d860c35); the defaults are its. "
    "It makes absorbing rows, but never samples them"
)
_UNMASKED = Table(
    settings(f"{_DEMO_DICE}: no mask", bootstrap_terminals=True), PROTOCOL._replace(steps=2_000_000, source=_DEMO_DICE)
)

_RGM = "official code of RGM (Facebear-ljx/RGM, 8e45a9e)"
_CORRECTED = _UNION._replace(reward="standard", source=f"{_UNION.source}; rewards as in the {_RGM}")
_RGM_OFFICIAL = Table(
    settings(_RGM, alpha=0.5, normalize=False, correction_lr=3e-7, correction_scale=3.0),
    _CORRECTED._replace(steps=1_000_000, source=f"{_RGM}: absorbing states, rewards of mean 0 and deviation 1"),
    {
        "hopper-expert-v2": Row(
            settings(f"{_RGM}, run_d4rl.sh: hopper", deterministic=True),
            _CORRECTED._replace(steps=1_000_000, source=_RGM),
        )
    },
)

TRAJECTORIES = (1, 10, 20, 30)
"""The expert's episodes (from 0) that the released script imitates, one at a time: rows "Traj 1" to "Traj 4" of the
paper's table."""
SEEDS = (0, 10, 100)
"""The seeds of the released script."""

TABLES: dict[str, dict[str, Table]] = {
    "imitation": {
        **_family(_vdice(_LAMBDA_ETA | _TANH)),
        "bc": _vdice(_CLONING | _TANH | _RATE),
        "value-dice": Table({}, _VALUE_DICE),
        "demo-dice": Table({}, _UNION),
        "lobs-dice": Table({}, _UNION),
        "smodice": Table({}, _UNION),
        "rgm": Table({}, _CORRECTED),
    },
    "paper": {
        **_family(_vdice(PAPER | settings(_TEXT, lam=0.4, eta=1.0), _PAPER_PROTOCOL, decays=False)),
        # The text has no settings of the others: BC is O-DICE's policy with weight 1, the rest their official codes.
        "bc": _vdice(PAPER | _CLONING | _TANH, _PAPER_PROTOCOL, decays=False),
        "value-dice": Table(
            {}, _PAPER_PROTOCOL._replace(absorbing=True, source=f"{_TEXT} for the length; {_VALUE_DICE.source}")
        ),
        "iq-learn": Table(
            {}, _PAPER_PROTOCOL._replace(normalize_obs=False, source=f"{_TEXT} for the length; {_IQ_LEARN.source}")
        ),
    },
    "reference": {
        **_family(_vdice(_REFERENCE | _LAMBDA_ETA, _REFERENCE_PROTOCOL)),
        "bc": _vdice(_REFERENCE | _CLONING, _REFERENCE_PROTOCOL),
        "value-dice": Table({}, _VALUE_DICE),
        "iq-learn": Table({}, _IQ_LEARN),
        "demo-dice": _UNMASKED,
        "lobs-dice": _UNMASKED,
        "smodice": Table({}, PROTOCOL._replace(steps=1_000_000, source=_SMODICE)),
        "rgm": _RGM_OFFICIAL,
    },
}
"""preset -> algorithm -> table. `imitation` holds when no preset is named; algorithms that are not in it keep their
defaults."""
