"""Which chunks of a backfill the options choose, and what is misuse before anything is opened."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from airflow_provider_backfill.cli import main
from airflow_provider_backfill.cli.choosing import Position, Selection, chunks, names
from airflow_provider_backfill.engine.intervals import stored_bound
from airflow_provider_backfill.engine.plan import BackfillPlan, make_plan
from airflow_provider_backfill.engine.records import ChunkRow
from airflow_provider_backfill.engine.window import Window
from airflow_provider_backfill.exceptions import BoundFormatError, NaiveBoundError
from tests.support.commands import untouched
from tests.unit.test_records import make_row

pytestmark = pytest.mark.unit

DAYS = make_plan("web_events", Window.parse("2026-01-01", "2026-01-06"), "1d")
BERLIN = make_plan("web_events", Window.parse("2026-01-01", "2026-01-06", "Europe/Berlin"), "1d")
NUMBERS = make_plan("web_events", Window.parse(0, 50), 10)
PLACE = ("--destination", "duckdb:///web.duckdb", "--dataset", "web_raw")


def rows(plan: BackfillPlan) -> list[ChunkRow]:
    window = plan.window.interval
    return [
        make_row(
            chunk_id=chunk.chunk_id,
            chunk_from=stored_bound(chunk.interval.start),
            chunk_to=stored_bound(chunk.interval.end),
            backfill_from=stored_bound(window.start),
            backfill_to=stored_bound(window.end),
            chunk_size=plan.chunk_size,
            backfill_id=plan.backfill_id,
        )
        for chunk in plan.chunks
    ]


def chosen(plan: BackfillPlan, *positions: str, **bounds: Any) -> list[int]:
    selection = Selection(
        positions=tuple(map(Position.parse, positions)),
        only_from=bounds.get("only_from"),
        only_to=bounds.get("only_to"),
    )
    with click.Context(main):
        return [row.number for row in selection.of(rows(plan))]


@pytest.mark.parametrize(
    ("plan", "positions", "bounds", "numbers"),
    [
        (DAYS, (), {}, [1, 2, 3, 4, 5]),
        (DAYS, ("5", "000001", "5/5"), {}, [2, 5]),
        # A chunk that a bound cuts is meant whole; one that only touches it is not.
        (DAYS, (), {"only_from": "2026-01-02", "only_to": "2026-01-03"}, [2]),
        (DAYS, (), {"only_from": "2026-01-02T23:59:59Z", "only_to": "2026-01-03T00:00:01Z"}, [2, 3]),
        (DAYS, (), {"only_to": "2026-01-01T01:00:00Z"}, [1]),
        # Dates are days of the backfill's zone.
        (BERLIN, (), {"only_from": "2026-01-02", "only_to": "2026-01-03"}, [2]),
        (NUMBERS, (), {"only_from": "15", "only_to": "30"}, [2, 3]),
    ],
)
def test_the_options_choose(plan, positions, bounds, numbers):
    assert chosen(plan, *positions, **bounds) == numbers


@pytest.mark.parametrize(
    ("plan", "positions", "bounds", "error", "message"),
    [
        (DAYS, ("6",), {}, click.UsageError, "has no chunk 6; it has 5 chunks"),
        (DAYS, ("1/4",), {}, click.UsageError, "has no chunk 1/4"),
        (DAYS, (), {"only_from": "2026-01-06"}, click.UsageError, "has no chunk there; its window is"),
        (DAYS, (), {"only_to": "2026-01-02T00:00:00"}, NaiveBoundError, "only-to .* is timezone-naive"),
        (DAYS, (), {"only_to": "3"}, BoundFormatError, "the window, which is of times"),
        (NUMBERS, (), {"only_to": "2026-01-01"}, BoundFormatError, "the window, which is of whole numbers"),
    ],
)
def test_what_is_not_there_is_not_chosen(plan, positions, bounds, error, message):
    with pytest.raises(error, match=message):
        chosen(plan, *positions, **bounds)


def test_either_chunks_or_a_range():
    with click.Context(main), pytest.raises(click.UsageError, match="Pass either --only, or --only-from"):
        Selection(positions=(Position(number=1),), only_from=None, only_to="2026-01-02")


def test_chunks_are_counted_and_long_lists_are_cut():
    assert [chunks(count) for count in (0, 1, 2)] == ["0 chunks", "1 chunk", "2 chunks"]
    assert names(rows(DAYS)[:2], 5) == "1/5, 2/5"
    many = rows(make_plan("web_events", Window.parse(0, 60), 1))
    assert names(many, 60).endswith(", 50/60 and 10 more")


@pytest.mark.parametrize("command", ["pause", "resume", "cancel", "mark"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*PLACE,), "error: Say which backfill: pass --backfill-id, or SOURCE, --from, --to and --chunk; "),
        (
            (*PLACE, "sources.web:views", "--from", "2026-01-01", "--to", "2026-01-02"),
            "error: Say which backfill: ",
        ),
        (
            (*PLACE, "--backfill-id", "x", "--from", "2026-01-01"),
            "error: Pass either --backfill-id, or SOURCE, --from, --to and --chunk; ",
        ),
        (("--dataset", "web_raw", "--backfill-id", "x"), "error: Pass either --destination or --conn-id; "),
        (("--backfill-id", "x"), "error: Missing option '--dataset'; "),
    ],
)
def test_misuse_is_one_line(command, arguments, message):
    more = ("--done", "--all", "--reason", "x", "--yes") if command == "mark" else ()
    with untouched():
        result = CliRunner().invoke(main, [command, *arguments, *more])
    assert result.exit_code == 2
    assert result.stderr.startswith(message)
    assert len(result.stderr.splitlines()) == 1


def test_a_row_without_a_known_load_is_not_known():
    assert make_row(load_ids="1.0", records_loaded=3).known
    assert make_row(load_ids=None, records_loaded=0).known
    assert not make_row(load_ids=None, records_loaded=None).known
    assert not make_row(load_ids=None, records_loaded=3).known
