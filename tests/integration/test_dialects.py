"""The suite that any dialect has to pass, on ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.testing import DialectSuite
from tests.integration.conftest import duckdb_target, postgres_target


class TestDuckdb(DialectSuite):
    @pytest.fixture
    def target(self, tmp_path: Path) -> Target:
        return duckdb_target(tmp_path / "web.duckdb")


class TestPostgres(DialectSuite):
    @pytest.fixture
    def target(self, postgres_url: str) -> Target:
        return postgres_target(postgres_url)
