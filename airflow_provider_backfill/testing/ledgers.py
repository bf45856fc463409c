"""Many workers on one ledger of a dialect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from airflow_provider_backfill.engine.controls import BackfillControls, ControlState
from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.engine.ledger import OWN_COLUMNS, Ledger
from airflow_provider_backfill.engine.plan import BackfillPlan, make_plan
from airflow_provider_backfill.engine.records import Claim, Claimant
from airflow_provider_backfill.engine.window import Window
from airflow_provider_backfill.exceptions import BackfillPausedError, ChunkHeldError, ClaimLostError
from airflow_provider_backfill.testing.base import PATIENCE, DialectTests, at_once, undone

_WORKERS = 4
_CHUNKS = 6
_LEASE = 600.0


class LedgerTests(DialectTests):
    """`Feature.KEYS` and `Feature.LOCKS`, by what rests upon them."""

    @pytest.fixture
    def plan(self) -> BackfillPlan:
        return make_plan("web_events", Window.parse("2026-01-01", f"2026-01-{_CHUNKS + 1:02d}"), "1d")

    @pytest.fixture
    def seeded(self, target: Target, plan: BackfillPlan) -> BackfillPlan:
        with opened(target) as ledger:
            ledger.prepare()
            ledger.seed(plan)
        return plan

    def test_planners_that_start_together_make_each_row_once(
        self, target: Target, plan: BackfillPlan
    ) -> None:
        def plan_and_seed() -> int:
            with opened(target) as ledger:
                ledger.prepare()
                with target.dialect.exclusive(target):
                    ledger.seed(plan)
                return len(ledger.chunks(plan.backfill_id))

        assert at_once([plan_and_seed] * _WORKERS) == [_CHUNKS] * _WORKERS

    def test_a_row_cannot_stand_twice(self, target: Target, seeded: BackfillPlan) -> None:
        with opened(target) as ledger:
            ledger.seed(seeded)
            rows = ledger.chunks(seeded.backfill_id)
        assert [row.chunk_id for row in rows] == [chunk.chunk_id for chunk in seeded.chunks]
        assert [row.interval for row in rows] == [chunk.interval for chunk in seeded.chunks]
        with target.connect(PATIENCE) as session, pytest.raises(Exception, match=r"(?i)duplicate|unique"):
            session.execute(f"INSERT INTO {target.ledger} SELECT * FROM {target.ledger}")

    def test_a_table_of_another_tool_is_taken_over(self, target: Target, plan: BackfillPlan) -> None:
        with opened(target) as ledger, target.connect(PATIENCE) as session:
            target.dialect.create_schema(session, target.dataset_name)
            ledger.create()
            assert ledger.chunks(plan.backfill_id) == []
            ledger.prepare()
            columns = target.dialect.table_columns(session, target.dataset_name, "_dlt_backfills")
            assert columns[-len(OWN_COLUMNS) :] == list(OWN_COLUMNS)
            ledger.seed(plan)
            assert len(ledger.chunks(plan.backfill_id)) == _CHUNKS

    def test_each_chunk_is_claimed_by_one(self, target: Target, seeded: BackfillPlan) -> None:
        def work() -> list[str]:
            done = []
            with opened(target) as ledger:
                since = ledger.clock()
                while claim := ledger.claim_next(seeded, _worker(), _LEASE, since):
                    with target.dialect.exclusive(target):
                        ledger.complete(claim, 1, [claim.token])
                    done.append(claim.chunk_id)
            return done

        claimed = [chunk_id for ids in at_once([work] * _WORKERS) for chunk_id in ids]
        assert sorted(claimed) == [chunk.chunk_id for chunk in seeded.chunks]

    def test_one_of_many_has_the_same_chunk(self, target: Target, seeded: BackfillPlan) -> None:
        def ask() -> bool:
            with opened(target) as ledger:
                try:
                    _take(ledger, seeded)
                except ChunkHeldError:
                    return False
                return True

        assert sorted(at_once([ask] * _WORKERS)) == [False] * (_WORKERS - 1) + [True]

    def test_a_lease_that_ran_out_is_anybodys(self, target: Target, seeded: BackfillPlan) -> None:
        with opened(target) as ledger:
            lost = _take(ledger, seeded, lease_seconds=0)
            claim = _take(ledger, seeded)
            assert (lost.attempt, claim.attempt) == (1, 2)
            with pytest.raises(ClaimLostError):
                ledger.renew(lost, _LEASE)
            with pytest.raises(ClaimLostError):
                ledger.complete(lost, 1, ["x"])
            ledger.renew(claim, _LEASE)
            ledger.fail(claim, "the source broke")
            [row] = ledger.chunks(seeded.backfill_id)[:1]
            assert (row.status, row.error, row.lease_left) == ("failed", "the source broke", None)

    def test_a_completion_is_undone_with_its_transaction(self, target: Target, seeded: BackfillPlan) -> None:
        with target.connect(PATIENCE) as session:
            ledger = Ledger(session, target)
            claim = _take(ledger, seeded)
            with undone(session):
                ledger.complete(claim, 1, ["x"])
            assert ledger.chunk(seeded.backfill_id, claim.chunk_id).status == "running"
            with session.transaction():
                ledger.complete(claim, 1, ["x"])
            assert ledger.completed(seeded.backfill_id) == {claim.chunk_id}

    def test_a_paused_backfill_gives_no_claim(self, target: Target, seeded: BackfillPlan) -> None:
        with target.connect(PATIENCE) as session:
            ledger, controls = Ledger(session, target), BackfillControls(session, target)
            for why in ("first", "second"):
                controls.put(seeded.source_name, seeded.backfill_id, ControlState.PAUSED, "me@here", why)
            with pytest.raises(BackfillPausedError, match="second"):
                _take(ledger, seeded)
            controls.lift(seeded.source_name, seeded.backfill_id)
            assert _take(ledger, seeded).attempt == 1


@contextmanager
def opened(target: Target) -> Iterator[Ledger]:
    with target.connect(PATIENCE) as session:
        yield Ledger(session, target)


def _worker() -> Claimant:
    return Claimant(claimed_by="worker-1:4711")


def _take(ledger: Ledger, plan: BackfillPlan, lease_seconds: float = _LEASE) -> Claim:
    claim = ledger.claim(ledger.chunk(plan.backfill_id, "000000"), _worker(), lease_seconds)
    assert claim is not None
    return claim
