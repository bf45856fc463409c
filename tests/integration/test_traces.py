"""dlt's traces, where the setting asks for them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.settings import Settings
from tests.support.sources import events, source_of
from tests.support.worlds import IDS, World


@pytest.fixture
def traced(target: Target, make_settings: Callable[..., Settings]) -> World:
    return World(target, make_settings(trace=True))


def test_each_load_has_its_trace(traced: World) -> None:
    rows = [row for row in events(3) if row["id"] != 2]
    backfill, plan = traced.seeded(source_of(rows))
    traced.run(backfill, plan)
    found = traced.query(
        "SELECT pipeline_name, _dlt_load_id, steps, finished_at >= started_at, transaction_id, _dlt_id"
        " FROM @_dlt_trace ORDER BY started_at"
    )
    # The chunk without rows was no load.
    assert [row[:2] for row in found] == [("web_events", traced.row(plan, n).load_ids) for n in (1, 3)]
    for _, load_id, steps, ended, *ids in found:
        document = json.loads(steps) if isinstance(steps, str) else steps
        assert [step["step"] for step in document] == ["extract", "normalize"]
        assert load_id in json.dumps(document)
        assert ended
        assert all(ids)


def test_there_is_none_by_default(target: Target, settings: Settings) -> None:
    world = World(target, settings)
    backfill, plan = world.seeded(source_of(events(1)), 1)
    world.run(backfill, plan)
    assert not world.target_has("_dlt_trace")


def test_one_that_cannot_be_written_is_one_line_and_the_run_goes_on(
    traced: World, caplog: pytest.LogCaptureFixture
) -> None:
    backfill, plan = traced.seeded(source_of(events()))
    traced.query("CREATE TABLE @_dlt_trace (transaction_id INTEGER)")
    [outcome] = traced.run(backfill, plan, 1)
    assert outcome.loaded
    [error] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert error.startswith("chunk 1: the trace is not recorded in _dlt_trace: ")
    assert "\n" not in error
    assert traced.query(IDS) == [(1, 10)]
    assert traced.query("SELECT status FROM @_dlt_ops_runs") == [("completed",)]
