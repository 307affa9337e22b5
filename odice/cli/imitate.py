"""`odice imitate`: learn a policy from demonstrations. The run is `odice train --imitation`, with the same flags."""

from __future__ import annotations

from odice.cli import train

ABOUT = (
    "Learn a policy from demonstrations, without rewards: `odice imitate --data hopper-expert-v2 --episode 1`. "
    "Run the same command again to continue an interrupted run."
)


def main(argv: list[str]) -> int:
    return train.main(argv, "odice imitate", ABOUT, imitation=True)
