"""What the operator costs a DAG file: one with it against one with an empty operator.

    python -m benchmarks.parse [--rounds N]

Each parse is the first one of a fresh interpreter that has Airflow imported, as in the process that Airflow
forks for a file; the two files take turns. Prints one JSON document, medians in milliseconds, by the clock on
the wall and of the processor, which a busy machine does not stretch; exits 1 when the difference by the wall
is more than the budget, or when a heavy package was imported.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BUDGET_MS = 50.0
HEAVY = ("dlt", "duckdb", "psycopg2", "pyarrow")

EMPTY = """
from airflow.providers.common.compat.sdk import DAG
try:
    from airflow.providers.standard.operators.empty import EmptyOperator
except ImportError:
    from airflow.operators.empty import EmptyOperator

with DAG("a_dag", schedule=None):
    EmptyOperator(task_id="events")
"""
OPERATOR = """
from airflow.providers.common.compat.sdk import DAG
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator

with DAG("a_dag", schedule=None):
    ChunkedBackfillOperator.expand_window(
        task_id="events", source="sources.events:events", conn_id="warehouse", dataset_name="raw",
        start="{{ params.start }}", end="{{ params.end }}", chunk="1d", max_active_chunks=4, retries=3,
    )
"""
PARSE = """
import json, sys, time
try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:
    from airflow.models.dagbag import DagBag
import airflow.providers.common.compat.sdk
before = set(sys.modules)
wall, cpu = time.perf_counter(), time.process_time()
bag = DagBag(dag_folder=sys.argv[1])
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
assert list(bag.dags) == ["a_dag"], bag.import_errors
packages = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps([wall * 1000, cpu * 1000, sorted(packages)]))
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="how often each file is parsed")
    rounds = parser.parse_args(arguments).rounds
    times: dict[str, list[tuple[float, float]]] = {"empty": [], "operator": []}
    heavy: set[str] = set()
    with tempfile.TemporaryDirectory() as home:
        for name, text in (("empty", EMPTY), ("operator", OPERATOR)):
            (Path(home) / f"dag_{name}.py").write_text(text)
            parse(home, name)  # Byte code is written, files are in the cache.
        for number in range(rounds):
            # Whichever comes second must not have it easier.
            for name in sorted(times, reverse=bool(number % 2)):
                wall, cpu, modules = parse(home, name)
                times[name].append((wall, cpu))
                heavy |= set(HEAVY) & modules
    found: dict[str, Any] = {"rounds": rounds, "budget": BUDGET_MS, "imported": sorted(heavy)}
    differences = []
    for index, clock in enumerate(("wall", "cpu")):
        empty, operator = (median(pair[index] for pair in times[name]) for name in ("empty", "operator"))
        differences.append(operator - empty)
        found[clock] = {
            "empty": round(empty, 1),
            "operator": round(operator, 1),
            "ratio": round(operator / empty, 2),
            "difference": round(operator - empty, 1),
        }
    print(json.dumps(found, indent=2))
    return int(differences[0] > BUDGET_MS or bool(heavy))


def parse(home: str, name: str) -> tuple[float, float, set[str]]:
    """Parse a file; returns how long it took, wall and processor, milliseconds, and what it imported."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PARSE, f"{home}/dag_{name}.py"],
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "AIRFLOW_HOME": home,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "PYTHONPATH": str(ROOT),
        },
    )
    wall, cpu, modules = json.loads(done.stdout.splitlines()[-1])
    return wall, cpu, set(modules)


if __name__ == "__main__":
    sys.exit(main())
