"""Pausing, resuming and cancelling a backfill: what begins afterwards, and what does not."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from airflow.exceptions import AirflowRescheduleException

from airflow_provider_backfill.engine.controls import BackfillControls, ControlState
from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.exceptions import BackfillCancelledError, BackfillPausedError
from airflow_provider_backfill.operators.waiting import PAUSED_SECONDS
from airflow_provider_backfill.version_compat import AirflowFailException, AirflowSkipException
from tests.support.commands import BACKFILL_ID, SOURCE, WINDOW, Done, Site
from tests.support.ledgers import me, opened, plan, seeded, take, wait_until
from tests.support.tasks import Tasks, ids_in, rows_of

FIVE = [(day, day * 10) for day in range(1, 6)]
ID = ("--backfill-id", BACKFILL_ID)


@pytest.fixture
def site(tmp_path: Path, target: Target) -> Site:
    return Site(home=tmp_path / "home", target=target)


def say(site: Site, word: str, *more: str, code: int = 0) -> Done:
    """``pause``, ``resume`` or ``cancel`` the standard backfill."""
    return site.invoke(word, *site.place, *ID, *more, code=code)


def put(target: Target, state: ControlState, why: str | None = None) -> None:
    with target.connect(10) as session:
        BackfillControls(session, target).put("web_events", BACKFILL_ID, state, "alice@laptop", why)


def lift(target: Target) -> None:
    with target.connect(10) as session:
        BackfillControls(session, target).lift("web_events", BACKFILL_ID)


# Claims


@pytest.mark.parametrize(
    ("state", "error"),
    [(ControlState.PAUSED, BackfillPausedError), (ControlState.CANCELLED, BackfillCancelledError)],
)
def test_no_chunk_is_claimed_until_the_backfill_goes_on(target, state, error):
    backfill, other = plan(), plan(source="web_hours")
    seeded(target, backfill, other)
    put(target, state, "the API is slow")
    with opened(target) as ledger:
        with pytest.raises(error, match=r"by alice@laptop at 20\S+ \(the API is slow\); "):
            take(ledger, backfill)
        assert ledger.claim_next(backfill, me(), 60, ledger.clock()) is None
        # Others are none of its business.
        assert ledger.claim_next(other, me(), 60, ledger.clock())
    lift(target)
    with opened(target) as ledger:
        assert take(ledger, backfill, 1)
        assert ledger.claim_next(backfill, me(), 60, ledger.clock()).chunk_id == "000000"


def test_a_chunk_in_flight_goes_on(target):
    seeded(target, plan())
    with opened(target) as ledger:
        claim = take(ledger, plan())
        put(target, ControlState.CANCELLED)
        ledger.renew(claim, 60)
        ledger.complete(claim, 1, ["1.0"])
        assert ledger.chunk(BACKFILL_ID, "000000").status == "completed"


def test_a_pause_waits_for_claims_that_are_being_made_and_none_comes_after_it(pg_target):
    """Under way: a transaction that has the claims' lock. Behind it: the pause, and then another claim."""
    seeded(pg_target, plan())
    paused, refused = threading.Event(), []

    def pause() -> None:
        put(pg_target, ControlState.PAUSED)
        paused.set()

    def claim() -> None:
        with opened(pg_target) as ledger:
            refused.append(ledger.claim_next(plan(), me(), 60, ledger.clock()))

    with opened(pg_target) as ledger:
        with ledger._locked("claim|web_events"):
            pauser = threading.Thread(target=pause)
            pauser.start()
            assert not paused.wait(0.3)
        pauser.join(10)
        assert paused.is_set()
    claimer = threading.Thread(target=claim)
    claimer.start()
    claimer.join(10)
    assert refused == [None]


# The command


def test_a_paused_run_waits_and_goes_on(site):
    site.tell("stuck")
    with site.running() as run:
        wait_until(lambda: (site.home / "reached").exists(), 60)
        done = say(site, "pause", "--reason", "the API is on its knees")
        assert done.out[0] == f"paused backfill {BACKFILL_ID}"
        assert done.out[1].startswith("chunk 3/5 is in flight at ")
        assert done.out[2:] == ["2 chunks to wait"]
        site.untell("stuck")
        # The chunk in flight finishes; no other begins.
        said = run.says("waiting, the backfill is paused by ")
        assert said.endswith(": the API is on its knees")
        assert site.statuses() == ["completed"] * 3 + ["pending"] * 2
        assert site.invoke("status", *site.place).out[1].startswith("paused by ")
        assert say(site, "resume").out[0].startswith(f"backfill {BACKFILL_ID} goes on; it was paused by ")
        run.ends(0)
    assert site.loaded() == FIVE
    assert say(site, "resume").out == [f"backfill {BACKFILL_ID} is neither paused nor cancelled"]


