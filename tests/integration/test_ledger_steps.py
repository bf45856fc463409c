"""What becomes of a claimed chunk, and which chunk is next, on real databases."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_backfill.engine.ledger import ERROR_LIMIT
from airflow_provider_backfill.engine.records import ChunkStatus
from airflow_provider_backfill.exceptions import ChunkHeldError, ChunkMissingError
from tests.integration.test_ledger_claims import only
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


@pytest.fixture
def backfill(target):
    """The standard plan, seeded."""
    made = plan()
    seeded(target, made)
    return made


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
        f'GRANT ALL ON ALL TABLES IN SCHEMA "web_raw" TO {user}',
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
        ledger.fail(held, "no")
        assert next_ids(ledger, mine, ledger.clock()) == ["000001"]


def test_what_another_backfill_completed_meanwhile_is_not_loaded_again(target):
    """Both were planned before either had completed anything."""
    mine, theirs = plan(4), plan(2, size="24h", start="2026-01-02")
    seeded(target, mine, theirs)
    with opened(target) as ledger:
        ledger.complete(take(ledger, theirs, 0), 1, ["1"])
        assert ledger.claim(ledger.chunk(mine.backfill_id, "000001"), me(), 60) is None
        row = ledger.chunk(mine.backfill_id, "000001")
        assert (row.status, row.covered_by, row.records_loaded) == ("completed", theirs.backfill_id, 0)
        assert next_ids(ledger, mine, ledger.clock()) == ["000000", "000002", "000003"]


def test_live_tokens_are_those_of_claims_that_nobody_took(target, backfill):
    other = plan(source="web_hours")
    seeded(target, other)
    with opened(target) as ledger:
        gone = take(ledger, backfill, 0)
        end_leases(target)
        failed, done, live = (take(ledger, backfill, chunk) for chunk in (1, 2, 3))
        elsewhere = take(ledger, other)
        ledger.fail(failed, "no")
        ledger.complete(done, 1, ["1"])
        # A lease that ran out is still its holder's, who may renew it.
        assert ledger.live_tokens("web_events") == {live.token, gone.token}
        assert ledger.live_tokens("web_hours") == {elsewhere.token}
        again = take(ledger, backfill, 0)
        assert ledger.live_tokens("web_events") == {live.token, again.token}


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
            claim = ledger._claim(row.backfill_id, row.chunk_id, me(), 0.01, False)
            sql(pg_target, "SELECT pg_sleep(0.05)")
            keys = {"backfill_id": row.backfill_id, "chunk_id": row.chunk_id}
            assert ledger._run("holder", keys) == []
            assert claim is not None
