"""Cursors of every format, and windows of whole numbers: rows, ledger, and what the source was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import chdir
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import dlt
import pytest
from click.testing import CliRunner

from airflow_provider_backfill.cli import main
from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.window import ChunkSize, Window
from airflow_provider_backfill.exceptions import (
    BoundFormatError,
    ChunkSizeError,
    OverlapError,
    PlanConflictError,
    PreflightError,
)
from tests.support.worlds import World

BERLIN = ZoneInfo("Europe/Berlin")
FIRST = datetime(2026, 1, 1)  # noqa: DTZ001


@pytest.fixture
def world(target: Target, settings: Settings) -> Iterator[World]:
    world = World(target, settings)
    yield world
    assert world.leftovers() == []


def text(shape: str) -> Callable[[datetime], str]:
    return lambda at: at.strftime(shape)


def epoch(unit: int) -> Callable[[datetime], int]:
    return lambda at: int(at.timestamp()) * unit


#: Format, zone of the window, a row's cursor from an aware time.
FORMATS: dict[str, tuple[str, Any, Callable[[datetime], Any]]] = {
    "datetime": ("datetime", UTC, lambda at: at),
    "naive": ("naive", UTC, lambda at: at.replace(tzinfo=None)),
    "naive-berlin": ("naive@Europe/Berlin", BERLIN, lambda at: at.astimezone(BERLIN).replace(tzinfo=None)),
    "date-berlin": ("date", BERLIN, lambda at: at.astimezone(BERLIN).date()),
    "epoch_s": ("epoch_s", UTC, epoch(1)),
    "epoch_ms": ("epoch_ms", UTC, epoch(10**3)),
    "epoch_us": ("epoch_us", UTC, epoch(10**6)),
    "epoch_ns": ("epoch_ns", UTC, epoch(10**9)),
    "text": ("%Y-%m-%dT%H:%M:%SZ", UTC, text("%Y-%m-%dT%H:%M:%SZ")),
    "text-day": ("%Y-%m-%d", UTC, text("%Y-%m-%d")),
}


def backfill_of(
    world: World, source: Any, start: Any, end: Any, chunk: str, zone: str = "UTC", **spec: Any
) -> Backfill:
    made = world.backfill(source, **spec)
    return Backfill(
        source=made.source,
        target=world.target,
        window=Window.parse(start, end, zone),
        chunk=ChunkSize.parse(chunk),
        settings=world.settings,
    )


@pytest.mark.parametrize("form", FORMATS)
def test_each_chunk_has_its_rows_and_asked_for_no_others(world: World, form: str) -> None:
    cursor_format, zone, value = FORMATS[form]
    starts = [(FIRST + timedelta(days=n)).replace(tzinfo=zone).astimezone(UTC) for n in range(4)]
    # A day's first instant, and its last second.
    rows = [
        {"id": n * 10 + k, "at": value(at)}
        for n, start in enumerate(starts[:3])
        for k, at in enumerate((start, starts[n + 1] - timedelta(seconds=1)))
    ]
    served: list[tuple[Any, Any, int]] = []

    @dlt.source(name="web_events")
    def source() -> Any:
        @dlt.resource
        def events(at: Any = dlt.sources.incremental("at")) -> Any:
            found = [row for row in rows if at.start_value <= row["at"] < at.end_value]
            served.append((at.start_value, at.end_value, len(found)))
            yield found

        return events

    backfill = backfill_of(
        world, source, "2026-01-01", "2026-01-04", "1d", str(zone), cursor_format={"*": cursor_format}
    )
    plan = backfill.plan()
    backfill.seed(plan)
    assert [outcome.records for outcome in world.run(backfill, plan)] == [2, 2, 2]
    assert world.query("SELECT id FROM @events ORDER BY id") == [(n,) for n in (0, 1, 10, 11, 20, 21)]
    assert served == [(value(low), value(high), 2) for low, high in pairwise(starts)]
    # The forward pipeline's bookmark is neither read nor written.
    assert not world.target_has("_dlt_pipeline_state")


def test_a_naive_time_of_another_zone_lies_in_the_chunk_of_its_instant(world: World) -> None:
    """2026-01-02 00:30 in Berlin is 2026-01-01 23:30 in UTC."""
    rows = [{"id": 1, "at": datetime(2026, 1, 2, 0, 30)}]  # noqa: DTZ001

    @dlt.source(name="web_events")
    def source() -> Any:
        @dlt.resource
        def events(at: Any = dlt.sources.incremental("at", initial_value=FIRST)) -> Any:
            yield rows

        return events

    for name, form, expected in (
        ("web_events", "naive@Europe/Berlin", [1, 0]),
        ("web_events_utc", "naive", [0, 1]),
        ("web_events_dlt", "", [0, 1]),
    ):
        formats = {"events": form} if form else {}
        backfill = backfill_of(
            world, source, "2026-01-01", "2026-01-03", "1d", cursor_format=formats, name=name
        )
        plan = backfill.plan()
        backfill.seed(plan)
        assert [outcome.records for outcome in world.run(backfill, plan)] == expected


def numbers(asked: list[Any] | None = None, name: str = "web_events") -> Callable[[], Any]:
    @dlt.source(name=name)
    def source() -> Any:
        @dlt.resource
        def events(id: Any = dlt.sources.incremental("id", initial_value=0)) -> Any:
            if asked is not None:
                asked.append((id.start_value, id.end_value))
            yield [{"id": number} for number in range(id.start_value, min(id.end_value, 25))]

        return events

    return source


def test_a_window_of_whole_numbers(world: World) -> None:
    asked: list[Any] = []
    backfill = backfill_of(world, numbers(asked), 0, "30", "10")
    plan = backfill.plan()
    backfill.seed(plan)
    assert [outcome.records for outcome in world.run(backfill, plan)] == [10, 10, 5]
    assert asked == [(0, 10), (10, 20), (20, 30)]
    assert world.query("SELECT count(*), count(DISTINCT id), max(id) FROM @events") == [(25, 25, 24)]
    row = world.row(plan, 3)
    assert (row.interval.start, row.interval.end, row.window.end, row.chunk_size) == (20, 30, 30, "10")
    assert row.chunk_from == datetime(1970, 1, 1, 0, 0, 0, 20, tzinfo=UTC)
    document = row.as_json()
    assert [document[name] for name in ("chunk_from", "chunk_to", "backfill_from", "backfill_to")] == [
        20,
        30,
        0,
        30,
    ]
    assert [outcome.loaded for outcome in world.run(backfill, plan)] == [False] * 3


def test_negative_and_large_numbers(world: World) -> None:
    asked: list[Any] = []
    low, high = -(6 * 10**16), 25 * 10**16
    backfill = backfill_of(world, numbers(asked), low, high, str(155 * 10**15))
    plan = backfill.plan()
    backfill.seed(plan)
    assert [row.interval.start for row in (world.row(plan, 1), world.row(plan, 2))] == [low, 95 * 10**15]
    world.run(backfill, plan, 2)
    assert asked == [(95 * 10**15, high)]


@pytest.mark.parametrize(("start", "end"), [(0, 10**18), (-(10**17), 0)])
def test_numbers_that_the_ledger_cannot_keep_are_refused(world: World, start: int, end: int) -> None:
    backfill = backfill_of(world, numbers(), start, end, str(10**17))
    with pytest.raises(BoundFormatError, match="the whole numbers that the ledger can keep"):
        backfill.plan()
    assert not world.target_has("_dlt_backfills")


def test_whole_number_backfills_of_a_source_may_not_overlap(world: World) -> None:
    first = backfill_of(world, numbers(), 0, 20, "10")
    plan = first.plan()
    first.seed(plan)
    world.run(first, plan, 2)
    with pytest.raises(OverlapError, match=r"has completed 1 chunk\(s\) in this window \(10 → 20\)"):
        backfill_of(world, numbers(), 15, 30, "15").plan()
    beside = backfill_of(world, numbers(), 20, 30, "10")
    plan = beside.plan()
    beside.seed(plan)
    assert [outcome.records for outcome in world.run(beside, plan)] == [5]
    world.query(f"UPDATE @_dlt_backfills SET chunk_size = '7' WHERE backfill_id = '{plan.backfill_id}'")
    with pytest.raises(PlanConflictError):
        beside.plan()


@pytest.mark.parametrize(
    ("start", "end", "chunk", "error"),
    [(0, 10, "1d", ChunkSizeError), ("2026-01-01", "2026-01-02", "10", ChunkSizeError)],
)
def test_numbers_and_times_do_not_mix(
    world: World, start: Any, end: Any, chunk: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        backfill_of(world, numbers(), start, end, chunk).plan()


def refusal(backfill: Backfill) -> str:
    with pytest.raises(PreflightError) as caught:
        backfill.plan()
    with backfill.target.connect(5) as session:
        table = backfill.target.dialect.table_columns(session, backfill.target.dataset_name, "_dlt_backfills")
    assert not table
    return str(caught.value)


def test_what_cannot_be_bound_is_refused_before_anything_is_written(
    duck_target: Target, settings: Settings
) -> None:
    world = World(duck_target, settings)

    @dlt.source(name="web_events")
    def source() -> Any:
        def resource(name: str, cursor: Any) -> Any:
            return dlt.resource([], name=name, incremental=cursor)

        return [
            resource("days", dlt.sources.incremental("at", initial_value=date(2026, 1, 1))),
            resource("seconds", dlt.sources.incremental("at", initial_value=0)),
            resource("late", dlt.sources.incremental("at", initial_value="2027")),
        ]

    formats = {"seconds": "epoch_s", "late": "%Y-%m-%d %H:%M:%S.%f"}
    window = ("2026-01-01T00:00:00.5Z", "2026-01-02T00:00:00Z", "6h")
    message = refusal(backfill_of(world, source, *window, cursor_format=formats))
    assert "resource 'days': cursor format 'date' has no time of day" in message
    assert "resource 'seconds': cursor format 'epoch_s' has whole seconds" in message
    assert "resource 'late': its initial_value '2027' lies behind the first chunk" in message
    message = refusal(backfill_of(world, source, 0, 10, "5", cursor_format=formats))
    assert "resource 'days': its cursor is of type date, and the window is of whole numbers" in message
    assert "resource 'seconds': cursor format 'epoch_s' is of times" in message


SOURCE = """
import dlt

