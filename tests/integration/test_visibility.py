"""Whoever reads the tables while a chunk is loaded sees all of it or nothing of it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import dlt
import pyarrow as pa
import pytest
from dlt.extract.source import DltSource

from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.runner import this_claimant
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.window import ChunkSize, Window
from tests.support.sources import EPOCH, FIRST

DAY = 86_400
#: Every so many seconds a row has two nested ones.
NESTING = 1_000

Look = tuple[int, int, str]


def pages(per_day: int) -> Callable[[], DltSource]:
    """A source of two days, the first with one in a hundred of the second's rows, in pages of 10,000."""

    @dlt.source(name="web_events")
    def make() -> Any:
        @dlt.resource
        def events(at: Any = dlt.sources.incremental("at", initial_value=EPOCH)) -> Iterator[list[Any]]:
            yield from numbered(per_day)

        return events

    return make


def numbered(per_day: int) -> Iterator[list[dict[str, Any]]]:
    for day, count in ((0, per_day // 100), (1, per_day)):
        begin, step = FIRST + timedelta(days=day), timedelta(seconds=DAY / count)
        for page in range(0, count, 10_000):
            numbers = range(page, min(page + 10_000, count))
            yield [row(number, begin + number * step) for number in numbers]


def row(number: int, at: datetime) -> dict[str, Any]:
    items = [{"n": 1}, {"n": 2}] if number % NESTING == 0 else []
    return {"id": number, "at": at, "items": items}


def arrow(per_day: int) -> Callable[[], DltSource]:
    """The same rows as Arrow tables, which say no load and have no nested ones."""

    @dlt.source(name="web_events")
    def make() -> Any:
        @dlt.resource
        def events(at: Any = dlt.sources.incremental[datetime]("at")) -> Iterator[Any]:
            for page in numbered(per_day):
                yield pa.Table.from_pylist([{"id": row["id"], "at": row["at"]} for row in page])

        return events

    return make


@contextmanager
def looking(target: Target, backfill_id: str, *, nested: bool = True) -> Iterator[Counter[Look]]:
    """Count rows, nested rows and the second chunk's state in a loop, from a connection of its own."""
    dataset = target.dialect.quote(target.dataset_name)
    items = f"(SELECT count(*) FROM {dataset}.events__items)" if nested else "0"
    query = (
        f"SELECT (SELECT count(*) FROM {dataset}.events), {items},"
        f" (SELECT status FROM {target.ledger} WHERE backfill_id = :backfill_id AND chunk_id = '000001')"
    )
    seen: Counter[Look] = Counter()
    begun, stop = threading.Event(), threading.Event()

    def look() -> None:
        with target.connect(10) as session:
            while True:
                last = stop.is_set()
                [(rows, nested, status)] = session.execute(query, {"backfill_id": backfill_id})
                seen[rows, nested, status] += 1
                begun.set()
                if last:
                    return
                # Often enough, without taking the processor from the attempt.
                time.sleep(0.005)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        assert begun.wait(10)
        yield seen
    finally:
        stop.set()
        reader.join()


def two_days(
    target: Target,
    settings: Settings,
    per_day: int,
    source: Callable[[int], Callable[[], DltSource]] = pages,
) -> Backfill:
    return Backfill(
        source=SourceSpec(reference=source(per_day)),
        target=target,
        window=Window.parse("2024-01-01", "2024-01-03"),
        chunk=ChunkSize.parse("1d"),
        settings=settings,
    )


@pytest.mark.timeout(180)
def test_consumer_sees_the_count_before_or_the_count_after(target: Target, settings: Settings) -> None:
    backfill = two_days(target, settings, DAY)
    plan = backfill.plan()
    backfill.seed(plan)
    first, second = (chunk.chunk_id for chunk in plan.chunks)
    before = backfill.runner.run_chunk(plan.backfill_id, first, this_claimant()).records

    with looking(target, plan.backfill_id) as seen:
        backfill.runner.run_chunk(plan.backfill_id, second, this_claimant())

    old, new = (DAY // 100, 2), (DAY + DAY // 100, 2 + 2 * 87)
    assert before == sum(old)
    assert set(seen) == {(*old, "pending"), (*old, "running"), (*new, "completed")}
    # It did look while the attempt ran, and not only before and after.
    assert seen[*old, "running"] > 20


@pytest.mark.timeout(180)
def test_loading_a_chunk_again_never_shows_it_missing_or_twice(target: Target, settings: Settings) -> None:
    backfill = two_days(target, settings, DAY // 10)
    plan = backfill.plan()
    backfill.seed(plan)
    for chunk in plan.chunks:
        backfill.runner.run_chunk(plan.backfill_id, chunk.chunk_id, this_claimant())
    with target.connect(10) as session:
        Ledger(session, target).restate(plan.backfill_id, "000001")

    with looking(target, plan.backfill_id) as seen:
        assert backfill.runner.run_chunk(plan.backfill_id, "000001", this_claimant()).loaded

    rows, nested = DAY // 10 + DAY // 1_000, 2 + 2 * 9
    assert {look[:2] for look in seen} == {(rows, nested)}
    assert seen[rows, nested, "running"] > 10
    assert seen[rows, nested, "completed"] > 0


@pytest.mark.timeout(180)
def test_the_same_holds_where_rows_are_told_by_their_cursor(target: Target, settings: Settings) -> None:
    backfill = two_days(target, settings, DAY // 10, arrow)
    plan = backfill.plan()
    backfill.seed(plan)
    for chunk in plan.chunks:
        backfill.runner.run_chunk(plan.backfill_id, chunk.chunk_id, this_claimant())
    with target.connect(10) as session:
        backfill.runner.restate(session, plan.backfill_id, ["000001"])

    with looking(target, plan.backfill_id, nested=False) as seen:
        assert backfill.runner.run_chunk(plan.backfill_id, "000001", this_claimant()).loaded

    rows = DAY // 10 + DAY // 1_000
    assert {look[:2] for look in seen} == {(rows, 0)}
    assert seen[rows, 0, "running"] > 10
    assert seen[rows, 0, "completed"] > 0
