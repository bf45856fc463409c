from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields, replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.engine.plan import timezone_of
from airflow_provider_backfill.engine.records import (
    CLAIMABLE,
    HELD,
    TRANSITIONS,
    ChunkRow,
    ChunkStatus,
    Claim,
    Claimant,
)

pytestmark = pytest.mark.unit

COLUMNS = tuple(field.name for field in fields(ChunkRow))
BERLIN = timezone(timedelta(hours=1))


def make_row(**values):
    first = datetime(2026, 1, 1, tzinfo=UTC)
    standard = {
        "pipeline_name": "web_events",
        "source_section": "web_events",
        "backfill_id": "d7a7c6e21e0d8ecb",
        "chunk_id": "000002",
        "chunk_from": first + timedelta(days=2),
        "chunk_to": first + timedelta(days=3),
        "backfill_from": first,
        "backfill_to": first + timedelta(days=5),
        "chunk_size": "1d",
        "status": "pending",
        "run_id": "559264ef1526bd83",
    }
    return ChunkRow.from_row(COLUMNS, [(standard | values).get(column) for column in COLUMNS])


# --- states


def test_states_are_strings_for_other_readers():
    assert [str(status) for status in ChunkStatus] == ["pending", "claimed", "running", "completed", "failed"]
    assert ChunkStatus("failed") is ChunkStatus.FAILED


def test_a_chunk_is_held_or_to_be_had_or_done():
    assert not HELD & CLAIMABLE
    assert set(ChunkStatus) - HELD - CLAIMABLE == {ChunkStatus.COMPLETED}


def test_every_state_is_reached_from_pending_and_left_again():
    reached = {ChunkStatus.PENDING}
    for _ in ChunkStatus:
        reached |= {after for before, after in TRANSITIONS if before in reached}
    assert reached == set(ChunkStatus)
    assert {before for before, _ in TRANSITIONS} == set(ChunkStatus)
    assert all(before is not after for before, after in TRANSITIONS)


def test_a_chunk_is_completed_by_its_attempt_or_by_hand_and_only_a_completed_one_is_reset():
    assert {before for before, after in TRANSITIONS if after is ChunkStatus.COMPLETED} == {
        ChunkStatus.RUNNING,
        # What other backfills have loaded, and somebody's mark.
        *CLAIMABLE,
    }
    assert {before for before, after in TRANSITIONS if after is ChunkStatus.PENDING} == {
        ChunkStatus.COMPLETED
    }
    assert {before for before, after in TRANSITIONS if after is ChunkStatus.CLAIMED} == CLAIMABLE


# --- rows


def test_a_row_becomes_an_object_in_utc():
    row = make_row(
        status="running",
        chunk_from=datetime(2026, 1, 3, 1, tzinfo=BERLIN),
        claimed_at=datetime(2026, 2, 1, 13, tzinfo=BERLIN),
        lease_left=Decimal("41.5"),
        attempt=2,
    )
    assert row.status is ChunkStatus.RUNNING
    assert row.chunk_from.utcoffset() == row.claimed_at.utcoffset() == timedelta(0)
    assert row.interval == Interval(datetime(2026, 1, 3, tzinfo=UTC), datetime(2026, 1, 4, tzinfo=UTC))
    assert row.claimed_at == datetime(2026, 2, 1, 12, tzinfo=UTC)
    assert isinstance(row.lease_left, float)
    assert (row.lease_left, row.attempt, row.number) == (41.5, 2, 3)


def test_a_row_of_another_tool_has_nothing_of_ours():
    row = make_row(status="running", claimed_by="ops:1")
    assert (row.attempt, row.claim_token, row.lease_left, row.load_ids, row.loads) == (
        None,
        None,
        None,
        None,
        (),
    )


def test_a_state_that_nobody_knows_is_an_error():
    with pytest.raises(ValueError, match="skipped"):
        make_row(status="skipped")


def test_a_row_that_is_too_short_is_an_error():
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        ChunkRow.from_row(COLUMNS, ["web_events"])


def test_a_row_does_not_change():
    row = make_row()
    with pytest.raises(FrozenInstanceError):
        row.status = ChunkStatus.COMPLETED
    assert replace(row, records_loaded=3).records_loaded == 3


@pytest.mark.parametrize(
    ("status", "lease_left", "held", "lapsed"),
    [
        ("pending", None, False, False),
        ("claimed", 10, True, False),
        ("running", 0.001, True, False),
        ("running", 0, False, True),
        ("claimed", -3600, False, True),
        # Another tool's, which keeps no lease.
        ("running", None, True, False),
        ("claimed", None, True, False),
        ("completed", 10, False, False),
        ("failed", 10, False, False),
        ("failed", None, False, False),
    ],
)
def test_who_holds_a_chunk(status, lease_left, held, lapsed):
    row = make_row(status=status, lease_left=lease_left)
    assert (row.held, row.lapsed) == (held, lapsed)


@pytest.mark.parametrize(
    ("load_ids", "loads"),
    [(None, ()), ("", ()), ("1767225600.5", ("1767225600.5",)), ("1.5,2.5", ("1.5", "2.5"))],
)
def test_load_ids_are_a_list(load_ids, loads):
    assert make_row(load_ids=load_ids).loads == loads


def test_a_row_for_machines_is_plain_and_gives_no_right_away():
    row = make_row(
        status="running",
        claim_token="0123456789abcdef",
        lease_left=3.5,
        attempt=1,
        will_retry=True,
        map_index=0,
    )
    document = json.loads(json.dumps(row.as_json()))
    assert set(document) == set(COLUMNS) - {"claim_token", "lease_left"}
    assert "0123456789abcdef" not in json.dumps(document)
    assert document["chunk_from"] == "2026-01-03T00:00:00+00:00"
    assert (document["status"], document["attempt"], document["error"]) == ("running", 1, None)
    assert (document["will_retry"], document["map_index"]) == (True, 0)


# --- claims


def test_claims_and_claimants_are_values():
    interval = Interval(datetime(2026, 1, 3, tzinfo=UTC), datetime(2026, 1, 4, tzinfo=UTC))
    claim = Claim(backfill_id="b", chunk_id="000002", token="t", attempt=1, interval=interval, run_id="r")
    assert claim == replace(claim)
    assert (claim.superseded, claim.number) == ((), 3)
    with pytest.raises(FrozenInstanceError):
        claim.token = "mine"  # type: ignore[misc]
    someone = Claimant(claimed_by="worker-3:4711")
    assert (someone.dag_id, someone.dag_run_id, someone.task_id, someone.map_index) == (
        None,
        None,
        None,
        None,
    )
    with pytest.raises(TypeError):
        Claimant("worker-3:4711")  # type: ignore[call-arg]


def test_a_chunk_size_of_digits_says_that_the_bounds_are_numbers():
    first = datetime(1970, 1, 1, tzinfo=UTC)
    bounds = {
        "chunk_from": first + timedelta(microseconds=20),
        "chunk_to": first + timedelta(microseconds=30),
        "backfill_from": first - timedelta(microseconds=10),
        "backfill_to": first + timedelta(microseconds=30),
    }
    row = make_row(chunk_size="10", **bounds)
    assert (row.interval, row.window) == (Interval(20, 30), Interval(-10, 30))
    document = json.loads(json.dumps(row.as_json()))
    assert [document[name] for name in bounds] == [20, 30, -10, 30]
    times = make_row(chunk_size="10d@Europe/Berlin", **bounds)
    assert times.interval == Interval(bounds["chunk_from"], bounds["chunk_to"])
    assert timezone_of(times.chunk_size) == "Europe/Berlin"
