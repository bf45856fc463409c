"""The command ``chunked-backfill``: run, plan and look at backfills without a scheduler."""

from __future__ import annotations

from airflow_provider_backfill.cli.program import main

__all__ = ["main"]
