"""The service's log as a table, for `odice trial`: a row per decision of the episodes that are over.

    python examples/serve/table.py decisions.jsonl trial.csv --episode patient --action treatment --reward alive
    odice trial trial.csv --control log.csv --schema log.toml --policy runs/a

The flags name the columns as the training data names them; lists of numbers become `observation_0`, `observation_1` and
so on. A decision without an episode is an episode of its own. An episode is written when its last outcome said `ended`
and all its decisions have an outcome and an action: a part of one would count with a part of its return.
"""

import argparse
import csv
import json
import os
import sys
from typing import Any


def read(path: str) -> dict[str, list[dict[str, Any]]]:
    """The decisions of each episode, in order, with their outcomes; a last line that was cut by a crash is left out."""
    decisions: dict[str, dict[str, Any]] = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if not line.endswith("\n"):
                break
            entry = json.loads(line)
            if "reward" in entry:
                decisions.get(entry["id"], {}).update(reward=entry["reward"], ended=entry["ended"])
            else:
                decisions[entry["id"]] = entry
    episodes: dict[str, list[dict[str, Any]]] = {}
    for entry in decisions.values():
        alone = entry["episode"] is None
        episodes.setdefault(entry["id"] if alone else entry["episode"], []).append(entry)
        if alone and "reward" in entry:
            entry["ended"] = True
    return episodes


def complete(steps: list[dict[str, Any]]) -> bool:
    """Whether all that came of an episode is known."""
    return all("reward" in step and step["action"] is not None for step in steps) and steps[-1]["ended"]


def cells(name: str, value: Any) -> dict[str, Any]:
    """What stands in which column: of a row, of a list of numbers, of one value."""
    if isinstance(value, list):
        return {f"{name}_{i}": number for i, number in enumerate(value)}
    return value if isinstance(value, dict) else {name: value}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("table")
    for name in ("episode", "action", "reward", "ended"):
        parser.add_argument(f"--{name}", default=name, help=f"the column of the {name}")
    args = parser.parse_args()
    try:
        episodes = read(args.log)
    except (OSError, ValueError, KeyError, AttributeError) as error:
        sys.exit(f"{args.log}: is no log of the service ({error}).")
    over = {name: steps for name, steps in episodes.items() if complete(steps)}
    if not over:
        sys.exit(f"{args.log} has no episode that is over, with all its outcomes (POST /outcome).")
    rows = [
        {
            args.episode: name,
            **cells("observation", step["row"]),
            **cells(args.action, step["action"]),
            args.reward: step["reward"],
            args.ended: int(step["ended"]),
        }
        for name, steps in over.items()
        for step in steps
    ]
    with open(f"{args.table}.tmp", "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(dict.fromkeys(column for row in rows for column in row)))
        table.writeheader()
        table.writerows(rows)
    os.replace(f"{args.table}.tmp", args.table)
    left = f"; {len(episodes) - len(over):,} that are not over or lack an outcome or an action are left out"
    print(f"{args.table}: {len(over):,} episodes, {len(rows):,} decisions{left if len(over) < len(episodes) else ''}")


if __name__ == "__main__":
    main()
