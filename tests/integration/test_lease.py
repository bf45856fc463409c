"""Keeping a claim, and noticing its loss, on real databases. Waits end with what they wait for."""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest

from airflow_provider_backfill.engine.lease import Heartbeat
from airflow_provider_backfill.engine.records import ChunkStatus, Claim
from airflow_provider_backfill.exceptions import ChunkHeldError, ClaimLostError
from tests.integration.conftest import postgres_target
from tests.support.duckdb_files import held_by_another_process
from tests.support.ledgers import (
    WAIT,
    everything,
    me,
    opened,
    plan,
    seeded,
    sql,
    steal_chunk,
    take,
    wait_until,
)

pytestmark = pytest.mark.integration

LOGGER = "airflow_provider_backfill.engine.lease"


@pytest.fixture
def quick(make_settings):
    """Renew every tenth of a second a lease that no hiccup of the machine outlasts."""
    return make_settings(lease_seconds=30, heartbeat_seconds=0.1)


def claimed(target, settings) -> Claim:
    backfill = plan()
    seeded(target, backfill)
    with opened(target) as ledger:
        row = ledger.chunk(backfill.backfill_id, "000000")
        return ledger.claim(row, me("worker-1:1"), settings.lease_seconds)


def row_of(target):
    return everything(target)[0]


def lost(heartbeat: Heartbeat) -> bool:
    try:
        heartbeat.check()
    except ClaimLostError:
        return True
    return False


def beating() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "lease-000000"]


@contextmanager
def stopped(server):
    """The server is down, as after a crash."""
    server.stop_immediate()
    try:
        yield
    finally:
        server.start()


def warned(caplog, text: str) -> bool:
    return any(text in record.getMessage() for record in caplog.records if record.name == LOGGER)


def test_a_claim_outlives_its_lease_while_the_heart_beats(target, make_settings):
    settings = make_settings(lease_seconds=3, heartbeat_seconds=0.3)
    claim = claimed(target, settings)
    backfill, refused, tokens = plan(), 0, set()
    with Heartbeat(target, claim, settings) as heartbeat, opened(target) as ledger:
        begun = row_of(target).claimed_at
        while (ledger.clock() - begun).total_seconds() < 2.5 * settings.lease_seconds:
            with pytest.raises(ChunkHeldError, match="held by worker-1:1 until"):
                take(ledger, backfill, name="worker-2:2")
            refused += 1
            heartbeat.check()
            row = ledger.chunk(backfill.backfill_id, "000000")
            tokens.add(row.lease_expires_at)
            assert (row.claim_token, row.attempt, row.status) == (claim.token, 1, ChunkStatus.RUNNING)
            time.sleep(0.1)
    assert refused > 2
    assert len(tokens) > 2


def test_no_renewal_happens_after_the_heart_has_stopped(target, quick):
    claim = claimed(target, quick)
    first = row_of(target).lease_expires_at
    with Heartbeat(target, claim, quick) as heartbeat:
        wait_until(lambda: row_of(target).lease_expires_at > first)
        assert beating()
        heartbeat.stop()
        assert not beating()
        heartbeat.check()
        heartbeat.stop()
    assert not lost(heartbeat)
    with opened(target) as ledger:
        ledger.complete(claim, 1, ["1"])


def test_a_heart_stops_at_once_however_long_its_beat_is(target, make_settings):
    settings = make_settings(lease_seconds=1_000, heartbeat_seconds=500)
    claim = claimed(target, settings)
    begun = time.monotonic()
    with Heartbeat(target, claim, settings):
        pass
    assert time.monotonic() - begun < WAIT
    assert not beating()


def test_an_error_in_the_attempt_stops_the_heart(target, quick):
    claim = claimed(target, quick)
    with pytest.raises(KeyError), Heartbeat(target, claim, quick):
        raise KeyError("source")
    assert not beating()


@pytest.mark.parametrize("how", ["taken", "released"])
def test_a_claim_that_is_taken_away_is_noticed(target, quick, how):
    claim = claimed(target, quick)
    with Heartbeat(target, claim, quick) as heartbeat:
        if how == "released":
            with opened(target) as ledger:
                ledger.fail(claim, "marked failed")
        else:
            theirs = steal_chunk(target, plan(), name="worker-2:2")
        wait_until(lambda: lost(heartbeat))
        with pytest.raises(ClaimLostError, match="chunk 1: cannot renew, the claim was lost"):
            heartbeat.check()
        # There is nothing left to renew.
        wait_until(lambda: not beating())
    row = row_of(target)
    if how == "taken":
        assert (row.claim_token, row.claimed_by, row.attempt) == (theirs.token, "worker-2:2", 2)
        assert row.held
    else:
        assert (row.status, row.error) == (ChunkStatus.FAILED, "marked failed")


