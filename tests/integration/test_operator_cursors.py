"""Cursor formats, whole numbers, bounding arguments and empty chunks, as Airflow's tasks have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment

from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.operators.base import SourceOperator
from airflow_provider_backfill.version_compat import AirflowException, AirflowFailException
from tests.support.tasks import Tasks, rows_of

SOURCE = """
from datetime import UTC, datetime, timedelta

import dlt

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


@dlt.source(name="web_events")
def millis():
    @dlt.resource
    def rows(at=dlt.sources.incremental("at")):
        yield [{"id": n, "at": int(FIRST.timestamp() + n * 86_400) * 1000} for n in range(5) if n != 2]

    return rows


@dlt.source(name="web_events")
def ids():
    @dlt.resource
    def rows(id=dlt.sources.incremental("id", initial_value=0)):
        yield [{"id": n} for n in range(id.start_value, id.end_value)]

    return rows


@dlt.source(name="web_events")
def days(since, until, key):
    @dlt.resource
    def rows():
        yield [{"id": since.day, "at": since.isoformat(), "until": until, "key": key}]

    return rows
"""


@pytest.fixture(autouse=True)
def module(sources: Path) -> None:
    (sources / "cursor_source.py").write_text(SOURCE)


def loaded(tasks: Tasks, **window: Any) -> list[Any]:
    return [tasks.chunk(part, index)["rows"] for index, part in enumerate(tasks.plan(**window))]


def query(target: Target, sql: str) -> list[tuple[Any, ...]]:
    with target.connect(5) as session:
        return session.execute(sql)


@pytest.mark.parametrize("cursor_format", ["epoch_ms", {"rows": "epoch_ms"}, {"*": "epoch_ms"}])
def test_a_format_for_all_or_by_resource(warehouse: Target, cursor_format: Any) -> None:
    tasks = Tasks(source="cursor_source:millis", cursor_format=cursor_format)
    assert loaded(tasks) == [1, 1, 0, 1, 1]
    assert query(warehouse, "SELECT id FROM web_raw.rows ORDER BY id") == [(0,), (1,), (3,), (4,)]


def test_without_its_format_the_plan_fails_without_a_retry(warehouse: Target) -> None:
    with pytest.raises(AirflowFailException, match=r"cursor-type.*"):
        Tasks(source="cursor_source:millis").plan()
    with pytest.raises(AirflowFailException, match="cursor format 'epoch' is unknown"):
        Tasks(source="cursor_source:millis", cursor_format="epoch").plan()
    with pytest.raises(AirflowFailException, match="on_empty 'no' is unknown"):
        Tasks(source="cursor_source:millis", on_empty="no").plan()
    assert not warehouse.exists() or rows_of(warehouse) == []


def test_windows_of_whole_numbers(warehouse: Target) -> None:
    tasks = Tasks(source="cursor_source:ids")
    parts = tasks.plan(start=0, end="25", chunk=10)
    assert [(part["start"], part["end"], part["interval_label"]) for part in parts] == [
        ("0", "10", "0 → 10"),
        ("10", "20", "10 → 20"),
        ("20", "25", "20 → 25"),
    ]
    results = [tasks.chunk(part, index) for index, part in enumerate(parts)]
    assert [(result["chunk"], result["rows"]) for result in results] == [
        ("0 → 10", 10),
        ("10 → 20", 10),
        ("20 → 25", 5),
    ]
    assert [row.interval.end for row in rows_of(warehouse)] == [10, 20, 25]
    assert tasks.report()["records"] == 25
    assert Tasks(run_id="another", source="cursor_source:ids").plan(start=0, end=25, chunk="10") == []


def test_one_chunk_of_whole_numbers_alone(warehouse: Target) -> None:
    tasks = Tasks(source="cursor_source:ids", start=5, end=9)
    assert tasks.chunk({})["chunk"] == "5 → 9"
    assert [(row.chunk_size, row.interval.start) for row in rows_of(warehouse)] == [("4", 5)]


def test_arguments_have_fields_of_the_chunk(warehouse: Target) -> None:
    kwargs = {
        "since": "{chunk.start}",
        "until": "{chunk.last_date:%d.%m.%Y}",
        "key": "{chunk.id}{{x}}",
    }
    tasks = Tasks(source="cursor_source:days", source_kwargs=kwargs, bounded_by="kwargs")
    assert loaded(tasks) == [1] * 5
    rows = query(warehouse, "SELECT id, until, key FROM web_raw.rows ORDER BY id")
    assert rows == [
        (n, f"0{n}.01.2026", f"{row.run_id}{{{{x}}}}") for n, row in enumerate(rows_of(warehouse), start=1)
    ]


def test_an_empty_chunk_may_fail_its_task(warehouse: Target) -> None:
    tasks = Tasks(source="cursor_source:millis", cursor_format="epoch_ms", on_empty="fail")
    parts = tasks.plan()
    assert tasks.chunk(parts[0], 0)["rows"] == 1
    with pytest.raises(AirflowException, match="the source had no row for it") as caught:
        tasks.chunk(parts[2], 2)
    assert not isinstance(caught.value, AirflowFailException)


def test_airflow_leaves_the_fields_alone_when_it_renders() -> None:
    assert {"cursor_format", "bounded_by", "cursor_column", "on_empty"} <= set(SourceOperator.template_fields)
    given: dict[str, Any] = {
        "source_kwargs": {"since": "{chunk.start:%Y-%m-%d}", "table": "{{ params.table }}"},
        "cursor_format": "%Y-%m-%dT%H:%M:%SZ",
    }
    operator = ChunkedBackfillOperator(task_id="a", source="x:y", dataset_name="d", conn_id="c", **given)
    operator.render_template_fields({"params": {"table": "t"}}, Environment())
    assert operator.source_kwargs == {"since": "{chunk.start:%Y-%m-%d}", "table": "t"}
    assert operator.cursor_format == "%Y-%m-%dT%H:%M:%SZ"
    json.dumps(operator.source_kwargs)
