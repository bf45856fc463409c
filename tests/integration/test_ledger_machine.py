"""The ledger against a model of it, in random order of steps."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from airflow_provider_backfill.engine.intervals import Interval, missing
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.records import ChunkRow, Claim, Claimant
from airflow_provider_backfill.exceptions import (
    ChunkHeldError,
    ChunkMissingError,
    ClaimLostError,
    OverlapError,
)
from tests.integration.conftest import duckdb_target
from tests.support.ledgers import LONG, plan

pytestmark = pytest.mark.integration

# Three overlap, one of them for a single resource; one is of another source. Small, so that they meet often.
PLANS = (
    plan(2),
    plan(2, size="2d"),
    plan(1, source="web_events:views"),
    plan(1, source="web_hours"),
)
WORKERS = ("worker-1:1", "worker-2:2", "worker-3:3")

plans = st.sampled_from(PLANS)
workers = st.sampled_from(WORKERS)


@dataclass
class Row:
    """What the model knows of one chunk."""

    backfill: str
    source: str
    interval: Interval
    status: str = "pending"
    token: str | None = None
    lapsed: bool = False
    attempt: int = 0
    holder: str | None = None
    load_ids: tuple[str, ...] = ()
    failed_in_run: bool = False
    covered: bool = False

    @property
    def held(self) -> bool:
        return self.status == "running" and not self.lapsed

    def in_the_way_of(self, other: Row) -> bool:
        (name, _, mine), (other_name, _, theirs) = self.source.partition(":"), other.source.partition(":")
        meet = not mine or not theirs or bool(set(mine.split(",")) & set(theirs.split(",")))
        return name == other_name and meet and self.interval.overlaps(other.interval)

    def has_all_resources_of(self, other: Row) -> bool:
        mine, theirs = self.source.partition(":")[2], other.source.partition(":")[2]
        return not mine or (bool(theirs) and set(theirs.split(",")) <= set(mine.split(",")))


class LedgerMachine(RuleBasedStateMachine):
    """Tokens of every age are tried; the model says which of them may do what."""

    tokens = Bundle("tokens")

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="ledger-machine-")
        self.target = duckdb_target(Path(self.directory.name) / "web.duckdb")
        self.connection = self.target.connect(1)
        self.session = self.connection.__enter__()
        self.ledger = Ledger(self.session, self.target)
        self.rows: dict[tuple[str, str], Row] = {}
        self.loads = 0

    def teardown(self) -> None:
        self.connection.__exit__(None, None, None)
        self.directory.cleanup()

    @initialize()
    def prepare(self) -> None:
        self.ledger.prepare()
        self.since = self.ledger.clock()
        for backfill in PLANS[:2]:
            self.seed(backfill)

    # What the model expects

    def row(self, claim: Claim) -> Row:
        return self.rows[claim.backfill_id, claim.chunk_id]

    def holds(self, claim: Claim) -> bool:
        return self.row(claim).token == claim.token and self.row(claim).status == "running"

    def free(self, wanted: Row) -> bool:
        return (wanted.status in ("pending", "failed") or wanted.lapsed) and not any(
            (other.held or self.done_elsewhere(wanted, other)) and other.in_the_way_of(wanted)
            for other in self.rows.values()
        )

    @staticmethod
    def done_elsewhere(wanted: Row, other: Row) -> bool:
        stands = (other.status == "completed" or bool(other.load_ids)) and not other.covered
        return stands and other.backfill != wanted.backfill

    def lapsed_in_the_way_of(self, row: Row) -> None:
        for other in self.rows.values():
            if other.lapsed and other.in_the_way_of(row):
                other.status, other.token, other.lapsed, other.failed_in_run = "failed", None, False, True

    def claimed(self, claim: Claim, worker: str) -> None:
        """Take over what the ledger gave."""
        row = self.row(claim)
        self.lapsed_in_the_way_of(row)
        row.status, row.token, row.holder, row.failed_in_run = "running", claim.token, worker, False
        row.attempt += 1
        assert (claim.attempt, claim.interval, claim.superseded) == (row.attempt, row.interval, row.load_ids)

    # Steps

    @rule(backfill=plans)
    def seed_again_or_late(self, backfill) -> None:
        self.seed(backfill)

    def seed(self, backfill) -> None:
        self.ledger.seed(backfill)
        for chunk in backfill.chunks:
            self.rows.setdefault(
                (backfill.backfill_id, chunk.chunk_id),
                Row(backfill=backfill.backfill_id, source=backfill.source, interval=chunk.interval),
            )

    @rule(target=tokens, data=st.data(), worker=workers)
    def claim(self, data, worker):
        key = data.draw(st.sampled_from(sorted(self.rows)))
        row = self.ledger.chunk(*key)
        if not self.free(self.rows[key]):
            self.not_claimed(row, self.rows[key], worker)
            return multiple()
        claim = self.ledger.claim(row, Claimant(claimed_by=worker), LONG)
        self.claimed(claim, worker)
        return claim

    def not_claimed(self, row: ChunkRow, wanted: Row, worker: str) -> None:
        """It is held, or others have done some of it, or all, which the ledger notes then."""
        ways = [other for other in self.rows.values() if other.in_the_way_of(wanted)]
        holders = {other.holder for other in ways if other.held}
        done = [other for other in ways if self.done_elsewhere(wanted, other)]
        all_of_it = not missing(wanted.interval, [other.interval for other in done])
        try:
            claim = self.ledger.claim(row, Claimant(claimed_by=worker), LONG)
        except ChunkHeldError as error:
            done_here = wanted.status == "completed" and not holders
            assert done_here or error.holder in holders  # noqa: PT017 - one of several ends
        except OverlapError:
            assert not holders
            assert done
            assert not (all_of_it and all(other.has_all_resources_of(wanted) for other in done))
        else:
            assert claim is None
            assert not holders
            assert all_of_it
            self.lapsed_in_the_way_of(wanted)
            if wanted.status in ("pending", "failed") and not wanted.load_ids:
                wanted.status, wanted.covered = "completed", True

    @rule(target=tokens, backfill=plans, worker=workers)
    def claim_next(self, backfill, worker):
        due = [
            chunk_id
            for (backfill_id, chunk_id), row in sorted(self.rows.items())
            if backfill_id == backfill.backfill_id and self.free(row) and not row.failed_in_run
        ]
        claim = self.ledger.claim_next(backfill, Claimant(claimed_by=worker), LONG, self.since)
        assert (claim.chunk_id if claim else None) == (due[0] if due else None)
        if claim is None:
            return multiple()
        self.claimed(claim, worker)
        return claim

    @rule()
    def begin_another_run(self) -> None:
        self.since = self.ledger.clock()
        for row in self.rows.values():
            row.failed_in_run = False

    @precondition(lambda self: any(row.held for row in self.rows.values()))
    @rule(data=st.data())
    def lapse(self, data) -> None:
        row = data.draw(st.sampled_from([row for row in self.rows.values() if row.held]))
        self.session.execute(
            f"UPDATE {self.target.ledger} SET lease_expires_at = now() - INTERVAL '1 second'"
            " WHERE claim_token = :token",
            {"token": row.token},
        )
        row.lapsed = True

    @rule(claim=tokens)
    def renew(self, claim) -> None:
        if self.holds(claim):
            self.ledger.renew(claim, LONG)
            self.row(claim).lapsed = False
        else:
            with pytest.raises(ClaimLostError):
                self.ledger.renew(claim, LONG)

    @rule(claim=tokens, records=st.integers(0, 2**40))
    def complete(self, claim, records) -> None:
        self.loads += 1
        # Only a chunk without rows may be without a load.
        load_ids = [f"{self.loads}.{part}" for part in range(1 + records % 2 if records else 0)]
        if self.holds(claim):
            self.ledger.complete(claim, records, load_ids)
            row = self.row(claim)
            row.status, row.lapsed, row.load_ids = "completed", False, tuple(load_ids)
        else:
            with pytest.raises(ClaimLostError):
                self.ledger.complete(claim, records, load_ids)

    # Rarer than the others, so that some claims live long enough to be completed.
    @rule(claim=consumes(tokens), reason=st.text(max_size=20), will_retry=st.none() | st.booleans())
    def fail(self, claim, reason, will_retry) -> None:
        if self.holds(claim):
            self.ledger.fail(claim, reason, will_retry=will_retry)
            row = self.row(claim)
            row.status, row.token, row.lapsed, row.failed_in_run = "failed", None, False, True
        else:
            with pytest.raises(ClaimLostError):
                self.ledger.fail(claim, reason, will_retry=will_retry)

    @rule(data=st.data())
    def restate(self, data) -> None:
        key = data.draw(st.sampled_from(sorted(self.rows)))
        row = self.rows[key]
        if row.status == "completed":
            self.ledger.restate(*key)
            row.status, row.token, row.holder, row.covered = "pending", None, None, False
        else:
            with pytest.raises(ChunkMissingError):
                self.ledger.restate(*key)

    # What holds after each step

    @invariant()
    def the_ledger_is_as_the_model_says_and_no_two_live_claims_overlap(self) -> None:
        if not hasattr(self, "since"):
            return
        stored = {(row.backfill_id, row.chunk_id): row for row in self.ledger.dataset_chunks()}
        assert {
            key: (str(row.status), row.claim_token, row.lapsed, row.attempt or 0, row.claimed_by, row.loads)
            for key, row in stored.items()
        } == {
            key: (row.status, row.token, row.lapsed, row.attempt, row.holder, row.load_ids)
            for key, row in self.rows.items()
        }
        held = [self.rows[key] for key, row in stored.items() if row.held]
        for index, row in enumerate(held):
            assert not any(row.in_the_way_of(other) for other in held[index + 1 :])


def test_the_ledger_does_what_its_model_does():
    run_state_machine_as_test(
        LedgerMachine,
        settings=settings(
            max_examples=20,
            stateful_step_count=25,
            deadline=None,
            # Making a failing run shorter would outlast the test's time limit; 25 steps can be read.
            phases=(Phase.explicit, Phase.reuse, Phase.generate),
            suppress_health_check=list(HealthCheck),
        ),
    )
