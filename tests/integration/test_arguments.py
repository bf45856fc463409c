"""Sources that take a chunk's bounds as plain arguments, and chunks without rows."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import chdir
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dlt
import pytest
from click.testing import CliRunner

from airflow_provider_backfill.cli import main
from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.records import ChunkStatus
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.window import ChunkSize, Window
from airflow_provider_backfill.exceptions import (
    AttemptError,
    ChoiceError,
    ChunkFieldError,
    EmptyChunkError,
    PreflightError,
)
from tests.support.worlds import World

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [{"id": n, "at": FIRST + timedelta(hours=12 * n)} for n in range(8)]


@pytest.fixture
def world(target: Target, settings: Settings) -> Iterator[World]:
    world = World(target, settings)
    yield world
    assert world.leftovers() == []


def made(world: World, **spec: Any) -> Backfill:
    return Backfill(
        source=SourceSpec(**spec),
        target=world.target,
        window=Window.parse("2026-01-01", "2026-01-05"),
        chunk=ChunkSize.parse("1d"),
        settings=world.settings,
    )


def days(asked: list[Any], more: timedelta = timedelta(0), column: Any = lambda at: at) -> Any:
    """A source without a cursor, which takes days, and yields ``more`` than it was asked for."""

    @dlt.source(name="web_events")
    def source(since: Any, until: Any = None, key: str = "") -> Any:
        @dlt.resource
        def events() -> Any:
            asked.append((since, until, key))
            low = datetime.combine(since, datetime.min.time(), UTC)
            high = datetime.combine(until, datetime.min.time(), UTC)
            yield [{**row, "at": column(row["at"])} for row in ROWS if low - more <= row["at"] < high + more]

        return events

    return source


DATES = {"since": "{chunk.start_date}", "until": "{chunk.end_date}", "key": "k-{chunk.id}"}


def test_each_chunk_fills_in_its_bounds(world: World) -> None:
    asked: list[Any] = []
    backfill = made(world, reference=days(asked), arguments=DATES, bounded_by="kwargs")
    plan = backfill.plan()
    backfill.seed(plan)
    assert [outcome.records for outcome in world.run(backfill, plan)] == [2, 2, 2, 2]
    assert world.query("SELECT id FROM @events ORDER BY id") == [(n,) for n in range(8)]
    assert asked == [
        (date(2026, 1, n), date(2026, 1, n + 1), f"k-{plan.chunks[n - 1].run_id}") for n in range(1, 5)
    ]


@pytest.mark.parametrize(
    ("form", "column"), [(None, lambda at: at), ("epoch_s", lambda at: int(at.timestamp()))]
)
def test_rows_outside_of_the_chunk_are_dropped_and_counted(
    world: World, form: str | None, column: Any, caplog: pytest.LogCaptureFixture
) -> None:
    backfill = made(
        world,
        reference=days([], timedelta(hours=24), column),
        arguments=DATES,
        bounded_by="kwargs",
        cursor_column="at",
        cursor_format={"*": form} if form else {},
    )
    plan = backfill.plan()
    backfill.seed(plan)
    with caplog.at_level(logging.WARNING):
        outcomes = world.run(backfill, plan)
    assert [(outcome.records, outcome.dropped) for outcome in outcomes] == [(2, 2), (2, 4), (2, 4), (2, 2)]
    assert world.query("SELECT id FROM @events ORDER BY id") == [(n,) for n in range(8)]
    said = [record.getMessage() for record in caplog.records if "outside" in record.getMessage()]
    assert [text.partition("yielded ")[2].partition(" ")[0] for text in said] == ["2", "4", "4", "2"]


def test_a_source_that_no_argument_bounds_is_refused(world: World) -> None:
    fixed = {"since": date(2026, 1, 1), "until": date(2026, 2, 1)}
    for arguments in (fixed, {**fixed, "key": "{chunk.id}"}):
        with pytest.raises(PreflightError) as caught:
            made(world, reference=days([]), arguments=arguments, bounded_by="kwargs").plan()
        assert [finding.rule for finding in caught.value.findings] == ["chunk-argument"]
    with pytest.raises(ChunkFieldError, match=r"'\{chunk.start_date\}' .* pass bounded_by='kwargs'"):
        made(world, reference=days([]), arguments=DATES).plan()
    with pytest.raises(ChoiceError, match="bounded_by 'cursors' is unknown; pass cursor or kwargs"):
        made(world, reference=days([]), bounded_by="cursors")


def sparse(numbers: list[int]) -> Any:
    @dlt.source(name="web_events")
    def source() -> Any:
        @dlt.resource
        def events(at: Any = dlt.sources.incremental("at", initial_value=FIRST)) -> Any:
            yield [row for row in ROWS if row["id"] in numbers]

        return events

    return source


@pytest.mark.parametrize(
    ("numbers", "on_empty", "order", "warned"),
    [
        ([0, 6], "warn", [1, 2, 3, 4], ["2 by 1", "3 by 4"]),
        ([0, 6], "ok", [1, 2, 3, 4], []),
        ([0, 1, 2, 3, 4, 6], "warn", [1, 2, 3, 4], []),
        ([], "warn", [1, 2, 3, 4], []),
        # Whichever comes second speaks, the one with rows too.
        ([2], "warn", [1, 2, 3, 4], ["1 by 2", "3 by 2"]),
        ([2], "warn", [3, 1, 4, 2], ["1 by 2", "3 by 2"]),
        ([2], "warn", [2, 3, 1, 4], ["3 by 2", "1 by 2"]),
        ([2], "ok", [3, 1, 4, 2], []),
        # One between two is spoken of once, unless the one behind comes first.
        ([0, 4], "warn", [1, 2, 3], ["2 by 1"]),
        ([0, 4], "warn", [2, 1, 3], ["2 by 1"]),
        ([0, 4], "warn", [1, 3, 2], ["2 by 1"]),
        ([0, 4], "warn", [2, 3, 1], ["2 by 3", "2 by 1"]),
    ],
)
def test_an_empty_chunk_beside_a_full_one_is_warned_of(
    world: World,
    numbers: list[int],
    on_empty: str,
    order: list[int],
    warned: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    backfill = made(world, reference=sparse(numbers), on_empty=on_empty)
    plan = backfill.plan()
    backfill.seed(plan)
    with caplog.at_level(logging.WARNING):
        world.run(backfill, plan, *order)
    said = [record.getMessage() for record in caplog.records if "has no rows" in record.getMessage()]
    shape = re.compile(r"chunk (\d) \((.+)\) has no rows, and chunk (\d) beside it has 1: ")
    found = [match.groups() for text in said if (match := shape.match(text))]
    assert [f"{empty} by {full}" for empty, _, full in found] == warned
    for empty, interval, _ in found:
        assert interval == str(plan.chunks[int(empty) - 1].interval)


def test_an_empty_chunk_may_be_an_error(world: World) -> None:
    backfill = made(world, reference=sparse([0]), on_empty="fail")
    plan = backfill.plan()
    backfill.seed(plan)
    world.run(backfill, plan, 1)
    with pytest.raises(EmptyChunkError, match="chunk 2 failed: the source had no row for it") as caught:
        world.run(backfill, plan, 2)
    assert isinstance(caught.value, AttemptError)
    row = world.row(plan, 2)
    assert row.status is ChunkStatus.FAILED
    assert "the source had no row for it" in str(row.error)
    assert world.query("SELECT count(*) FROM @_dlt_loads") == [(1,)]
    with pytest.raises(ChoiceError, match="on_empty 'never' is unknown; pass ok or warn or fail"):
        made(world, reference=sparse([0]), on_empty="never")


SOURCE = """
from datetime import UTC, datetime, timedelta

