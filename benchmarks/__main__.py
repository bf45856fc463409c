"""Everything that is measured, as one table.

    python -m benchmarks [--quick] [--rounds N] [--only NAME] [GROUP ...]

Writes ``benchmarks/results.json``; exits 1 when a budget is missed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.harness import Figure, Group, Scale, load
from benchmarks.table import as_json, shown

RESULTS = Path(__file__).with_name("results.json")
GROUPS = ("attempt", "command", "airflow_days")
PACKAGES = ("apache-airflow", "dlt", "duckdb", "psycopg2-binary", "pyarrow")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"default all: {', '.join(GROUPS)}")
    parser.add_argument("--quick", action="store_true", help="leave out what takes long")
    parser.add_argument("--rounds", type=int, default=5, help="how often each program runs; default 5")
    options = parser.parse_args(arguments)
    scale = Scale(rounds=options.rounds, quick=options.quick)
    figures: list[Figure] = []
    for name in options.groups or GROUPS:
        group: Group = importlib.import_module(f"benchmarks.{name}").figures
        for figure in group(scale):
            print(f"{name}: {figure.name}: {figure.decisive:.3g}", file=sys.stderr, flush=True)
            figures.append(figure)
    shown(figures)
    RESULTS.write_text(json.dumps(document(figures, scale), indent=2) + "\n")
    return int(any(figure.met is False for figure in figures))


def document(figures: Sequence[Figure], scale: Scale) -> dict[str, object]:
    """Everything, with what one has to know of the machine."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "processors": len(os.sched_getaffinity(0)),
            "system": platform.system(),
            "python": platform.python_version(),
            "load": round(load(), 2),
        },
        "packages": {name: version(name) for name in PACKAGES},
        "rounds": scale.rounds,
        "quick": scale.quick,
        "figures": [as_json(figure) for figure in figures],
    }


if __name__ == "__main__":
    sys.exit(main())