def test_a_pause_takes_nothing_of_the_time_that_a_run_may_wait(tmp_path, target):
    site = Site(
        home=tmp_path / "home",
        target=target,
        environment={"AIRFLOW__CHUNKED_BACKFILL__WAIT_TIMEOUT_SECONDS": "1"},
    )
    seeded(site.target, plan(source="web_events"))
    put(site.target, ControlState.PAUSED)
    with site.running("--concurrency", "2") as run:
        run.says("waiting, the backfill is paused by alice@laptop")
        # Longer than the run may wait.
        time.sleep(2.5)
        lift(site.target)
        run.ends(0)
    assert site.loaded() == FIVE


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_cancelled_run_finishes_what_is_in_flight_and_ends(site, workers):
    site.tell("stuck")
    with site.running("--concurrency", workers) as run:
        wait_until(lambda: (site.home / "reached").exists(), 60)
        done = say(site, "cancel")
        assert done.out[0] == f"cancelled backfill {BACKFILL_ID}"
        site.untell("stuck")
        done = run.ends(1)
    assert done.err[-1].startswith(f"error: backfill {BACKFILL_ID} was cancelled by ")
    assert "chunked-backfill resume --backfill-id" in done.err[-1]
    completed = site.statuses().count("completed")
    assert site.statuses()[2] == "completed"
    assert set(site.statuses()) <= {"completed", "pending"}
    assert done.err[-1].endswith(f"; {completed} of 5 chunks are completed")
    assert site.attempts() == site.stages() == []
    # A new run does not begin either, and resume lets it.
    assert site.quickly("run", code=1).err[-1].startswith(f"error: backfill {BACKFILL_ID} was cancelled by ")
    say(site, "resume")
    site.quickly("run")
    assert site.loaded() == FIVE


def test_plan_and_status_show_it_and_a_backfill_is_named_as_run_names_it(site):
    seeded(site.target, plan())
    site.quickly("pause", "--reason", "lunch")
    assert any(line.split()[:2] == ["paused", "by"] for line in site.quickly("plan").out)
    assert any('"state": "paused"' in line for line in site.quickly("plan", "--json").out)
    status = site.invoke("status", *site.place, "--json").out
    assert any('"why": "lunch"' in line for line in status)
    site.quickly("cancel")
    assert site.invoke("status", *site.place).out[1].startswith("cancelled by ")
    site.quickly("resume")
    assert not any("cancelled" in line for line in site.invoke("status", *site.place).out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--backfill-id", "x"), f"error: The ledger has no backfill 'x'; it has: {BACKFILL_ID}; "),
        ((), "error: Say which backfill: pass --backfill-id, or SOURCE, --from, --to and --chunk; "),
        ((SOURCE, *WINDOW[:4]), "error: Say which backfill: "),
        ((SOURCE, *WINDOW, *ID), "error: Pass either --backfill-id, or SOURCE, "),
    ],
)
def test_what_cannot_be_meant_is_misuse(site, arguments, message):
    seeded(site.target, plan())
    [error] = site.invoke("pause", *site.place, *arguments, code=2).err
    assert error.startswith(message)
    with site.target.connect(10) as session:
        assert BackfillControls(session, site.target).read() == {}


def test_where_there_is_no_ledger_there_is_nothing_to_pause(site):
    [error] = say(site, "pause", code=2).err
    assert error.startswith(f"error: The ledger has no backfill {BACKFILL_ID!r}; ")
    assert not site.rows()


# Tasks


@pytest.mark.usefixtures("sources")
def test_a_task_of_a_paused_backfill_comes_again_and_one_of_a_cancelled_one_is_skipped(warehouse):
    tasks = Tasks()
    mapped = tasks.plan()
    tasks.chunk(mapped[0], 0)
    put(warehouse, ControlState.PAUSED)
    with pytest.raises(AirflowRescheduleException) as again:
        tasks.chunk(mapped[1], 1)
    pause = again.value.reschedule_date - datetime.now(UTC)
    assert timedelta(0) < pause <= timedelta(seconds=PAUSED_SECONDS)
    # What is completed needs no claim.
    assert tasks.chunk(mapped[0], 0, try_number=2, max_tries=2)["status"] == "skipped"
    put(warehouse, ControlState.CANCELLED, "wrong source")
    with pytest.raises(AirflowSkipException, match=r"was cancelled by alice@laptop at \S+ \(wrong source\)"):
        tasks.chunk(mapped[1], 1)
    with pytest.raises(AirflowFailException, match="4 of 5 chunks not completed"):
        tasks.report()
    lift(warehouse)
    for index, part in enumerate(mapped):
        tasks.chunk(part, index)
    assert tasks.report()["completed"] == 5
    assert ids_in(warehouse) == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("sources")
def test_a_chunk_that_is_cleared_while_the_backfill_is_paused_is_loaded_again_when_it_goes_on(warehouse):
    tasks = Tasks(retries=1)
    mapped = tasks.plan()
    for index, part in enumerate(mapped):
        tasks.chunk(part, index, try_number=1, max_tries=1)
    put(warehouse, ControlState.PAUSED)
    cleared = {"try_number": 2, "max_tries": 2}
    for _ in range(2):
        with pytest.raises(AirflowRescheduleException):
            tasks.chunk(mapped[2], 2, **cleared)
        assert {row.status for row in rows_of(warehouse)} == {"completed"}
    lift(warehouse)
    assert tasks.chunk(mapped[2], 2, **cleared)["status"] == "completed"
    assert [row.attempt for row in rows_of(warehouse)] == [1, 1, 2, 1, 1]
