"""Metrics as lines of JSON in a file."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from airflow_provider_backfill.engine.metrics import Metric


class JsonLines:
    """Adds one line a metric to a file, which is made when the first one comes.

    Args:
        path: The file; what it has stays.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, metric: Metric) -> None:
        """Add a line.

        Raises:
            OSError: The file cannot be written.
        """
        document = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "name": metric.name,
            "kind": metric.kind,
            "value": round(metric.value, 6),
            "tags": dict(metric.tags),
            **metric.subject,
        }
        # In one piece, so that other commands may write to the same file.
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(document) + "\n")