def test_a_short_outage_costs_nothing(postgres_server, pg_target, quick, caplog):
    claim = claimed(pg_target, quick)
    with caplog.at_level(logging.WARNING, LOGGER), Heartbeat(pg_target, claim, quick) as heartbeat:
        with stopped(postgres_server):
            wait_until(lambda: warned(caplog, "lease of chunk 1 was not renewed: "))
            heartbeat.check()
        down = row_of(pg_target).lease_expires_at
        wait_until(lambda: row_of(pg_target).lease_expires_at > down)
        heartbeat.check()
    assert postgres_server.password not in caplog.text
    assert all("\n" not in record.getMessage() for record in caplog.records)
    with opened(pg_target) as ledger:
        ledger.complete(claim, 1, ["1"])


def test_an_outage_as_long_as_the_lease_loses_the_claim(postgres_server, pg_target, make_settings):
    settings = make_settings(lease_seconds=1, heartbeat_seconds=0.1)
    claim = claimed(pg_target, settings)
    with stopped(postgres_server):
        begun = time.monotonic()
        with Heartbeat(pg_target, claim, settings) as heartbeat:
            wait_until(lambda: lost(heartbeat))
            assert time.monotonic() - begun >= 1
    # The ledger was not told, yet this attempt must not go on: somebody else may have the chunk by now.
    with pytest.raises(ClaimLostError):
        heartbeat.check()


def test_a_server_that_does_not_answer_keeps_no_attempt_from_ending(make_settings):
    settings = make_settings(lease_seconds=60, heartbeat_seconds=0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(WAIT)
        target = postgres_target(f"postgresql://me:secret@127.0.0.1:{silent.getsockname()[1]}/web")
        interval = plan().chunks[0].interval
        claim = Claim(backfill_id="b", chunk_id="000000", token="t", attempt=1, interval=interval, run_id="r")
        heartbeat = Heartbeat(target, claim, settings)
        heartbeat.__enter__()
        connection, _ = silent.accept()
        with connection:
            stop = threading.Thread(target=heartbeat.stop, daemon=True)
            stop.start()
            stop.join(WAIT)
            assert not stop.is_alive()
    assert not beating()


def test_a_duckdb_file_that_another_process_holds_for_a_while_costs_nothing(duck_target, quick, caplog):
    claim = claimed(duck_target, quick)
    settings = replace(quick, heartbeat_seconds=0.3)
    with (
        held_by_another_process(duck_target.credentials) as other,
        caplog.at_level(logging.WARNING, LOGGER),
        Heartbeat(duck_target, claim, settings) as heartbeat,
    ):
        wait_until(lambda: warned(caplog, " stayed locked for "))
        heartbeat.check()
        other.stdin.close()
        other.wait(WAIT)
        down = row_of(duck_target).lease_expires_at
        wait_until(lambda: row_of(duck_target).lease_expires_at > down)
        heartbeat.check()


def test_the_time_that_others_could_not_renew_in_is_given_back(target, make_settings):
    """A lease that ended while one process had the database to itself lives on; an older one does not."""
    backfill = plan()
    seeded(target, backfill)
    with opened(target) as ledger:
        for chunk in (0, 1):
            take(ledger, backfill, chunk)
        now = target.dialect.fragments["now"]
        for chunk_id, ago in (("000000", 2), ("000001", 60)):
            sql(
                target,
                f"UPDATE {{ledger}} SET lease_expires_at = {now} - {ago} * INTERVAL '1 second'"
                f" WHERE chunk_id = '{chunk_id}'",
            )
        assert [row.lapsed for row in ledger.chunks(backfill.backfill_id)[:2]] == [True, True]
        ledger.spare(30)
        kept, over = ledger.chunks(backfill.backfill_id)[:2]
        assert kept.held
        assert 0 < kept.lease_left <= 28
        assert over.lapsed
        assert take(ledger, backfill, 1).attempt == 2


def test_a_busy_file_loses_no_claim_however_long_it_lasts(duck_target, make_settings, caplog):
    settings = make_settings(lease_seconds=0.4, heartbeat_seconds=0.1)
    claim = claimed(duck_target, settings)
    with (
        held_by_another_process(duck_target.credentials) as other,
        caplog.at_level(logging.WARNING, LOGGER),
        Heartbeat(duck_target, claim, settings) as heartbeat,
    ):
        begun = time.monotonic()
        while time.monotonic() - begun < 3 * settings.lease_seconds:
            wait_until(lambda: warned(caplog, " stayed locked for "))
            heartbeat.check()
            caplog.clear()
        other.stdin.close()
        wait_until(lambda: row_of(duck_target).held)
        heartbeat.check()
    with opened(duck_target) as ledger:
        ledger.complete(claim, 1, ["1"])
