"""Claims and what follows from them, step by step, on real databases."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.engine.records import ChunkStatus, Claimant
from airflow_provider_backfill.exceptions import ChunkHeldError, ChunkMissingError, ClaimLostError
from tests.support.ledgers import (
    LONG,
    end_leases,
    everything,
    foreign_row,
    foreign_table,
    me,
    opened,
    plan,
    seeded,
    sql,
    take,
)

pytestmark = pytest.mark.integration


def only(target, chunk=0):
    return everything(target)[chunk]


@pytest.fixture
def backfill(target):
    """The standard plan, seeded."""
    made = plan()
    seeded(target, made)
    return made


# --- what a claim gives and records


def test_a_claim_carries_the_chunk_and_marks_the_row(target, backfill):
    claimant = Claimant(
        claimed_by="worker-3:12",
        dag_id="web",
        dag_run_id="manual__1",
        task_id="web_events.chunk",
        map_index=2,
    )
    with opened(target) as ledger:
        before = ledger.clock()
        claim = ledger.claim(ledger.chunk(backfill.backfill_id, "000002"), claimant, 60)
        after = ledger.clock()
    row = only(target, 2)
    assert (claim.backfill_id, claim.chunk_id, claim.attempt, claim.superseded) == (
        backfill.backfill_id,
        "000002",
        1,
        (),
    )
    assert claim.interval == Interval(datetime(2026, 1, 3, tzinfo=UTC), datetime(2026, 1, 4, tzinfo=UTC))
    assert claim.run_id == "559264ef1526bd83"
    assert len(claim.token) == 16
    assert (row.status, row.claim_token, row.attempt) == (ChunkStatus.RUNNING, claim.token, 1)
    assert (row.claimed_by, row.dag_id, row.dag_run_id) == ("worker-3:12", "web", "manual__1")
    assert (row.task_id, row.map_index) == ("web_events.chunk", 2)
    assert before <= row.claimed_at <= row.started_at <= after
    assert row.lease_expires_at - row.claimed_at == pytest.approx(
        timedelta(seconds=60), abs=timedelta(seconds=1)
    )
    assert 0 < row.lease_left <= 60
    assert row.held
    assert not row.lapsed
    assert [str(other.status) for other in everything(target)].count("pending") == 4


def test_a_held_chunk_is_refused_with_its_holder(target, backfill):
    with opened(target) as ledger:
        claim = take(ledger, backfill, name="worker-1:1")
        with pytest.raises(ChunkHeldError) as caught:
            take(ledger, backfill, name="worker-2:2")
        row = ledger.chunk(backfill.backfill_id, "000000")
    error = caught.value
    assert (error.chunk, error.holder) == ("1", "worker-1:1")
    assert error.lease_expires_at == row.lease_expires_at
    assert error.lease_expires_at.utcoffset() == timedelta(0)
    assert LONG - 60 < error.seconds_left <= LONG
    assert (row.claim_token, row.attempt) == (claim.token, 1)


def test_each_claim_has_another_token(target):
    many = plan(8)
    seeded(target, many)
    with opened(target) as ledger:
        tokens = {take(ledger, many, chunk).token for chunk in range(8)}
    assert len(tokens) == 8


def test_a_failed_chunk_is_claimed_again(target, backfill):
    with opened(target) as ledger:
        first = take(ledger, backfill, name="worker-1:1")
        ledger.fail(first, "no", will_retry=True)
        failed = ledger.chunk(backfill.backfill_id, "000000")
        second = take(ledger, backfill, name="worker-2:2")
        row = ledger.chunk(backfill.backfill_id, "000000")
    assert (failed.status, failed.error, failed.will_retry) == (ChunkStatus.FAILED, "no", True)
    assert (failed.claim_token, failed.lease_expires_at) == (None, None)
    assert failed.completed_at is not None
    assert second.attempt == 2
    assert second.token != first.token
    assert (row.error, row.will_retry, row.completed_at, row.claimed_by) == (None, None, None, "worker-2:2")


def test_a_completed_chunk_is_never_claimed(target, backfill):
    with opened(target) as ledger:
        stale = ledger.chunk(backfill.backfill_id, "000000")
        ledger.complete(take(ledger, backfill, name="worker-1:1"), 7, ["1767225600.5", "1767225601.5"])
        before = ledger.chunk(backfill.backfill_id, "000000")
        with pytest.raises(ChunkHeldError) as caught:
            ledger.claim(stale, me("worker-2:2"), LONG)
        assert ledger.chunk(backfill.backfill_id, "000000") == before
    # It may be asked again at once, and is told who completed it.
    assert (caught.value.holder, caught.value.seconds_left) == ("worker-1:1", 0)
    assert "without a lease" not in str(caught.value)
    assert (before.status, before.records_loaded) == (ChunkStatus.COMPLETED, 7)
    assert before.loads == ("1767225600.5", "1767225601.5")
    assert (before.lease_expires_at, before.error, before.will_retry) == (None, None, None)


def test_a_row_that_is_gone_is_said_to_be_missing(target, backfill):
    with opened(target) as ledger:
        row = ledger.chunk(backfill.backfill_id, "000000")
        sql(target, "DELETE FROM {ledger} WHERE chunk_id = '000000'")
        with pytest.raises(ChunkMissingError):
            ledger.claim(row, me(), LONG)


# --- leases


def test_a_lease_that_ran_out_frees_the_chunk(target, backfill):
    with opened(target) as ledger:
        first = take(ledger, backfill, name="worker-1:1")
        end_leases(target)
        lapsed = ledger.chunk(backfill.backfill_id, "000000")
        assert lapsed.lapsed
        assert not lapsed.held
        second = take(ledger, backfill, name="worker-2:2")
        assert (second.attempt, second.token != first.token) == (2, True)
        assert ledger.chunk(backfill.backfill_id, "000000").claim_token == second.token
        for step in late_steps(ledger, first):
            with pytest.raises(ClaimLostError):
                step()
        assert ledger.chunk(backfill.backfill_id, "000000").claim_token == second.token
        ledger.complete(second, 1, ["2"])


def test_a_real_lease_runs_out_by_itself_and_not_earlier(target, backfill):
    with opened(target) as ledger:
        row = ledger.chunk(backfill.backfill_id, "000000")
        ledger.claim(row, me("worker-1:1"), 0.5)
        first = only(target)
        deadline = time.monotonic() + 20
        while True:
            try:
                claim = ledger.claim(row, me("worker-2:2"), LONG)
                break
            except ChunkHeldError:
                assert time.monotonic() < deadline
                time.sleep(0.02)
    assert claim.attempt == 2
    assert first.lease_expires_at - first.claimed_at > timedelta(seconds=0.4)
    assert only(target).claimed_at >= first.lease_expires_at


def test_a_lease_that_ran_out_is_its_holders_until_somebody_takes_the_chunk(target, backfill):
    with opened(target) as ledger:
        claim = take(ledger, backfill)
        end_leases(target)
        take(ledger, backfill, 1)
        ledger.renew(claim, 60)
        assert only(target).held
        end_leases(target)
        ledger.complete(claim, 1, ["1"])
    assert only(target).status is ChunkStatus.COMPLETED


def test_a_row_without_a_lease_is_held_until_a_person_releases_it(target):
    backfill = plan()
    foreign_table(target, [foreign_row(backfill, 0, "running", claimed_by="ops:1")])
    seeded(target, backfill)
    with opened(target) as ledger:
        with pytest.raises(ChunkHeldError, match="held by ops:1 without a lease") as caught:
            take(ledger, backfill)
        claim = ledger.claim_next(backfill, me(), LONG, ledger.clock())
    assert (caught.value.lease_expires_at, caught.value.seconds_left) == (None, None)
    assert claim.chunk_id == "000001"
    assert (only(target).status, only(target).held) == (ChunkStatus.RUNNING, True)


def test_a_renewal_pushes_the_end_out_from_now(target, backfill):
    with opened(target) as ledger:
        claim = take(ledger, backfill)
        ledger.renew(claim, 5)
        assert 0 < only(target).lease_left <= 5
        ledger.renew(claim, 500)
        assert 400 < only(target).lease_left <= 500


# --- a stale token changes nothing


def late_steps(ledger, claim):
    return [
        lambda: ledger.renew(claim, LONG),
        lambda: ledger.complete(claim, 99, ["late"]),
        lambda: ledger.fail(claim, "late"),
        lambda: ledger._guarded("start", claim),
    ]


@pytest.mark.parametrize("state", ["pending", "taken", "failed", "completed", "restated", "gone"])
def test_a_step_under_a_token_that_is_not_held_changes_nothing(target, backfill, state):
    with opened(target) as ledger:
        claim = take(ledger, backfill)
        if state == "pending":
            claim = replace(claim, chunk_id="000003")
        elif state == "taken":
            end_leases(target)
            take(ledger, backfill, name="worker-2:2")
        elif state == "failed":
            ledger.fail(claim, "no")
        elif state in ("completed", "restated"):
            ledger.complete(claim, 1, ["1"])
            if state == "restated":
                ledger.restate(backfill.backfill_id, "000000")
        else:
            sql(target, "DELETE FROM {ledger} WHERE chunk_id = '000000'")
        before = sql(target, "SELECT * FROM {ledger} ORDER BY chunk_id")
        for step in late_steps(ledger, claim):
            with pytest.raises(ClaimLostError, match=f"chunk {claim.number}: cannot"):
                step()
            assert sql(target, "SELECT * FROM {ledger} ORDER BY chunk_id") == before


def test_a_lost_claim_rolls_its_transaction_back(target, backfill):
    with target.connect(10) as session, opened(target) as ledger:
        claim = take(ledger, backfill)
        ledger.fail(claim, "stopped")
        session.execute("CREATE TABLE published (n INTEGER)")

        def publish():
            with session.transaction():
                session.execute("INSERT INTO published VALUES (1)")
                type(ledger)(session, target).complete(claim, 1, ["1"])

        with pytest.raises(ClaimLostError):
            publish()
        assert session.execute("SELECT count(*) FROM published") == [(0,)]
    assert only(target).status is ChunkStatus.FAILED


# --- claims that overlap


@pytest.mark.parametrize(
    ("mine", "theirs", "clash"),
    [
        (("web_events", "1d", "2026-01-01"), ("web_events", "24h", "2026-01-01"), True),
        (("web_events", "1d", "2026-01-01"), ("web_events", "7d", "2025-12-31"), True),
        (("web_events", "1d", "2026-01-01"), ("web_events", "24h", "2026-01-02"), False),
        (("web_events", "1d", "2026-01-02"), ("web_events", "24h", "2026-01-01"), False),
        (("web_events", "1d", "2026-01-01"), ("web_hours", "24h", "2026-01-01"), False),
        (("web_events:res1", "1d", "2026-01-01"), ("web_events:res2", "1d", "2026-01-01"), False),
        (("web_events:res1", "1d", "2026-01-01"), ("web_events:res1,res2", "1d", "2026-01-01"), True),
        (("web_events:res1", "1d", "2026-01-01"), ("web_events", "1d", "2026-01-01"), True),
        (("web_events", "1d", "2026-01-01"), ("web_events:res1", "1d", "2026-01-01"), True),
        (("web_events:res1", "1d", "2026-01-01"), ("web_events:res11", "1d", "2026-01-01"), False),
    ],
)
def test_claims_of_one_source_that_overlap_clash_whatever_their_backfill(target, mine, theirs, clash):
    first, second = (plan(7, source=name, size=size, start=start) for name, size, start in (mine, theirs))
    assert first.backfill_id != second.backfill_id
    seeded(target, first, second)
    with opened(target) as ledger:
        held = take(ledger, first, name="worker-1:1")
        if not clash:
            take(ledger, second, name="worker-2:2")
            return
        with pytest.raises(ChunkHeldError) as caught:
            take(ledger, second, name="worker-2:2")
        assert caught.value.holder == "worker-1:1"
        since = ledger.clock()
        ahead = ledger.claim_next(second, me("worker-2:2"), LONG, since)
        assert ahead is None or not ahead.interval.overlaps(held.interval)
        ledger.fail(held, "no")
        assert take(ledger, second, name="worker-2:2").attempt == 1


def test_taking_an_overlapping_chunk_ends_the_claim_that_lapsed_there(target):
    mine, theirs = plan(3), plan(3, size="24h")
    seeded(target, mine, theirs)
    with opened(target) as ledger:
        zombie = take(ledger, mine, 1)
        bystander = take(ledger, mine, 2)
        end_leases(target)
        take(ledger, theirs, 1)
        # Both could publish otherwise.
        with pytest.raises(ClaimLostError):
            ledger.renew(zombie, LONG)
        ledger.renew(bystander, LONG)
        row = ledger.chunk(mine.backfill_id, "000001")
    assert (row.status, row.error) == (ChunkStatus.FAILED, "lease of worker-1:4711 ran out")


def test_a_claim_that_is_refused_leaves_the_claims_beside_it_alone(target):
    mine, theirs = plan(2), plan(2, size="2d")
    seeded(target, mine, theirs)
    with opened(target) as ledger:
        silent = take(ledger, mine, 0)
        end_leases(target)
        take(ledger, mine, 1, name="worker-2:2")
        with pytest.raises(ChunkHeldError) as caught:
            take(ledger, theirs, name="worker-3:3")
        assert caught.value.holder == "worker-2:2"
        assert ledger.chunk(mine.backfill_id, "000000").lapsed
        ledger.renew(silent, LONG)
        assert ledger.chunk(mine.backfill_id, "000000").held
