"""Claims and what follows from them, step by step, on real databases."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.engine.ledger import ERROR_LIMIT
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


def test_a_real_lease_runs_out_by_itself(target, backfill):
    with opened(target) as ledger:
        row = ledger.chunk(backfill.backfill_id, "000000")
        ledger.claim(row, me("worker-1:1"), 0.2)
        with pytest.raises(ChunkHeldError):
            ledger.claim(row, me("worker-2:2"), LONG)
        deadline = time.monotonic() + 20
        while True:
            try:
                claim = ledger.claim(row, me("worker-2:2"), LONG)
                break
            except ChunkHeldError:
                assert time.monotonic() < deadline
                time.sleep(0.02)
    assert claim.attempt == 2


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


# --- what the reason of a failure looks like


REASONS = {
    "ValueError: no": "ValueError: no",
    "a\nb\r\n\tc  d\x0b\u2028e ": "a b c d e",
    "nul \x00 and half a pair \udce9!": "nul and half a pair !",
    "naïve – 日本": "naïve – 日本",
    "": "",
    "%s :token {ledger} '; DROP": "%s :token {ledger} '; DROP",
    "GET https://me:hunter2@api.example.com/v1 failed": "GET https://***@api.example.com/v1 failed",
}


def test_a_reason_is_one_line_that_every_database_takes(target):
    backfill = plan(len(REASONS))
    seeded(target, backfill)
    with opened(target) as ledger:
        for chunk, reason in enumerate(REASONS):
            ledger.fail(take(ledger, backfill, chunk), reason)
    assert [row.error for row in everything(target)] == list(REASONS.values())


def test_a_reason_is_bounded(target, backfill):
    with opened(target) as ledger:
        ledger.fail(take(ledger, backfill), "long " * 100_000)
    assert len(only(target).error) == ERROR_LIMIT == 1_000


def test_the_password_is_blanked_out_of_a_reason(pg_target):
    backfill = plan()
    seeded(pg_target, backfill)
    user = "reader"
    for statement in (
        f"CREATE ROLE {user} LOGIN PASSWORD 'p@ss w/ord'",
        f'GRANT ALL ON SCHEMA "web_raw" TO {user}',
        f"GRANT ALL ON {{ledger}} TO {user}",
    ):
        sql(pg_target, statement)
    _, _, address = pg_target.credentials.rpartition("@")
    theirs = replace(pg_target, credentials=f"postgresql://{user}:p%40ss%20w%2Ford@{address}")
    try:
        with opened(theirs) as ledger:
            ledger.fail(take(ledger, backfill), "tried p@ss w/ord and p%40ss%20w%2Ford, also in p@ss w/ord!")
        assert only(theirs).error == "tried *** and ***, also in ***!"
    finally:
        sql(pg_target, f"DROP OWNED BY {user}")
        sql(pg_target, f"DROP ROLE {user}")


# --- restating


def test_restating_keeps_what_the_next_version_replaces(target, backfill):
    with opened(target) as ledger:
        ledger.complete(take(ledger, backfill), 7, ["1.5", "2.5"])
        ledger.restate(backfill.backfill_id, "000000")
        row = ledger.chunk(backfill.backfill_id, "000000")
        assert (row.status, row.loads, row.attempt) == (ChunkStatus.PENDING, ("1.5", "2.5"), 1)
        assert {row.claimed_by, row.claimed_at, row.claim_token, row.lease_expires_at, row.completed_at} == {
            None
        }
        second = take(ledger, backfill)
        assert (second.superseded, second.attempt) == (("1.5", "2.5"), 2)
        ledger.fail(second, "no")
        end = take(ledger, backfill)
        assert (end.superseded, end.attempt) == (("1.5", "2.5"), 3)
        ledger.complete(end, 8, ["3.5"])
        assert ledger.chunk(backfill.backfill_id, "000000").loads == ("3.5",)


def test_a_chunk_without_rows_has_nothing_to_replace(target, backfill):
    with opened(target) as ledger:
        ledger.complete(take(ledger, backfill), 0, [])
        assert only(target).load_ids is None
        ledger.restate(backfill.backfill_id, "000000")
        assert take(ledger, backfill).superseded == ()


@pytest.mark.parametrize("state", ["pending", "running", "failed", "gone"])
def test_only_a_completed_chunk_is_restated(target, backfill, state):
    with opened(target) as ledger:
        if state in ("running", "failed"):
            claim = take(ledger, backfill)
            if state == "failed":
                ledger.fail(claim, "no")
        before = everything(target)
        with pytest.raises(ChunkMissingError):
            ledger.restate(backfill.backfill_id, "000009" if state == "gone" else "000000")
        assert [replace(row, lease_left=None) for row in everything(target)] == [
            replace(row, lease_left=None) for row in before
        ]


# --- the next chunk


def next_ids(ledger, backfill, since):
    """Take what can be had, leaving each chunk claimed."""
    found = []
    while claim := ledger.claim_next(backfill, me(), LONG, since):
        found.append(claim.chunk_id)
    return found


def test_chunks_are_taken_in_order(target, backfill):
    with opened(target) as ledger:
        ledger.complete(take(ledger, backfill, 1), 1, ["1"])
        take(ledger, backfill, 3)
        assert next_ids(ledger, backfill, ledger.clock()) == ["000000", "000002", "000004"]
        assert next_ids(ledger, backfill, ledger.clock()) == []


def test_what_failed_before_the_run_is_taken_and_what_failed_in_it_is_not(target, backfill):
    with opened(target) as ledger:
        ledger.fail(take(ledger, backfill, 0), "before")
        since = ledger.clock()
        ledger.fail(take(ledger, backfill, 1), "in this run")
        again = ledger.claim_next(backfill, me(), LONG, since)
        assert (again.chunk_id, again.attempt) == ("000000", 2)
        ledger.fail(again, "in this run")
        assert next_ids(ledger, backfill, since) == ["000002", "000003", "000004"]
        assert next_ids(ledger, backfill, ledger.clock()) == ["000000", "000001"]


def test_what_another_tool_failed_is_taken(target):
    backfill = plan()
    foreign_table(target, [foreign_row(backfill, 0, "failed", claimed_by="ops:1")])
    seeded(target, backfill)
    with opened(target) as ledger:
        claim = ledger.claim_next(backfill, me(), LONG, ledger.clock())
    assert (claim.chunk_id, claim.attempt) == ("000000", 1)


@pytest.mark.parametrize("ended", ["before the run", "during the run"])
def test_a_chunk_whose_lease_ran_out_is_taken_whenever_that_was(target, backfill, ended):
    with opened(target) as ledger:
        since = ledger.clock()
        first = take(ledger, backfill)
        end_leases(target)
        if ended == "before the run":
            since = ledger.clock()
        # Somebody else's step must not spoil it.
        ledger.fail(take(ledger, backfill, 4), "no")
        claim = ledger.claim_next(backfill, me("worker-2:2"), LONG, since)
    assert (claim.chunk_id, claim.attempt) == ("000000", 2)
    assert claim.token != first.token


def test_the_next_chunk_steps_over_a_live_claim_of_another_backfill(target):
    mine, theirs = plan(4), plan(2, size="24h", start="2026-01-02")
    seeded(target, mine, theirs)
    with opened(target) as ledger:
        held = take(ledger, theirs, 0)
        assert next_ids(ledger, mine, ledger.clock()) == ["000000", "000002", "000003"]
        ledger.complete(held, 1, ["1"])
        assert next_ids(ledger, mine, ledger.clock()) == ["000001"]


def test_live_tokens_are_those_of_claims_that_live(target, backfill):
    other = plan(source="web_hours")
    seeded(target, other)
    with opened(target) as ledger:
        gone = take(ledger, backfill, 0)
        end_leases(target)
        failed, done, live = (take(ledger, backfill, chunk) for chunk in (1, 2, 3))
        elsewhere = take(ledger, other)
        ledger.fail(failed, "no")
        ledger.complete(done, 1, ["1"])
        assert ledger.live_tokens("web_events") == {live.token}
        assert ledger.live_tokens("web_hours") == {elsewhere.token}
        ledger.renew(gone, LONG)
        assert ledger.live_tokens("web_events") == {live.token, gone.token}


# --- clocks


def test_a_workers_clock_and_zone_play_no_part(target, backfill, monkeypatch):
    with opened(target) as ledger:
        before = ledger.clock()

    class Wrong(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(1999, 1, 1, tzinfo=tz)

    monkeypatch.setattr("airflow_provider_backfill.engine.ledger.datetime", Wrong)
    monkeypatch.setattr("airflow_provider_backfill.engine.records.datetime", Wrong, raising=True)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setenv("TZ", "Pacific/Apia")
    time.tzset()
    try:
        with opened(target) as ledger:
            claim = take(ledger, backfill)
            with pytest.raises(ChunkHeldError):
                take(ledger, backfill)
            ledger.renew(claim, 60)
            row = ledger.chunk(backfill.backfill_id, "000000")
            ledger.complete(claim, 1, ["1"])
            done = ledger.chunk(backfill.backfill_id, "000000")
    finally:
        monkeypatch.undo()
        time.tzset()
    for moment in (row.claimed_at, row.started_at, row.updated_at, done.completed_at):
        assert before <= moment <= before + timedelta(minutes=5)
    assert 0 < row.lease_left <= 60
    assert done.chunk_from == datetime(2026, 1, 1, tzinfo=UTC)


def test_postgres_compares_by_the_clock_and_not_by_the_begin_of_the_transaction(pg_target):
    backfill = plan()
    seeded(pg_target, backfill)
    with opened(pg_target) as ledger:
        row = ledger.chunk(backfill.backfill_id, "000000")
        with ledger._session.transaction():
            claim = ledger._claim(row.backfill_id, row.chunk_id, me(), 0.01)
            sql(pg_target, "SELECT pg_sleep(0.05)")
            assert ledger.live_tokens("web_events") == frozenset()
            assert claim is not None
