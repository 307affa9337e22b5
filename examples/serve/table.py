"""The service's log as a table, for `odice trial`: a row per decision whose outcome is known.

    python examples/serve/table.py decisions.jsonl trial.csv --episode patient --action treatment --reward alive
    odice trial trial.csv --control log.csv --schema log.toml --policy runs/a

The flags name the columns as the training data names them. A decision without an episode is an episode of its own.
"""

import argparse
import csv
import json
import sys
from typing import Any


def read(path: str) -> list[dict[str, Any]]:
    """The decisions that have an outcome, in order; a last line that was cut by a crash is left out."""
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
    return [entry for entry in decisions.values() if "reward" in entry]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("table")
    for name in ("episode", "action", "reward", "ended"):
        parser.add_argument(f"--{name}", default=name, help=f"the column of the {name}")
    args = parser.parse_args()
    try:
        entries = read(args.log)
    except (OSError, ValueError) as error:
        sys.exit(f"{args.log}: is no log of the service ({error}).")
    if not entries:
        sys.exit(f"{args.log} has no decision with an outcome yet (POST /outcome).")
    entries.sort(key=lambda entry: str(entry["episode"] or entry["id"]))  # stable: steps stay in order
    with open(args.table, "w", newline="", encoding="utf-8") as file:
        columns = [args.episode, *entries[0]["row"], args.action, args.reward, args.ended]
        table = csv.writer(file)
        table.writerow(columns)
        for entry in entries:
            row = [entry["row"].get(name) for name in entries[0]["row"]]
            ended = entry["ended"] or entry["episode"] is None
            table.writerow([entry["episode"] or entry["id"], *row, entry["action"], entry["reward"], int(ended)])
    print(f"{args.table}: {len(entries):,} decisions with an outcome")


if __name__ == "__main__":
    main()