import dlt

@dlt.source(name="shop")
def shop(since, days=1):
    start = datetime.fromisoformat(since)

    @dlt.resource
    def orders():
        yield [{"id": n, "at": start + timedelta(hours=n)} for n in range(48 * days)]

    return orders
"""


def test_the_command(duck_target: Target, sources: Path) -> None:
    (sources / "ads_source.py").write_text(SOURCE)
    place = ("--destination", f"duckdb:///{duck_target.credentials}", "--dataset", duck_target.dataset_name)
    window = ("--from", "2026-01-01", "--to", "2026-01-03", "--chunk", "1d")
    arguments = ("--set", "since={chunk.start:%Y-%m-%dT%H:%M:%S%z}", "--cursor-column", "at")

    def command(name: str, *more: str, code: int = 0) -> str:
        with chdir(sources):
            result = CliRunner().invoke(main, [name, "ads_source:shop", *more], catch_exceptions=False)
        assert result.exit_code == code, result.output
        return str(result.output)

    assert "pass bounded_by='kwargs' (--bounded-by kwargs)" in command(
        "plan", *window, *arguments, *place, code=2
    )
    out = command("run", *window, *arguments, "--bounded-by", "kwargs", *place)
    assert out.count("completed (24 records)") == 2
    assert "24 rows outside of it, which were dropped" in out
    ask = ("--set", "since={chunk.start:%Y-%m-%d}", "--bounded-by", "kwargs")
    for more in ((), window):
        assert "nothing is refused" in command("validate", *ask, *more)
    assert "(see docs/refusals.md#chunk-argument)" in command(
        "validate", "--set", "since=2026-01-01", "--bounded-by", "kwargs", code=2
    )
