"""Functions behind ``@task.chunked_backfill``, run by hand on real databases."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import task

from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.version_compat import DAG
from tests.support.tasks import BACKFILL_ID, WINDOW, FakeTaskInstance, ids_in, rows_of, run_task

pytestmark = pytest.mark.usefixtures("sources")


@task.chunked_backfill(conn_id="warehouse", dataset_name="web_raw")
def views(leave_out: Any) -> Any:
    source = import_module("page_view_source").page_views()
    source.resources["page_views"].add_filter(lambda view: view["id"] not in leave_out)
    return source


def test_one_chunk(warehouse: Target) -> None:
    with DAG("a_dag", schedule=None) as dag:
        views.override(start="{{ params.start }}", end="2026-01-05")("{{ params.leave_out }}")
    # So that lists stay lists.
    dag.render_template_as_native_obj = True
    operator: Any = dag.task_dict["views"]
    operator.render_template_fields({"params": {"start": "2026-01-02", "leave_out": [3]}})
    result = run_task(operator)
    assert (result["status"], result["rows"]) == ("completed", 2)
    assert ids_in(warehouse) == [2, 4]
    [row] = rows_of(warehouse)
    # What the function returns has the name, not the function.
    assert (row.source_section, row.chunk_size, row.task_id) == ("web_events", "3d", "views")
    # A task that was deferred goes on by itself.
    event = {"deadline": 0.0, "holder": None, "over": False}
    assert operator.resume({"ti": FakeTaskInstance(task_id="views")}, event)["status"] == "skipped"


def test_a_window(warehouse: Target) -> None:
    with DAG("a_dag", schedule=None) as dag:
        views.override(chunk="1d", **WINDOW)(leave_out=[3])
    ti = FakeTaskInstance(task_id="views.plan")
    mapped = run_task(dag.task_dict["views.plan"], ti)
    assert {part["backfill_id"] for part in mapped} == {BACKFILL_ID}
    for index, part in enumerate(mapped):
        chunk = dag.task_dict["views.chunk"].unmap(part)
        run_task(chunk, FakeTaskInstance(task_id="views.chunk", map_index=index))
    report = run_task(dag.task_dict["views.report"], FakeTaskInstance(task_id="views.report", xcoms=ti.xcoms))
    assert (report["completed"], report["records"]) == (5, 4)
    assert ids_in(warehouse) == [1, 2, 4, 5]
