"""``run`` and ``plan`` with ``--strategy``: which windows they choose, and what that leaves behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_backfill.engine.choice import Choice, read_bounds
from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.destinations.base import Session
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.marks import ChunkMarks
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.window import ChunkSize
from tests.support.commands import SECONDS, SOURCE, Site
from tests.support.ledgers import plan as year_plan
from tests.support.ledgers import seeded
from tests.support.sources import events, source_of


@pytest.fixture
def site(tmp_path: Path, target: Target) -> Site:
    return Site(home=tmp_path / "home", target=target)


def run(site: Site, *more: str, command: str = "run", chunk: str = "1d", code: int = 0) -> list[str]:
    done = site.invoke(command, SOURCE, "--chunk", chunk, *site.place, *more, code=code)
    return done.out + done.err


def days(first: int, last: int) -> tuple[str, ...]:
    return ("--from", f"2026-01-{first:02d}", "--to", f"2026-01-{last:02d}")


def ran(lines: list[str]) -> list[str]:
    """The days of January whose chunks a run has begun, in order."""
    return [line.partition("[2026-01-")[2][:2] for line in lines if ": running" in line]


def tallies(lines: list[str]) -> list[str]:
    return [line.partition(": ")[2] for line in lines if line.startswith("Backfill ")]


def test_gaps_runs_what_is_missing_window_after_window(site: Site) -> None:
    run(site, *days(2, 3))
    run(site, *days(4, 5))
    lines = run(site, "--strategy", "gaps", *days(1, 7))
    assert ran(lines) == ["01", "03", "05", "06"]
    assert tallies(lines) == [
        f"{count} completed, 0 skipped, 0 claimed elsewhere ({count} chunks)" for count in (1, 1, 2)
    ]
    assert [number for number, _ in site.loaded()] == [1, 2, 3, 4, 5, 6]
    before = site.rows()
    assert run(site, "--strategy", "gaps", *days(1, 7)) == [
        "nothing to do: strategy gaps finds nothing to load"
    ]
    assert site.rows() == before


def test_a_window_of_the_gaps_that_failed_is_resumed_as_it_was(site: Site) -> None:
    run(site, *days(1, 2))
    run(site, *days(5, 6))
    site.tell("broken")
    lines = run(site, "--strategy", "gaps", *days(1, 7), code=1)
    # The other window has its turn.
    assert ran(lines) == ["02", "03", "06"]
    assert "error: not every window is covered, 2 of 4 chunks are completed" in lines[-1]
    backfills = {row.backfill_id for row in site.rows()}
    site.untell("broken")
    lines = run(site, "--strategy", "gaps", *days(1, 7))
    assert ran(lines) == ["03", "04"]
    assert {row.backfill_id for row in site.rows()} == backfills


def test_since_failed_goes_on_from_the_first_failed_chunk(site: Site) -> None:
    assert "nothing to do" in run(site, "--strategy", "since_failed", *days(1, 7))[0]
    run(site, *days(2, 3))
    site.tell("broken")
    run(site, *days(3, 5), code=1)
    site.untell("broken")
    assert ran(run(site, "--strategy", "since_failed", *days(1, 7))) == ["03", "04", "05", "06"]
    assert "nothing to do" in run(site, "--strategy", "since_failed", *days(1, 7))[0]


def test_full_goes_from_the_initial_value_to_now(site: Site) -> None:
    source = site.home / "sources" / "web_events.py"
    source.write_text(source.read_text().replace("datetime(2020, 1, 1", "datetime(2025, 12, 10, 7"))
    shown = json.loads("\n".join(run(site, "--strategy", "full", "--json", command="plan", chunk="1mo")))
    [window] = shown["windows"]
    assert (shown["strategy"], window["from"]) == ("full", "2025-12-10T07:00:00+00:00")
    # A whole number of seconds, which every cursor can say.
    assert len(window["to"]) == len("2026-01-01T00:00:00+00:00")
    assert site.rows() == []
    options = ("--strategy", "full", "--grain", "day", "--to", "2026-01-06T11:00:00Z")
    lines = run(site, *options, chunk="1w")
    assert [number for number, _ in site.loaded()] == [1, 2, 3, 4, 5]
    # What the grain cuts off at the start is a chunk of its own.
    assert len(tallies(lines)) == 2
    assert str(site.rows()[0].interval).endswith("→ 2025-12-11T00:00:00+00:00")
    assert run(site, "--strategy", "full", *days(1, 3), code=2)[-1].startswith(
        "error: strategy 'full' was given a window"
    )


def test_forward_only_records_the_rest_as_done(site: Site) -> None:
    options = ("--strategy", "forward_only", "--since", "2026-01-04", *days(1, 6))
    planned = run(site, *options, command="plan")
    assert planned[0] == "done without running  [2026-01-01T00:00:00+00:00 → 2026-01-04T00:00:00+00:00)"
    assert site.rows() == []
    lines = run(site, *options)
    assert lines[0] == (
        "recorded as done without running: [2026-01-01T00:00:00+00:00 → 2026-01-04T00:00:00+00:00)"
    )
    assert ran(lines) == ["04", "05"]
    assert [number for number, _ in site.loaded()] == [4, 5]
    rows = [(row.status, row.records_loaded, row.covered_by, row.started_at) for row in site.rows()[:3]]
    assert rows == [("completed", None, None, None)] * 3
    # They count: nothing of a later plan loads them, and no lookback does.
    assert "nothing to do" in run(site, "--strategy", "gaps", *days(1, 6))[0]
    run(site, "--strategy", "gaps", "--lookback", "9", *days(1, 7))
    assert [number for number, _ in site.loaded()] == [4, 5, 6]
    assert "before which instant" in run(site, "--strategy", "forward_only", *days(1, 6), code=2)[-1]


def test_lookback_loads_again_once_what_lies_before_a_new_window(site: Site) -> None:
    run(site, *days(1, 5))
    source = site.home / "sources" / "web_events.py"
    source.write_text(source.read_text().replace("day * 10", "day * 100"))
    site.tell("broken")
    lines = run(site, "--strategy", "gaps", "--lookback", "2", *days(1, 6), code=1)
    # The old version of the third day stands, and the one behind waits.
    assert ran(lines) == ["03", "05"]
    assert site.loaded() == [(1, 10), (2, 20), (3, 30), (4, 40), (5, 500)]
    site.untell("broken")
    lines = run(site, "--strategy", "gaps", "--lookback", "2", *days(1, 6))
    assert ran(lines) == ["03", "04"]
    assert site.loaded() == [(1, 10), (2, 20), (3, 300), (4, 400), (5, 500)]
    assert "nothing to do" in run(site, "--strategy", "gaps", "--lookback", "2", *days(1, 6))[0]
    assert ran(run(site, "--lookback", "2", *days(5, 6))) == []
    planned = run(site, "--lookback", "2", *days(6, 7), command="plan")
    numbers = [line.split("loaded again")[1].split() for line in planned if "loaded again" in line]
    assert [(words[1], words[-1]) for words in numbers] == [
        ("4", site.rows()[0].backfill_id),
        ("1", site.rows()[4].backfill_id),
    ]


def test_whole_numbers_have_no_present(site: Site) -> None:
    lines = run(site, "--strategy", "gaps", "--from", "0", chunk="10", code=2)
    assert lines[-1].startswith("error: strategy 'gaps' goes to the present, and whole numbers have none; ")


def test_other_grains_and_missing_bounds_are_refused(site: Site) -> None:
    assert "Missing option '--to'" in run(site, "--from", "2026-01-01", code=2)[-1]
    lines = run(site, "--grain", "day", "--from", "0", "--to", "9", chunk="3", code=2)
    assert "pass all as times or all as whole numbers" in lines[-1]
    assert site.rows() == []


def test_the_ledger_is_read_in_few_statements(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    year = year_plan(365, start="2024-01-01")
    seeded(site.target, year)
    with site.target.connect(SECONDS) as session:
        ledger, marks = Ledger(session, site.target), ChunkMarks(session, site.target)
        ledger.prepare(marks)
        marks.done(ledger.chunks(year.backfill_id), "me@here", "it is there")
    statements: list[str] = []
    execute = Session.execute

    def counted(self: Session, text: str, parameters: Any = None) -> Any:
        statements.append(text)
        return execute(self, text, parameters)

    monkeypatch.setattr(Session, "execute", counted)
    size = ChunkSize.parse("1d")
    chosen = Choice(
        source=SourceSpec(reference=source_of(events())),
        target=site.target,
        chunk=size,
        strategy="gaps",
        **read_bounds(size, start="2023-12-01", end="2025-01-31"),
    ).make()
    assert [str(each.window.interval)[:10] for each in chosen.windows] == ["2023-12-01", "2024-12-31"]
    assert len(statements) <= 5
