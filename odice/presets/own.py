"""What holds where no preset is chosen: odice's own settings, the same for every log (docs/defaults.md has the
measurements).

An algorithm without a table here has the defaults of its config. `odice.make` knows no log, and has those too.
"""

from odice.presets import OWN, Setting, Table

_MEASURED = "odice's own choice, compared on one seed of up to six logs, then run on eight (docs/defaults.md)"
_TAKEN = "odice's own choice, not compared with others (docs/defaults.md)"

_VDICE = {
    "lam": Setting(0.5, "weights of mean 1, so that their effective sample is a divergence from the data"),
    "eta": Setting(0.5, _MEASURED),
    "value_sample": Setting(0.9, _MEASURED),
    "policy_sample": Setting(0.2, _MEASURED),
    "policy_baseline": Setting(True, f"{_MEASURED}: the choice is between actions, not between states"),
    "policy_outcome": Setting(2.0, f"{_MEASURED}: tells agents apart where a log has several"),
    "value_start": Setting(None, f"{_MEASURED}: values that start high"),
    "polyak": Setting(0.02, _MEASURED),
    "value_lr": Setting(1e-3, _TAKEN),
    "policy_lr": Setting(1e-3, _TAKEN),
    "cosine_steps": Setting(None, f"{_TAKEN}: meant for a steady last policy"),
    "average": Setting(10.0, f"{_MEASURED}: a steady last policy"),
}

_PROTOCOL = OWN._replace(
    steps=20_000,
    eval_every=1_000,
    reward="return-spread",
    source=f"{OWN.source}; {_TAKEN}",
)

TABLES = {
    "odice": Table(_VDICE, _PROTOCOL),
    "sdice": Table({name: setting for name, setting in _VDICE.items() if name != "eta"}, _PROTOCOL),
}


def own_table(algo: str) -> Table:
    """The algorithm's own settings."""
    return TABLES.get(algo, Table({}, OWN))
