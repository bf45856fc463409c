"""What is measured while a backfill runs, and that it runs all the same when that fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_backfill.engine import drive
from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.gates import parse_assertions
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.metrics import BestEffort
from airflow_provider_backfill.engine.runner import this_claimant
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.signals import Stopped
from airflow_provider_backfill.exceptions import AttemptError, ClaimLostError
from tests.support.commands import BACKFILL_ID, Site
from tests.support.ledgers import end_leases
from tests.support.metrics import Broken, Kept
from tests.support.sources import events, source_of
from tests.support.worlds import IDS, World, steal


@pytest.fixture
def world(target: Target, settings: Settings) -> World:
    return World(target, settings)


@pytest.fixture
def one_world(duck_target: Target, settings: Settings) -> World:
    """On DuckDB alone: what is measured is not the database's doing."""
    return World(duck_target, settings)


def measured(backfill: Backfill) -> tuple[Backfill, Kept]:
    kept = Kept()
    return replace(backfill, sink=kept), kept


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


def test_each_attempt_counts(world: World) -> None:
    rows: list[dict[str, Any]] = events(3)

    def some() -> Iterator[dict[str, Any]]:
        yield from rows
        if len(rows) < 3:
            raise RuntimeError("the API said 503")

    made = parse_assertions(
        [{"sql": "id <> 2", "on_failure": "quarantine"}, {"sql": "id <> 3", "on_failure": "warn"}]
    )
    backfill, plan = world.seeded(source_of(some), assertions=made)
    backfill, kept = measured(backfill)
    dropped = rows.pop()
    with pytest.raises(AttemptError):
        world.run(backfill, plan, 1)
    assert kept.counts() == {"chunks.failed": 1}
    rows.append(dropped)
    for number in (1, 2, 3, 3):
        world.run(backfill, plan, number)
    assert kept.counts() == {
        "chunks.completed": 3,
        "chunks.failed": 1,
        "rows.loaded": 6,
        "rows.rejected": 1,
        "assertions.warned": 1,
    }
    # The chunk that was there already tells how far the backfill is, too.
    assert kept.values("progress.ratio") == pytest.approx([1 / 3, 2 / 3, 1, 1])
    durations = kept.of("chunk.duration")
    assert [metric.tags["outcome"] for metric in durations] == ["failed", *3 * ["completed"]]
    assert all(metric.value > 0 for metric in durations)
    assert kept.of("chunks.completed")[1].subject == {"backfill_id": plan.backfill_id, "chunk_id": "000001"}
    common = {"source": "web_events", "dataset": "web_raw"}
    assert all(common.items() <= metric.tags.items() for metric in kept.metrics)


def test_a_lease_that_is_lost_is_no_failure(one_world: World) -> None:
    world = one_world

    def rows() -> Iterator[dict[str, Any]]:
        yield from events()
        steal(world, plan)

    backfill, plan = world.seeded(source_of(rows))
    backfill, kept = measured(backfill)
    with pytest.raises(ClaimLostError):
        world.run(backfill, plan, 1)
    assert kept.counts() == {"leases.lost": 1}
    assert [metric.tags["outcome"] for metric in kept.of("chunk.duration")] == ["lost"]


def test_one_that_ran_out_is_told_by_whoever_takes_the_chunk_over(one_world: World) -> None:
    world = one_world
    backfill, plan = world.seeded(source_of(events()))
    with world.target.connect(5) as session:
        ledger = Ledger(session, world.target)
        assert ledger.claim(ledger.chunk(plan.backfill_id, "000000"), this_claimant(), 60)
    end_leases(world.target)
    backfill, kept = measured(backfill)
    world.run(backfill, plan, 1)
    assert kept.counts() == {"leases.lapsed": 1, "chunks.completed": 1, "rows.loaded": 3}


def test_one_that_is_told_to_stop_is_no_failure(one_world: World) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        raise Stopped("SIGTERM")
        yield {}

    backfill, plan = one_world.seeded(source_of(rows))
    backfill, kept = measured(backfill)
    with pytest.raises(Stopped):
        one_world.run(backfill, plan, 1)
    assert kept.counts() == {"chunks.stopped": 1}


