"""What only records: it may wait a little, may fail, and takes no attempt down."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

from airflow_provider_backfill._text import line
from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.engine.statements import Statements

log = logging.getLogger(__name__)

#: How long a statement may take, seconds: somebody may have locked the table, and the rows are waiting.
STATEMENT_SECONDS = 5.0


class Observer(Statements):
    """A table beside the ledger that an attempt writes outside of the transaction that publishes its rows."""

    table: ClassVar[str]

    @contextmanager
    def _brief(self) -> Iterator[None]:
        """A transaction whose statements do not wait for long."""
        dialect = self._target.dialect
        with dialect.exclusive(self._target), self._session.transaction():
            dialect.limit_statements(self._session, STATEMENT_SECONDS)
            yield

    def _prepare(self) -> None:
        """Create the table within such a transaction, if it is not there."""
        if not self._has(self.table):
            self._target.dialect.lock(self._session, f"{self._target.dataset_name}|{self.table}")
            self.create()


def recorded(step: Callable[[], None], target: Target, what: str) -> bool:
    """Whether a step of an observer succeeded; one that fails is one line in the log.

    Args:
        step: What to do.
        target: Whose password is kept out of the log.
        what: What is missing then, for example ``chunk 3: the run is not recorded in _dlt_ops_runs``.
    """
    try:
        step()
    except Exception as trouble:  # noqa: BLE001
        log.error("%s: %s", what, line(target.redact(str(trouble))))
        return False
    return True
