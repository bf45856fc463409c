"""What a DAG file with the operator brings into the process that parses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import airflow_provider_backfill

HEAVY = {"dlt", "duckdb", "pandas", "psycopg2", "pyarrow"}

DAG = """
from airflow_provider_backfill import ChunkedBackfillOperator
from airflow_provider_backfill.version_compat import DAG

with DAG("a_dag", schedule=None):
    ChunkedBackfillOperator.expand_window(
        task_id="events", source="sources.events:events", conn_id="warehouse", dataset_name="raw",
        start="2026-01-01", end="2026-01-06", chunk="1d",
    )
    ChunkedBackfillOperator(
        task_id="alone", source="sources.events:events", conn_id="warehouse", dataset_name="raw"
    )
"""


def imported(code: str, *, tmp_path: Path) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after the code."""
    script = tmp_path / "script.py"
    script.write_text(f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))\n")
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == 0, done.stderr
    modules: list[str] = json.loads(done.stdout.splitlines()[-1])
    return {name.partition(".")[0] for name in modules} | set(modules)


def test_the_root_package_imports_nothing(tmp_path: Path) -> None:
    modules = imported("import airflow_provider_backfill", tmp_path=tmp_path)
    assert not modules & (HEAVY | {"airflow", "pendulum", "sqlalchemy"})
    assert "airflow_provider_backfill.engine" not in modules


def test_the_engine_imports_neither_airflow_nor_dlt(tmp_path: Path) -> None:
    code = "import airflow_provider_backfill.engine.runner, airflow_provider_backfill.engine.backfill"
    assert not imported(code, tmp_path=tmp_path) & (HEAVY | {"airflow"})


def test_parsing_a_dag_imports_neither_dlt_nor_a_driver(tmp_path: Path) -> None:
    modules = imported(DAG, tmp_path=tmp_path)
    # Airflow itself may load a driver: that of its own database.
    without = imported("from airflow_provider_backfill.version_compat import DAG", tmp_path=tmp_path)
    assert not (modules - without) & HEAVY
    assert "dlt" not in modules
    # An extra, which only its own provider asks for. Airflow itself looks at its providers' plugins.
    assert not (modules - without) & {"openlineage", "openlineage.client", "airflow.providers.openlineage"}
    assert "airflow_provider_backfill.operators.lineage" in modules
    assert "airflow_provider_backfill.engine.runner" not in modules


def test_parsing_every_example_imports_neither_dlt_nor_a_driver(tmp_path: Path) -> None:
    examples = sorted((Path(__file__).parents[2] / "dags_examples").glob("*.py"))
    assert examples
    code = f"import runpy, sys\nsys.path.insert(0, {str(examples[0].parent)!r})\n"
    code += "".join(f"runpy.run_path({str(path)!r})\n" for path in examples)
    modules = imported(code, tmp_path=tmp_path)
    assert "airflow_provider_backfill.operators.group" in modules
    without = imported("from airflow_provider_backfill.version_compat import DAG", tmp_path=tmp_path)
    assert not (modules - without) & HEAVY
    assert not modules & {"dlt", "sources"}


def test_the_lazy_names_are_those_announced() -> None:
    for name in airflow_provider_backfill.__all__:
        assert getattr(airflow_provider_backfill, name) is not None
    assert set(dir(airflow_provider_backfill)) == set(airflow_provider_backfill.__all__)