def test_nobody_who_does_not_listen_is_asked(one_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def standing(*_: Any) -> None:
        raise AssertionError("the ledger was asked")

    monkeypatch.setattr(Ledger, "standing", standing)
    backfill, plan = one_world.seeded(source_of(events()), 2)
    assert all(outcome.loaded for outcome in one_world.run(backfill, plan))


def test_a_sink_that_fails_is_one_line_and_the_run_goes_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    backfill, plan = world.seeded(source_of(events()), 2)
    broken = Broken()
    world.run(replace(backfill, sink=BestEffort(broken)), plan)
    assert broken.asked == 1
    assert errors(caplog) == [
        "metrics are not recorded from here on: OSError: no route to postgres://***@collector"
    ]
    assert world.query(IDS) == [(1, 10), (2, 20)]
    assert world.query("SELECT DISTINCT status FROM @_dlt_ops_runs") == [("completed",)]


def test_a_ledger_that_cannot_be_counted_is_one_line(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(ledger: Ledger, backfill_id: str) -> Any:
        ledger._session.execute("SELECT no_such_column FROM nowhere")

    monkeypatch.setattr(Ledger, "standing", broken)
    backfill, plan = world.seeded(source_of(events()), 2)
    backfill, kept = measured(backfill)
    [outcome] = world.run(backfill, plan, 1)
    assert outcome.loaded
    [error] = errors(caplog)
    assert error.startswith(f"the progress of backfill {plan.backfill_id} is not measured: ")
    assert kept.counts() == {"chunks.completed": 1, "rows.loaded": 3}
    assert world.query("SELECT status FROM @_dlt_ops_runs") == [("completed",)]


class Silent:
    """An observer that says nothing and calls back when the run has to wait."""

    def __init__(self, on_wait: Any) -> None:
        self._on_wait = on_wait

    def waiting(self, *_: Any) -> None:
        self._on_wait()

    def __getattr__(self, _: str) -> Any:
        return lambda *_: None


def test_a_run_that_waits_says_how_long(one_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drive, "POLL_SECONDS", 0.01)
    world = one_world
    backfill, plan = world.seeded(source_of(events()))
    with world.target.connect(5) as session:
        ledger = Ledger(session, world.target)
        assert ledger.claim(ledger.chunk(plan.backfill_id, "000000"), this_claimant(), 60)
    backfill, kept = measured(backfill)
    tally = drive.run(backfill, plan, Silent(lambda: end_leases(world.target)))
    assert tally.covered
    assert kept.counts() == {"waits": 1, "leases.lapsed": 1, "chunks.completed": 3, "rows.loaded": 9}
    [wait] = kept.of("wait.duration")
    assert wait.value > 0
    assert kept.values("progress.ratio")[-1] == 1


# The command


@pytest.fixture
def site(tmp_path: Path, duck_target: Target) -> Site:
    return Site(home=tmp_path / "home", target=duck_target)


def test_the_command_adds_lines_to_a_file(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("{}\n")
    # Its workers have the file together.
    site.backfill("run", "--metrics", str(path), "--concurrency", "2")
    first, *lines = map(json.loads, path.read_text().splitlines())
    assert first == {}
    counters = [line["name"] for line in lines if line["kind"] == "counter"]
    assert {name: counters.count(name) for name in counters} == {
        "chunked_backfill.chunks.completed": 5,
        "chunked_backfill.rows.loaded": 5,
    }
    assert {line["backfill_id"] for line in lines} == {BACKFILL_ID}
    chunks = [line for line in lines if line["name"] == "chunked_backfill.chunks.completed"]
    assert sorted(line["chunk_id"] for line in chunks) == [f"{number:06d}" for number in range(5)]
    assert all(line["tags"] == {"source": "web_events", "dataset": "web_raw"} for line in chunks)
    ratios = [line["value"] for line in lines if line["name"] == "chunked_backfill.progress.ratio"]
    assert ratios[-1] == 1
    assert all(line["time"].endswith("+00:00") for line in lines)


def test_a_file_that_cannot_be_written_is_one_line(site: Site, tmp_path: Path) -> None:
    done = site.quickly("run", "--metrics", str(tmp_path / "nowhere" / "metrics.jsonl"))
    [error] = done.err
    assert error.startswith("error: metrics are not recorded from here on: FileNotFoundError: ")
    assert site.loaded() == [(day, day * 10) for day in range(1, 6)]