@dlt.source(name="shop")
def shop():
    @dlt.resource
    def orders(at=dlt.sources.incremental("at")):
        yield [{"id": n, "at": f"2026-01-0{n}T12:00:00Z"} for n in range(1, 6)]

    @dlt.resource
    def ids(n=dlt.sources.incremental("n", initial_value=0)):
        yield [{"n": n} for n in range(100)]

    return orders, ids
"""


def command(folder: Path, target: Target, *arguments: str, code: int = 0) -> str:
    place = ("--destination", f"duckdb:///{target.credentials}", "--dataset", target.dataset_name)
    with chdir(folder):
        result = CliRunner().invoke(main, [*arguments, *place], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def test_the_command(duck_target: Target, sources: Path) -> None:
    (sources / "shop_source.py").write_text(SOURCE)
    orders = ("shop_source:shop", "--resources", "orders", "--from", "2026-01-01", "--to", "2026-01-06")
    refused = command(sources, duck_target, "plan", *orders, "--chunk", "1d", code=2)
    assert "(see docs/refusals.md#cursor-type)" in refused
    shape = ("--chunk", "1d", "--cursor-format", "orders=%Y-%m-%dT%H:%M:%SZ")
    out = command(sources, duck_target, "run", *orders, *shape)
    assert out.count("completed (1 records)") == 5
    ids = ("shop_source:shop", "--resources", "ids", "--from", "0", "--to", "100", "--chunk", "40")
    out = command(sources, duck_target, "run", *ids)
    assert "chunk 3/3 [80 → 100): completed (20 records)" in out
    planned = json.loads(command(sources, duck_target, "plan", *ids, "--json"))
    last = {"from": 80, "to": 100, "label": "80 → 100"}
    assert (planned["from"], planned["last"], planned["completed"]) == (0, last, 3)
    out = command(sources, duck_target, "status")
    assert "shop:ids [0 → 100) by 40: 3 completed" in out
    assert "80 → 100" in out
    status = json.loads(command(sources, duck_target, "status", "--json"))
    assert [summary["to"] for summary in status["backfills"] if summary["resources"] == ["ids"]] == [100]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--cursor-format", "epoch"), "cursor format 'epoch' is unknown"),
        (("--cursor-format", "date", "--cursor-format", "naive"), "the format of the others is given twice"),
        (
            ("--cursor-format", "orders=date", "--cursor-format", "orders=naive"),
            "the format of orders is given",
        ),
        (("--cursor-format", "order=date"), "is for resource 'order', which the source does not have"),
        (("--cursor-format", "=date"), "is not of the form [RESOURCE=]FORMAT"),
        (("--cursor-format", "%d.%m.%Y"), "do not sort"),
    ],
)
def test_unusable_formats_are_refused_by_the_command(
    duck_target: Target, sources: Path, given: tuple[str, ...], message: str
) -> None:
    (sources / "shop_source.py").write_text(SOURCE)
    window = ("--from", "2026-01-01", "--to", "2026-01-06", "--chunk", "1d")
    out = command(sources, duck_target, "plan", "shop_source:shop", *window, *given, code=2)
    assert message in out
