"""Tests that show whether a dialect can carry the ledger; they need pytest. See `DialectSuite`."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "airflow_provider_backfill.testing.ledgers",
    "airflow_provider_backfill.testing.loads",
    "airflow_provider_backfill.testing.sessions",
)

from airflow_provider_backfill.testing.suite import DialectSuite  # noqa: E402 - once they are to be rewritten

__all__ = ["DialectSuite"]
