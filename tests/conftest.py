"""Fixtures that every test may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import environment as environment
from tests.support.postgres import Postgres, fresh_database

_TESTS = Path(__file__).parent
_KINDS = ("unit", "integration", "system", "chaos")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test with the name of the directory it stands in."""
    for item in items:
        if item.path.is_relative_to(_TESTS):
            kind = item.path.relative_to(_TESTS).parts[0]
            if kind in _KINDS:
                item.add_marker(kind)


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
