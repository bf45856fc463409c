"""The command when it is stopped, killed, or meets another run."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from airflow_provider_backfill.engine import drive
from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.plan import make_plan
from airflow_provider_backfill.engine.publish import publish_lock
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.window import ChunkSize, Window
from airflow_provider_backfill.exceptions import BackfillError
from tests.support.commands import Site
from tests.support.ledgers import everything, opened, seeded, take, wait_until
from tests.support.sources import source_of

FIVE = [(day, day * 10) for day in range(1, 6)]
SHORT_LEASE = {
    "AIRFLOW__CHUNKED_BACKFILL__LEASE_SECONDS": "4",
    "AIRFLOW__CHUNKED_BACKFILL__HEARTBEAT_SECONDS": "1",
}
INTERRUPTED = "error: interrupted; a chunk in flight was given back, resume with the same command"


@pytest.fixture
def site(tmp_path: Path, target: Target) -> Site:
    return Site(home=tmp_path / "home", target=target)


def reached(site: Site) -> bool:
    return (site.home / "reached").exists()


@pytest.mark.parametrize(
    ("how", "everybody", "workers"),
    [
        pytest.param(signal.SIGTERM, False, "1", id="SIGTERM"),
        pytest.param(signal.SIGINT, True, "1", id="Ctrl-C"),
        pytest.param(signal.SIGTERM, False, "2", id="SIGTERM-workers"),
        pytest.param(signal.SIGINT, True, "2", id="Ctrl-C-workers"),
    ],
)
def test_a_signal_gives_back_the_chunk_in_flight(site, how, everybody, workers):
    site.tell("stuck")
    with site.running("--concurrency", workers) as run:
        wait_until(lambda: reached(site), 60)
        (run.signal_all if everybody else run.signal)(how)
        done = run.ends(1)
    assert done.err == [INTERRUPTED]
    third = site.rows()[2]
    assert str(third.status) == "failed"
    # A worker hears of Ctrl-C from the process that drives.
    assert third.error == f"stopped by {'SIGTERM' if workers == '2' else how.name}"
    assert {"claimed", "running"}.isdisjoint(site.statuses())
    assert site.stages() == []
    assert site.attempts() == []

    site.untell("stuck")
    site.backfill("run")
    assert site.loaded() == FIVE


def test_a_signal_during_the_load_leaves_no_stage(tmp_path, pg_target):
    site = Site(home=tmp_path / "home", target=pg_target)
    waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with pg_target.connect(10) as session, pg_target.connect(10) as watcher, site.running() as run:
        with session.transaction():
            pg_target.dialect.lock(session, publish_lock(pg_target))
            wait_until(lambda: watcher.execute(waiting), 60)
            assert site.stages() != []
            run.signal(signal.SIGTERM)
            # The process waits for the database, and hears of the signal once that answers.
        assert run.ends(1).err == [INTERRUPTED]
    assert site.statuses() == ["failed", "pending", "pending", "pending", "pending"]
    assert site.stages() == []
    assert site.attempts() == []


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_killed_run_is_resumed_once_its_lease_runs_out(tmp_path, target, workers):
    site = Site(home=tmp_path / "home", target=target, environment=SHORT_LEASE)
    site.tell("stuck")
    with site.running("--concurrency", workers) as run:
        wait_until(lambda: reached(site), 60)
        run.signal_all(signal.SIGKILL)
        run.ends(-signal.SIGKILL)
    assert site.statuses()[2] == "running"
    assert site.attempts() != []
    site.untell("stuck")
    done = site.backfill("run")
    assert re.search(r"^Backfill \w+: \d completed, \d skipped, 0 claimed elsewhere", done.out[-1])
    assert site.loaded() == FIVE
    assert site.rows()[2].attempt == 2
    # What the killed one left, too, as soon as its claim was void.
    assert site.stages() == []
    assert site.attempts() == []


def test_a_chunk_held_elsewhere_is_waited_for(site):
    site.tell("stuck")
    with site.running() as first:
        wait_until(lambda: reached(site), 60)
        with site.running() as second:
            said = second.says("^waiting for")
            assert re.fullmatch(
                r"waiting for chunk 3/5 claimed elsewhere by \S+:\d+ "
                r"\(lease runs out in \d+ s unless renewed\); giving up in \d+ s",
                said,
            )
            held = site.invoke("status", *site.place).out[4]
            assert re.search(r"running .* \S+:\d+, lease runs out in \d+ s unless renewed$", held)
            assert "held       1" in site.quickly("plan").out
            site.untell("stuck")
            theirs, ours = first.ends(0), second.ends(0)
    assert theirs.out[-1].endswith(": 3 completed, 2 skipped, 0 claimed elsewhere (5 chunks)")
    assert ours.out[-1].endswith(": 2 completed, 3 skipped, 0 claimed elsewhere (5 chunks)")
    assert site.loaded() == FIVE
    assert [row.attempt for row in site.rows()] == [1] * 5


def test_a_chunk_held_elsewhere_for_too_long_leaves_the_window_uncovered(tmp_path, duck_target):
    patience = {"AIRFLOW__CHUNKED_BACKFILL__WAIT_TIMEOUT_SECONDS": "0.5"}
    site = Site(home=tmp_path / "home", target=duck_target)
    impatient = Site(home=tmp_path / "impatient", target=duck_target, environment=patience)
    site.tell("stuck")
    with site.running() as first:
        wait_until(lambda: reached(site), 60)
        done = impatient.backfill("run", code=1)
        assert done.out[-1].endswith(": 2 completed, 2 skipped, 1 claimed elsewhere (5 chunks)")
        assert done.err[-1].startswith("error: the window is not covered, 4 of 5 chunks are completed; ")
        site.untell("stuck")
        first.ends(0)


def test_a_chunk_that_another_backfill_keeps_is_waited_for(site):
    other = make_plan("web_events", Window.parse("2026-01-03", "2026-01-04"), "12h")
    seeded(site.target, other)
    with opened(site.target) as ledger:
        claim = take(ledger, other)
    with site.running() as run:
        run.says(r"^waiting for chunk 3/5 that another backfill of the source keeps; giving up in \d+ s$")
        with opened(site.target) as ledger:
            ledger.fail(claim, "given up")
        done = run.ends(0)
    assert done.out[-1].endswith(": 5 completed, 0 skipped, 0 claimed elsewhere (5 chunks)")
    assert site.loaded() == FIVE


def test_chunks_that_come_free_after_a_wait_are_loaded_by_all_workers(site):
    """Another backfill keeps three days; when it gives them up, two workers share them again."""
    other = make_plan("web_events", Window.parse("2026-01-02", "2026-01-05"), "3d")
    seeded(site.target, other)
    with opened(site.target) as ledger:
        claim = take(ledger, other)
    with site.running("--concurrency", "2") as run:
        run.says(r"^waiting for 3 chunks that another backfill of the source keeps")
        with opened(site.target) as ledger:
            ledger.fail(claim, "given up")
        run.ends(0)
    assert site.loaded() == FIVE
    mine = [row for row in everything(site.target) if row.backfill_id != other.backfill_id]
    # One by one in the process that drives would be one worker.
    assert f":{run.pid}" not in {row.claimed_by[row.claimed_by.rindex(":") :] for row in mine}


# What the command relies on, without a process of its own


def backfill_of(target: Target, settings: object) -> Backfill:
    return Backfill(
        source=SourceSpec(reference=source_of([])),
        target=target,
        window=Window.parse("2024-01-01", "2024-01-03"),
        chunk=ChunkSize.parse("1d"),
        settings=settings,  # type: ignore[arg-type]
    )


class Impatient:
    """An observer in whose first call a signal strikes."""

    def running(self, claim: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    def __getattr__(self, name: str) -> object:
        return lambda *_: None


def test_a_signal_right_behind_the_claim_does_not_lose_it(target, settings):
    backfill = backfill_of(target, settings)
    plan = backfill.plan()
    backfill.seed(plan)
    with pytest.raises(drive.Stopped):
        drive.run(backfill, plan, Impatient())  # type: ignore[arg-type]
    assert [(str(row.status), row.error) for row in backfill.rows(plan)] == [
        ("failed", "stopped by SIGTERM"),
        ("pending", None),
    ]


def explode() -> None:
    raise RuntimeError("no log file")


def test_what_breaks_a_worker_is_raised_where_the_run_was_asked_for(duck_target, make_settings):
    backfill = backfill_of(duck_target, make_settings())
    backfill = Backfill(
        source=SourceSpec(reference="json:loads", name="never_read"),
        target=backfill.target,
        window=backfill.window,
        chunk=backfill.chunk,
        settings=backfill.settings,
    )
    plan = make_plan("never_read", backfill.window, backfill.chunk)
    backfill.seed(plan)
    with pytest.raises(BackfillError, match="RuntimeError: no log file"):
        drive.run(backfill, plan, Impatient(), concurrency=2, prepare_worker=explode)  # type: ignore[arg-type]
    assert [str(row.status) for row in backfill.rows(plan)] == ["pending", "pending"]
