"""What only records: it may wait a little, may fail, and takes no attempt down."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

from airflow_provider_backfill._text import line
from airflow_provider_backfill.engine.destinations.base import Session, Target
from airflow_provider_backfill.engine.statements import Statements

log = logging.getLogger(__name__)

#: How long a statement may take, seconds: somebody may have locked the table, and the rows are waiting.
STATEMENT_SECONDS = 5.0


class Observer(Statements):
    """A table beside the ledger that an attempt writes outside of the transaction that publishes its rows."""

    table: ClassVar[str]

    def _brief(self) -> AbstractContextManager[None]:
        return brief(self._session, self._target)

    def _prepare(self) -> None:
        """Create the table within such a transaction, if it is not there."""
        if not self._has(self.table):
            self._target.dialect.lock(self._session, f"{self._target.dataset_name}|{self.table}")
            self.create()


@contextmanager
def brief(session: Session, target: Target) -> Iterator[None]:
    """A transaction whose statements do not wait for long."""
    with target.dialect.exclusive(target), session.transaction():
        target.dialect.limit_statements(session, STATEMENT_SECONDS)
        yield


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
