"""Backfill a historical window through Airflow and dlt in resumable, exactly-once chunks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = ["BackfillHook", "ChunkedBackfillOperator", "__version__"]

if TYPE_CHECKING:
    from airflow_provider_backfill.hooks.backfill import BackfillHook
    from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator

_LAZY_NAMES = {
    "BackfillHook": "airflow_provider_backfill.hooks.backfill",
    "ChunkedBackfillOperator": "airflow_provider_backfill.operators.backfill",
}


def __getattr__(name: str) -> object:
    # Airflow imports this package while it reads its own configuration, so nothing of Airflow, dlt or
    # a database driver may load here (PEP 562).
    try:
        module = _LAZY_NAMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
