"""A fresh database a test, on each dialect, and settings that do not make a test wait."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_backfill.engine.destinations import Target, dialect_for
from airflow_provider_backfill.engine.settings import Settings

DATASET = "web_raw"


def duckdb_target(path: Path, dataset_name: str = DATASET) -> Target:
    return Target(dialect=dialect_for("duckdb"), credentials=str(path), dataset_name=dataset_name)


def postgres_target(url: str, dataset_name: str = DATASET) -> Target:
    return Target(dialect=dialect_for("postgres"), credentials=url, dataset_name=dataset_name)


@pytest.fixture(params=["duckdb", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """An empty database of each dialect."""
    if request.param == "duckdb":
        return duckdb_target(tmp_path / "web.duckdb")
    # Asked for here, so that a run of DuckDB's tests alone starts no server.
    return postgres_target(request.getfixturevalue("postgres_url"))


@pytest.fixture
def pg_target(postgres_url: str) -> Target:
    """An empty Postgres database."""
    return postgres_target(postgres_url)


@pytest.fixture
def duck_target(tmp_path: Path) -> Target:
    """An empty DuckDB file."""
    return duckdb_target(tmp_path / "web.duckdb")


@pytest.fixture
def make_settings(tmp_path: Path) -> Callable[..., Settings]:
    """Settings with short waits and a directory of the test's own; keywords change single ones."""
    standard = Settings(
        lease_seconds=10,
        heartbeat_seconds=2,
        wait_timeout_seconds=20,
        file_lock_timeout_seconds=20,
        work_dir=str(tmp_path / "work"),
    )

    def make(**changes: Any) -> Settings:
        return replace(standard, **changes)

    return make


@pytest.fixture
def settings(make_settings: Callable[..., Settings]) -> Settings:
    return make_settings()


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory on the path with ``page_view_source.py``."""
    # Tests of the engine do without Airflow.
    from tests.support.tasks import SOURCE

    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "page_view_source.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop("page_view_source", None)


@pytest.fixture(params=["duckdb", "postgres"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    """The Airflow connection ``warehouse``, to an empty database of each kind; where its dataset stands."""
    from airflow_provider_backfill.hooks.backfill import BackfillHook
    from tests.support.tasks import duckdb_connection, postgres_connection

    if request.param == "duckdb":
        connection = duckdb_connection(tmp_path / "web.duckdb")
    else:
        connection = postgres_connection(request.getfixturevalue("postgres_url"))
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", connection)
    monkeypatch.setenv("AIRFLOW__CHUNKED_BACKFILL__WORK_DIR", str(tmp_path / "work"))
    return BackfillHook(conn_id="warehouse", dataset_name="web_raw").target
