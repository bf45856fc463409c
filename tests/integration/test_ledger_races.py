"""Many claimants at once, each with a connection or a process of its own."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psycopg2
import pytest

from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.records import ChunkStatus, Claim
from airflow_provider_backfill.exceptions import ChunkHeldError
from tests.support.crowds import crowd
from tests.support.ledgers import (
    LONG,
    WAIT,
    claim_all,
    claim_first,
    end_leases,
    everything,
    me,
    opened,
    plan,
    seeded,
    sql,
    take,
    wait_until,
)

pytestmark = pytest.mark.integration


def at_once(count, work):
    """Run ``work(number, barrier)`` in threads; what each returned."""
    barrier = threading.Barrier(count)
    with ThreadPoolExecutor(count) as pool:
        waiting = [pool.submit(work, number, barrier) for number in range(count)]
        return [one.result(timeout=60) for one in waiting]


def winner(answers):
    """The one claim among the answers, all of whose rivals were told who has it."""
    [claim] = [answer for answer in answers if isinstance(answer, Claim)]
    rivals = [answer for answer in answers if not isinstance(answer, Claim)]
    assert len(rivals) == len(answers) - 1
    assert len(set(rivals)) == 1
    return claim, rivals[0]


@pytest.mark.parametrize("before", ["pending", "failed", "lapsed"])
def test_of_threads_that_claim_one_chunk_exactly_one_wins(target, before):
    backfill = plan()
    seeded(target, backfill)
    with opened(target) as ledger:
        if before != "pending":
            claim = take(ledger, backfill)
            if before == "failed":
                ledger.fail(claim, "no")
            end_leases(target)
    answers = at_once(8, lambda number, barrier: claim_first(number, barrier, target, backfill))
    claim, holder = winner(answers)
    [row] = [row for row in everything(target) if row.chunk_id == "000000"]
    assert (row.claim_token, row.claimed_by, row.attempt) == (
        claim.token,
        holder,
        1 if before == "pending" else 2,
    )


def test_of_processes_that_claim_one_chunk_exactly_one_wins(pg_target):
    backfill = plan()
    seeded(pg_target, backfill)
    with crowd(6) as processes:
        claim, _ = winner(processes.run(claim_first, pg_target, backfill))
    assert everything(pg_target)[0].claim_token == claim.token


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_of_claims_that_overlap_one_wins_whatever_isolation_is_the_databases_default(pg_target, isolation):
    plans = [plan(4, size=size) for size in ("1d", "24h", "2d", "48h", "3d", "4d")]
    seeded(pg_target, *plans)
    name = pg_target.credentials.rpartition("/")[2]
    sql(pg_target, f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = '{isolation}'")
    claims = at_once(6, lambda number, barrier: claim_first(number, barrier, pg_target, plans[number]))
    winner(claims)
    assert Counter(row.status for row in everything(pg_target))[ChunkStatus.RUNNING] == 1


def test_16_claimers_take_2000_chunks_each_once(pg_target):
    backfill = plan(2_000)
    seeded(pg_target, backfill)
    answers = at_once(16, lambda number, barrier: claim_all(number, barrier, pg_target, backfill))
    taken = [chunk_id for answer in answers for chunk_id in answer]
    assert sorted(taken) == [chunk.chunk_id for chunk in backfill.chunks]
    rows = everything(pg_target)
    assert {(row.status, row.attempt) for row in rows} == {(ChunkStatus.COMPLETED, 1)}
    assert len({row.load_ids for row in rows}) == 2_000


def test_claimer_processes_take_each_chunk_once(pg_target):
    backfill = plan(60)
    seeded(pg_target, backfill)
    with crowd(4) as processes:
        answers = processes.run(claim_all, pg_target, backfill)
    assert sorted(chunk_id for answer in answers for chunk_id in answer) == [
        chunk.chunk_id for chunk in backfill.chunks
    ]


def test_threads_of_one_process_take_each_chunk_of_a_duckdb_file_once(duck_target):
    backfill = plan(12)
    seeded(duck_target, backfill)
    answers = at_once(4, lambda number, barrier: claim_all(number, barrier, duck_target, backfill))
    assert sorted(chunk_id for answer in answers for chunk_id in answer) == [
        chunk.chunk_id for chunk in backfill.chunks
    ]


def test_claims_leave_no_lock_behind(pg_target):
    """Locks end with their transactions, so a pool that shares connections between transactions is safe."""
    backfill = plan()
    seeded(pg_target, backfill)
    with opened(pg_target) as ledger:
        take(ledger, backfill)
        ledger.claim_next(backfill, me(), LONG, ledger.clock())
        with pytest.raises(ChunkHeldError):
            take(ledger, backfill)
        assert sql(pg_target, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]
        # Nor a session setting that the next user of the connection would find.
        [(changed,)] = ledger._session.execute("SELECT count(*) FROM pg_settings WHERE source = 'session'")
    with pg_target.connect(WAIT) as untouched:
        [(usual,)] = untouched.execute("SELECT count(*) FROM pg_settings WHERE source = 'session'")
    assert changed == usual


def test_a_machine_that_is_lost_in_a_transaction_does_not_keep_its_locks(pg_target):
    """Its connection stays open, and nothing comes from it any more: the server ends the transaction."""
    lock = pg_target.dialect.lock
    with pg_target.connect(WAIT) as lost, pg_target.connect(WAIT) as rival:

        def hang():
            with lost.transaction():
                lock(lost, "publish", idle_seconds=0.2)
                with rival.transaction():
                    lock(rival, "publish")
                lost.execute("SELECT 1")

        with pytest.raises(psycopg2.OperationalError):
            hang()
        # Only this transaction was told so.
        [(usual,)] = rival.execute("SELECT current_setting('idle_in_transaction_session_timeout')")
    assert usual == "0"


@pytest.mark.parametrize("published", [True, False])
def test_a_rival_waits_for_a_publication_under_a_lease_that_ran_out(pg_target, published):
    """Its outcome decides: committed, the chunk is completed; rolled back, the rival has it."""
    backfill = plan()
    seeded(pg_target, backfill)
    with opened(pg_target) as ledger:
        claim = take(ledger, backfill)
        end_leases(pg_target)

    answers: list[Claim | str] = []
    rival = threading.Thread(
        target=lambda: answers.append(claim_first(2, threading.Barrier(1), pg_target, backfill))
    )

    class CrashError(Exception):
        pass

    def publish(session):
        with session.transaction():
            Ledger(session, pg_target).complete(claim, 1, ["1"])
            rival.start()
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            wait_until(lambda: sql(pg_target, waiting) == [(1,)])
            assert answers == []
            if not published:
                raise CrashError

    with pg_target.connect(WAIT) as session:
        if published:
            publish(session)
        else:
            with pytest.raises(CrashError):
                publish(session)
    rival.join(WAIT)
    [answer] = answers
    row = everything(pg_target)[0]
    if published:
        assert answer == "worker-1:4711"
        assert (row.status, row.claim_token, row.attempt) == (ChunkStatus.COMPLETED, claim.token, 1)
    else:
        assert isinstance(answer, Claim)
        assert (row.status, row.claim_token, row.attempt) == (ChunkStatus.RUNNING, answer.token, 2)
