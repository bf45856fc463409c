"""Short ways to a ledger in a test, and what its worker processes run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from airflow_provider_backfill.engine.destinations.base import Session, Target
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.plan import BackfillPlan, make_plan
from airflow_provider_backfill.engine.records import ChunkRow, Claim, Claimant
from airflow_provider_backfill.engine.window import Window
from airflow_provider_backfill.exceptions import ChunkHeldError

#: Longer than any test, so that only a test that says so sees a lease run out.
LONG = 3_600.0
WAIT = 30.0

#: The table as dlt-ops 0.1.0 makes it: no key, no index.
FOREIGN_COLUMNS = (
    "pipeline_name VARCHAR NOT NULL",
    "source_section VARCHAR NOT NULL",
    "resource_name VARCHAR",
    "backfill_id VARCHAR NOT NULL",
    "chunk_id VARCHAR NOT NULL",
    "chunk_from TIMESTAMPTZ NOT NULL",
    "chunk_to TIMESTAMPTZ NOT NULL",
    "backfill_from TIMESTAMPTZ NOT NULL",
    "backfill_to TIMESTAMPTZ NOT NULL",
    "chunk_size VARCHAR NOT NULL",
    "status VARCHAR NOT NULL",
    "claimed_by VARCHAR",
    "claimed_at TIMESTAMPTZ",
    "started_at TIMESTAMPTZ",
    "completed_at TIMESTAMPTZ",
    "records_loaded BIGINT",
    "run_id VARCHAR NOT NULL",
)


def plan(
    days: int = 5, size: str = "1d", source: str = "web_events", start: str = "2026-01-01"
) -> BackfillPlan:
    """A plan of ``days`` from 1 January 2026; the standard one is the design's example."""
    first = Window.parse(start, "2100-01-01").start
    assert isinstance(first, datetime)
    end = f"{first.date().fromordinal(first.date().toordinal() + days).isoformat()}"
    return make_plan(source, Window.parse(start, end), size)


def me(name: str = "worker-1:4711") -> Claimant:
    return Claimant(claimed_by=name)


@contextmanager
def opened(target: Target) -> Iterator[Ledger]:
    with target.connect(WAIT) as session:
        yield Ledger(session, target)


def seeded(target: Target, *plans: BackfillPlan) -> None:
    with opened(target) as ledger:
        ledger.prepare()
        for one in plans:
            ledger.seed(one)


def take(ledger: Ledger, backfill: BackfillPlan, chunk: int = 0, name: str = "worker-1:4711") -> Claim:
    """Claim one chunk of a plan under a lease that outlives the test."""
    row = ledger.chunk(backfill.backfill_id, f"{chunk:06d}")
    claim = ledger.claim(row, me(name), LONG)
    assert claim is not None
    return claim


def sql(target: Target, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
    """Run SQL on the ledger's database; ``{ledger}`` is the table."""
    with target.connect(WAIT) as session:
        return session.execute(statement.format(ledger=target.ledger), parameters)


def end_leases(target: Target) -> None:
    """As if every claim's holder had been silent for longer than its lease."""
    now = target.dialect.fragments["now"]
    with target.dialect.exclusive(target):
        sql(
            target,
            f"UPDATE {{ledger}} SET lease_expires_at = {now} - INTERVAL '1 second'"
            " WHERE lease_expires_at IS NOT NULL",
        )


def slowed(target: Target, seconds: int) -> None:
    """As if every completed chunk had taken so long."""
    with target.dialect.exclusive(target):
        sql(
            target,
            f"UPDATE {{ledger}} SET started_at = completed_at - INTERVAL '{seconds} seconds'"
            " WHERE started_at IS NOT NULL AND status = 'completed'",
        )


def steal_chunk(target: Target, backfill: BackfillPlan, chunk: int = 0, name: str = "thief:1") -> Claim:
    """Take a chunk whose holder lives, as if it had been silent for longer than its lease."""
    with opened(target) as ledger:
        while True:
            end_leases(target)
            # The holder's heart may beat between the two.
            with suppress(ChunkHeldError):
                return take(ledger, backfill, chunk, name)


def everything(target: Target) -> list[ChunkRow]:
    with opened(target) as ledger:
        return ledger.dataset_chunks()


def foreign_table(target: Target, rows: Sequence[dict[str, Any]] = ()) -> None:
    """The ledger as dlt-ops makes it, holding ``rows``."""
    with target.connect(WAIT) as session:
        target.dialect.create_schema(session, target.dataset_name)
        session.execute(f"CREATE TABLE {target.ledger} ({', '.join(FOREIGN_COLUMNS)})")
        for row in rows:
            marks = ", ".join(f":{name}" for name in row)
            session.execute(f"INSERT INTO {target.ledger} ({', '.join(row)}) VALUES ({marks})", row)


def foreign_row(backfill: BackfillPlan, chunk: int, status: str, **more: Any) -> dict[str, Any]:
    """A row of a plan as dlt-ops writes it."""
    start, end = backfill.window.interval.instants
    first, last = backfill.chunks[chunk].interval.instants
    return {
        "pipeline_name": f"{backfill.source_name}_pipeline",
        "source_section": backfill.source_name,
        "backfill_id": backfill.backfill_id,
        "chunk_id": backfill.chunks[chunk].chunk_id,
        "chunk_from": first,
        "chunk_to": last,
        "backfill_from": start,
        "backfill_to": end,
        "chunk_size": backfill.chunk_size,
        "status": status,
        "run_id": backfill.chunks[chunk].run_id,
        **more,
    }


def wait_until(condition: Callable[[], object], seconds: float = WAIT, every: float = 0.02) -> None:
    """Poll ``every`` so many seconds until ``condition`` holds; fail the test if it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {seconds:g} s"
        time.sleep(every)


@contextmanager
def counted(session: Session, monkeypatch: Any) -> Iterator[list[str]]:
    """The statements that ``session`` runs meanwhile."""
    statements: list[str] = []
    execute = session._execute

    def record(text: str, parameters: Any) -> list[tuple[Any, ...]]:
        statements.append(text)
        return execute(text, parameters)

    with monkeypatch.context() as patch:
        patch.setattr(session, "_execute", record)
        yield statements


# What runs in processes of its own; each waits at the barrier until all are ready.


def plan_and_seed(number: int, barrier: Any, target: Target, backfill: BackfillPlan) -> int:
    with opened(target) as ledger:
        barrier.wait(60)
        ledger.prepare()
        ledger.seed(backfill)
        return len(ledger.chunks(backfill.backfill_id))


def claim_first(number: int, barrier: Any, target: Target, backfill: BackfillPlan) -> Claim | str:
    """Ask for the first chunk; the claim, or who holds it."""
    with opened(target) as ledger:
        row = ledger.chunk(backfill.backfill_id, "000000")
        barrier.wait(60)
        try:
            claim = ledger.claim(row, me(f"process-{number}"), LONG)
        except ChunkHeldError as error:
            return str(error.holder)
        assert claim is not None
        return claim


def claim_all(number: int, barrier: Any, target: Target, backfill: BackfillPlan) -> list[str]:
    """Claim and complete chunks until none is left; their ids."""
    done = []
    with opened(target) as ledger:
        since = ledger.clock()
        barrier.wait(60)
        while claim := ledger.claim_next(backfill, me(f"process-{number}"), LONG, since):
            ledger.complete(claim, 1, [f"load-{claim.token}"])
            done.append(claim.chunk_id)
    return done
