"""What the tests of a dialect share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import pytest

from airflow_provider_backfill.engine.destinations.base import Dialect, Session, Target

#: How long anything in here waits for a connection, a lock or a thread, seconds.
PATIENCE = 30.0
_Result = TypeVar("_Result")


class DialectTests:
    """The database that the tests use."""

    @pytest.fixture
    def target(self) -> Target:
        """A dataset in an empty database, made anew for each test."""
        raise NotImplementedError(f"{type(self).__name__} has no fixture target; return a Target from one")

    @pytest.fixture
    def dialect(self, target: Target) -> Dialect:
        return target.dialect

    @pytest.fixture
    def session(self, target: Target, dialect: Dialect) -> Iterator[Session]:
        """An open connection to the database, in which the dataset is there."""
        with target.connect(PATIENCE) as session:
            dialect.create_schema(session, target.dataset_name)
            yield session


@contextmanager
def written(target: Target) -> Iterator[Session]:
    """A transaction of its own that keeps others of this process out where the dialect says so."""
    with target.connect(PATIENCE) as session, target.dialect.exclusive(target), session.transaction():
        yield session


@contextmanager
def undone(session: Session) -> Iterator[None]:
    """A transaction that is rolled back at the end of the block."""
    with suppress(_UndoneError), session.transaction():
        yield
        raise _UndoneError


class _UndoneError(Exception):
    """Ends a transaction."""


def at_once(works: Sequence[Callable[[], _Result]]) -> list[_Result]:
    """Run functions in threads that begin together; their results, or the first error."""
    barrier = threading.Barrier(len(works))

    def begin(work: Callable[[], _Result]) -> _Result:
        barrier.wait(PATIENCE)
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result(PATIENCE) for future in [pool.submit(begin, work) for work in works]]


def only(rows: Sequence[Sequence[Any]]) -> Any:
    """The one value of a result."""
    [[value]] = rows
    return value
