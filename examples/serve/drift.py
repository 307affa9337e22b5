"""Does the service still see what the policy was trained on? Needs numpy and safetensors alone.

    python examples/serve/drift.py runs/a/policy/last decisions.jsonl --last 1000

Prints the share of rows that the guard calls new (1 % of held-out training data are), and every number whose values
have moved: the shares below the training data's 1 % point, median and 99 % point should be 1, 50 and 99 %. A share is
called different where it is so by more than four standard errors. Exit code 1 if something moved.
"""

import argparse
import json
import math
import sys
from collections import deque
from typing import Any

import numpy as np

from odice.encoding import encode, layout
from odice.errors import OdiceError
from odice.policy import Policy

ERRORS = 4.0


def noise(share: float, count: int) -> float:
    """How far the share of a sample may be from the true one before it is called different."""
    return max(0.01, ERRORS * math.sqrt(share * (1 - share) / count))


def compare(policy: Policy, rows: list[Any]) -> list[str]:
    """What has moved, in words."""
    known, refused = [], 0
    for row in rows:
        try:
            known.append(encode(policy.columns, row) if isinstance(row, dict) else np.asarray(row, np.float32))
        except OdiceError:
            refused += 1
    said = [f"{refused / len(rows):.1%} of the rows cannot be read"] if refused > 0.01 * len(rows) else []
    if policy.guard is None or not known:
        return said
    obs = np.stack(known)
    new = float((policy.guard.score(obs) > 1).mean())
    if new > 0.01 + noise(0.01, len(obs)):
        said.append(f"{new:.1%} of the rows are unlike the training data (1 % expected)")
    parts = [name for name, width in layout(policy.columns) for _ in range(width)] or list(policy.guard.names)
    words = {part for column in policy.columns if column.get("values") for part, _ in layout([column])}
    for i in range(policy.obs_dim):
        name = parts[i] if i < len(parts) else f"observation[{i}]"
        if name in words:
            continue  # a word has no quantiles
        for quantile, values in sorted(policy.guard.quantiles.items()):
            below, at_most = float((obs[:, i] < values[i]).mean()), float((obs[:, i] <= values[i]).mean())
            share = float(quantile)
            if max(below - share, share - at_most) > noise(share, len(obs)):
                said.append(f"{name}: {below:.1%} are below {values[i]:g}, in the training data {share:.0%}")
    return said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy")
    parser.add_argument("log")
    parser.add_argument("--last", type=int, default=1000, help="how many decisions to look at")
    args = parser.parse_args()
    try:
        with open(args.log, encoding="utf-8") as file:
            entries = (json.loads(line) for line in file if line.endswith("\n"))
            rows = list(deque((entry["row"] for entry in entries if "row" in entry), args.last))
        policy = Policy.load(args.policy)
    except (OSError, ValueError, OdiceError) as error:
        sys.exit(f"{args.log}: cannot be compared with {args.policy} ({error}).")
    if not rows:
        sys.exit(f"{args.log} has no decisions yet.")
    said = compare(policy, rows)
    print("\n".join(said or [f"no change in {len(rows):,} decisions"]))
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(main())
