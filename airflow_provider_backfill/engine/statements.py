"""What the classes that speak to a dataset's own tables share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from airflow_provider_backfill.engine.destinations.base import LEDGER_TABLE, Session, Target
from airflow_provider_backfill.engine.queries import load_queries

MAPS_TABLE = "_dlt_backfill_maps"
INPUTS_TABLE = "_dlt_backfill_inputs"
TASKS_TABLE = "_dlt_backfill_tasks"
#: Tables that dlt-ops knows, too.
REJECTED_TABLE = "_dlt_rejected"
RUNS_TABLE = "_dlt_ops_runs"
TRACES_TABLE = "_dlt_trace"
CONTROLS_TABLE = "_dlt_backfill_controls"
MARKS_TABLE = "_dlt_backfill_marks"


class Statements:
    """The named statements of one file, over one open connection.

    Args:
        session: The connection; the caller opens and closes it.
        target: Whose dataset the tables stand in.
    """

    file_name: ClassVar[str]

    def __init__(self, session: Session, target: Target) -> None:
        self._session = session
        self._target = target
        self._queries = load_queries(self.file_name)

    def create(self) -> None:
        """Create the table, if it is not there. Whoever does so holds the lock of `Ledger.prepare`."""
        self._run("create")

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        """A transaction of whoever has the dataset's lock of that name."""
        dialect = self._target.dialect
        with dialect.exclusive(self._target), self._session.transaction():
            dialect.lock(self._session, f"{self._target.dataset_name}|{key}")
            yield

    def _run(
        self, name: str, parameters: Mapping[str, Any] | None = None, **words: str
    ) -> list[tuple[Any, ...]]:
        tables = {
            "ledger": self._target.ledger,
            "maps": self._target.table(MAPS_TABLE),
            "inputs": self._target.table(INPUTS_TABLE),
            "tasks": self._target.table(TASKS_TABLE),
            "rejected": self._target.table(REJECTED_TABLE),
            "runs": self._target.table(RUNS_TABLE),
            "traces": self._target.table(TRACES_TABLE),
            "controls": self._target.table(CONTROLS_TABLE),
            "marks": self._target.table(MARKS_TABLE),
        }
        # The loads of a chunk are known, or it brought nothing. One that was marked as done has no count.
        known = "(other.load_ids IS NOT NULL OR other.records_loaded = 0)"
        statement = self._queries[name].format(
            **tables, **self._target.dialect.fragments, known=known, **words
        )
        return self._session.execute(statement, parameters)

    def _has(self, table: str, column: str | None = None) -> bool:
        columns = self._target.dialect.table_columns(self._session, self._target.dataset_name, table)
        return bool(columns) if column is None else column in columns


__all__ = [
    "CONTROLS_TABLE",
    "INPUTS_TABLE",
    "LEDGER_TABLE",
    "MAPS_TABLE",
    "MARKS_TABLE",
    "REJECTED_TABLE",
    "RUNS_TABLE",
    "TASKS_TABLE",
    "TRACES_TABLE",
    "Statements",
]
