"""Whole attempts with dlt on a dialect."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.engine.gates import parse_assertions
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.plan import BackfillPlan
from airflow_provider_backfill.engine.runner import this_claimant
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.stage import stage_prefix
from airflow_provider_backfill.engine.window import ChunkSize, Window
from airflow_provider_backfill.exceptions import AttemptError, ClaimLostError
from airflow_provider_backfill.testing.base import PATIENCE, DialectTests

#: The resources of the source, by what becomes of rows that come again.
_DISPOSITIONS: Mapping[str, Any] = {
    "events": "append",
    "merged": "merge",
    "upserted": {"disposition": "merge", "strategy": "upsert"},
}


class Source:
    """A dlt source of two rows a day and resource, with two nested ones each.

    Args:
        resources: Which of append, merge and upsert it has.

    Attributes:
        word: A value of every row, to tell a later version by.
        then: What happens at the end of each reading.
    """

    def __init__(self, *resources: str) -> None:
        self.resources = resources or ("events",)
        self.word = "first"
        self.then: Callable[[], None] = lambda: None

    def __call__(self) -> Any:
        import dlt

        start = dlt.sources.incremental("at", initial_value=datetime(2020, 1, 1, tzinfo=UTC))

        def rows(at: Any = start) -> Iterator[dict[str, Any]]:
            yield from self._rows()

        @dlt.source(name="web_events")
        def web_events() -> Any:
            for name in self.resources:
                disposition = _DISPOSITIONS[name]
                yield dlt.resource(rows, name=name, write_disposition=disposition, primary_key="id")

        return web_events()

    def _rows(self) -> Iterator[dict[str, Any]]:
        for day in (1, 2, 3):
            when = datetime(2026, 1, day, 12, tzinfo=UTC)
            for number in (day, day + 10):
                yield {"id": number, "at": when, "word": self.word, "items": [{"n": 1}, {"n": 2}]}
        self.then()


class LoadTests(DialectTests):
    """That a chunk is published whole, once, or not at all."""

    @pytest.fixture
    def settings(self, tmp_path: Path) -> Settings:
        return Settings(
            wait_timeout_seconds=20, file_lock_timeout_seconds=20, work_dir=str(tmp_path / "work")
        )

    def test_chunks_are_loaded_once_and_a_later_version_replaces_them(
        self, target: Target, settings: Settings
    ) -> None:
        source = Source(*_DISPOSITIONS)
        backfill, plan = _seeded(target, settings, source)
        for number in (1, 2, 1):
            _run(backfill, plan, number)
        for table in _DISPOSITIONS:
            assert _loaded(target, table) == [(number, "first", 2) for number in (1, 2, 11, 12)]
        with target.connect(PATIENCE) as session:
            ledger = Ledger(session, target)
            assert [row.records_loaded for row in ledger.chunks(plan.backfill_id)] == [18, 18]
            ledger.restate(plan.backfill_id, "000001")
        source.word = "second"
        _run(backfill, plan, 2)
        second = [(1, "first", 2), (2, "second", 2), (11, "first", 2), (12, "second", 2)]
        for table in _DISPOSITIONS:
            assert _loaded(target, table) == second
        assert _left(target, settings) == []

    def test_an_attempt_that_fails_leaves_nothing(self, target: Target, settings: Settings) -> None:
        source = Source()
        backfill, plan = _seeded(target, settings, source)

        def fail() -> None:
            raise ConnectionError("no answer")

        source.then = fail
        with pytest.raises(AttemptError, match="no answer"):
            _run(backfill, plan, 1)
        assert _left(target, settings) == []
        with target.connect(PATIENCE) as session:
            assert target.dialect.table_columns(session, target.dataset_name, "events") == []
            row = Ledger(session, target).chunk(plan.backfill_id, "000000")
            assert (row.status, row.lease_left) == ("failed", None)

    def test_one_that_has_lost_its_claim_publishes_nothing(self, target: Target, settings: Settings) -> None:
        source = Source()
        backfill, plan = _seeded(target, settings, source)

        def lose() -> None:
            source.then = lambda: None
            with target.connect(PATIENCE) as session:
                ledger = Ledger(session, target)
                assert ledger.release(ledger.chunk(plan.backfill_id, "000000"), "released by a test")
            _run(backfill, plan, 1)

        source.then = lose
        with pytest.raises(ClaimLostError):
            _run(backfill, plan, 1)
        assert _loaded(target, "events") == [(1, "first", 2), (11, "first", 2)]
        assert _left(target, settings) == []

    def test_rows_are_set_aside_whole(self, target: Target, settings: Settings) -> None:
        rules = parse_assertions([{"sql": "id < 10", "on_failure": "quarantine"}])
        backfill, plan = _seeded(target, settings, Source(), assertions=rules)
        _run(backfill, plan, 1)
        assert _loaded(target, "events") == [(1, "first", 2)]
        with target.connect(PATIENCE) as session:
            [(text,)] = session.execute(f"SELECT row_json FROM {target.table('_dlt_rejected')}")
        rejected = json.loads(text)
        assert (rejected["id"], [item["n"] for item in rejected["events__items"]]) == (11, [1, 2])


def _seeded(target: Target, settings: Settings, source: Source, **spec: Any) -> tuple[Backfill, BackfillPlan]:
    backfill = Backfill(
        source=SourceSpec(reference=source, **spec),
        target=target,
        window=Window.parse("2026-01-01", "2026-01-03"),
        chunk=ChunkSize.parse("1d"),
        settings=settings,
    )
    plan = backfill.plan()
    backfill.seed(plan)
    return backfill, plan


def _run(backfill: Backfill, plan: BackfillPlan, number: int) -> None:
    backfill.runner.run_chunk(plan.backfill_id, f"{number - 1:06d}", this_claimant())


def _loaded(target: Target, table: str) -> list[tuple[Any, ...]]:
    """Id and word of each row, and how many nested ones it has."""
    with target.connect(PATIENCE) as session:
        return session.execute(
            f"SELECT e.id, e.word, count(i.n) FROM {target.table(table)} e"
            f" LEFT JOIN {target.table(f'{table}__items')} i ON i._dlt_parent_id = e._dlt_id"
            " GROUP BY e._dlt_id, e.id, e.word ORDER BY e.id"
        )


def _left(target: Target, settings: Settings) -> list[str]:
    """Stages and working directories of attempts."""
    work = Path(settings.work_root)
    with target.connect(PATIENCE) as session:
        stages = target.dialect.schemas(session, stage_prefix(target, "web_events"))
    return stages + [path.name for path in (work.iterdir() if work.is_dir() else ())]
