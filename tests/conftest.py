"""Fixtures that every test may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import environment as environment
from tests.support.postgres import Postgres, fresh_database

_TESTS = Path(__file__).parent
_KINDS = ("unit", "integration", "system", "chaos", "beside")
#: What no version of Airflow or dlt changes, so that one run of it is enough; and races, which take long.
_NEWEST = frozenset(
    f"test_{name}"
    for name in (
        "attempt_metrics",
        "bounds",
        "cli_marks",
        "cli_mend",
        "cli_refusals",
        "cli_release",
        "cli_stop",
        "cli_strategies",
        "cli_thresholds",
        "controls",
        "coverage",
        "dialects",
        "dialects_installed",
        "docs",
        "docs_contract",
        "docs_reference",
        "docs_strategies",
        "duckdb_processes",
        "estimates",
        "exceptions",
        "fields",
        "gates_asked",
        "grains",
        "grid",
        "intervals",
        "lease",
        "ledger",
        "ledger_claims",
        "ledger_machine",
        "ledger_plans",
        "ledger_races",
        "ledger_steps",
        "overlaps",
        "overview",
        "pace",
        "pgbouncer",
        "plan",
        "postgres_support",
        "processes_support",
        "queries",
        "races",
        "records",
        "report",
        "selections",
        "settings",
        "strategies",
        "strategies_properties",
        "thresholds",
        "turns",
        "visibility",
        "window",
    )
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test with the name of the directory it stands in, and what need not run twice."""
    for item in items:
        if item.path.is_relative_to(_TESTS):
            kind = item.path.relative_to(_TESTS).parts[0]
            if kind in _KINDS:
                item.add_marker(kind)
            if item.path.stem in _NEWEST:
                item.add_marker("newest")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A Postgres server of this process alone, started when the first test asks for it."""
    with Postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> Iterator[str]:
    """The URI of an empty Postgres database for one test."""
    with fresh_database(postgres_server) as url:
        yield url
