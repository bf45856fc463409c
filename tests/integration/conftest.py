"""A fresh database a test, on each dialect, and settings that do not make a test wait."""

from __future__ import annotations

from collections.abc import Callable
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
