"""The group in the hands of a DAG's author: beside other tasks, in other groups, many in one DAG."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest
from airflow.serialization import serialized_objects

from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.operators.plan import BackfillPlanOperator
from airflow_provider_backfill.operators.report import BackfillReportOperator
from airflow_provider_backfill.version_compat import (
    AIRFLOW_V_3_0_PLUS,
    DAG,
    Asset,
    BaseOperator,
    DuplicateTaskIdFound,
    TaskGroup,
)

COMMON: dict[str, Any] = {"source": "sources.events:events", "conn_id": "warehouse", "dataset_name": "raw"}
PARTS = ("plan", "chunk", "report")


def group(task_id: str = "events", **arguments: Any) -> Any:
    return ChunkedBackfillOperator.expand_window(task_id=task_id, chunk="1d", **{**COMMON, **arguments})


def parts(dag: Any, group_id: str = "events") -> list[Any]:
    return [dag.get_task(f"{group_id}.{part}") for part in PARTS]


def as_it_runs(task: Any) -> Any:
    """The operator; of a mapped one that of one of its tasks."""
    mapped = hasattr(task, "partial_kwargs")
    return task.unmap({"chunks": [["000000", "2026-01-01", "2026-01-02"]]}) if mapped else task


def told_of_failures(task: Any) -> list[Any]:
    given = task.on_failure_callback
    return list(given) if isinstance(given, (list, tuple)) else [given]


def restored(dag: Any) -> Any:
    """The DAG as a scheduler has it, which refuses what cannot be stored."""
    serialized = getattr(serialized_objects, "DagSerialization" if AIRFLOW_V_3_0_PLUS else "SerializedDAG")
    return serialized.from_dict(serialized.to_dict(dag))


def notify(context: Any) -> None:
    """A callback."""


class TestOrder:
    def test_tasks_before_and_behind(self) -> None:
        with DAG("a_dag", schedule=None) as dag:
            _ = BaseOperator(task_id="first") >> group() >> BaseOperator(task_id="last")
        plan, chunk, report = parts(restored(dag))
        assert plan.upstream_task_ids == {"first"}
        assert chunk.upstream_task_ids == {"events.plan"}
        assert report.upstream_task_ids == {"events.chunk"}
        # The last task waits for the report alone, and so for a window that is covered.
        assert dag.get_task("last").upstream_task_ids == {"events.report"}

    def test_groups_in_parallel_between_two_tasks(self) -> None:
        with DAG("a_dag", schedule=None) as dag:
            groups = [group(name, source_name=name) for name in ("orders", "views")]
            _ = BaseOperator(task_id="first") >> groups >> BaseOperator(task_id="last")
        for name in ("orders", "views"):
            assert dag.get_task(f"{name}.plan").upstream_task_ids == {"first"}
            assert cast(Any, dag.get_task(f"{name}.report")).plan_task_id == f"{name}.plan"
        assert dag.get_task("last").upstream_task_ids == {"orders.report", "views.report"}

    def test_a_window_that_another_task_finds(self) -> None:
        with DAG("a_dag", schedule=None) as dag:
            find = BaseOperator(task_id="find")
            group(start=cast(Any, find.output)["start"], end=cast(Any, find.output)["end"])
        plan, chunk, _ = parts(dag)
        assert plan.upstream_task_ids == {"find"}
        assert chunk.upstream_task_ids == {"events.plan"}

    def test_one_name_twice_is_refused(self) -> None:
        with DAG("a_dag", schedule=None):
            group()
            with pytest.raises(DuplicateTaskIdFound):
                group()


class TestNesting:
    def test_in_a_group_of_the_authors(self) -> None:
        with DAG("a_dag", schedule=None) as dag, TaskGroup("etl") as etl:
            inner = group()
            _ = inner >> BaseOperator(task_id="clean")
        assert inner.group_id == "etl.events"
        assert [task.task_id for task in parts(dag, "etl.events")] == [f"etl.events.{part}" for part in PARTS]
        assert cast(Any, dag.get_task("etl.events.report")).plan_task_id == "etl.events.plan"
        assert dag.get_task("etl.clean").upstream_task_ids == {"etl.events.report"}
        assert set(etl.children) == {"etl.events", "etl.clean"}

    def test_in_a_group_without_a_prefix(self) -> None:
        with DAG("a_dag", schedule=None) as dag, TaskGroup("etl", prefix_group_id=False):
            group()
        assert cast(Any, dag.get_task("events.report")).plan_task_id == "events.plan"

    def test_in_a_group_that_is_passed(self) -> None:
        with DAG("a_dag", schedule=None) as dag:
            etl = TaskGroup("etl")
            group(task_group=etl)
        assert len(parts(dag, "etl.events")) == len(PARTS)

    def test_the_arguments_of_the_outer_group_are_inherited(self) -> None:
        with (
            DAG("a_dag", schedule=None, default_args={"retries": 1, "pool": "small"}) as dag,
            TaskGroup("etl", default_args=cast(Any, {"retries": 4})),
        ):
            group(default_args={"queue": "heavy"})
        for task in parts(dag, "etl.events"):
            assert (task.retries, task.pool, task.queue) == (4, "small", "heavy")


class TestArguments:
    def test_those_of_the_dag_reach_each_task(self) -> None:
        defaults = {
            "conn_id": "lake",
            "execution_timeout": timedelta(hours=2),
            "on_failure_callback": notify,
            "owner": "data",
            "pool": "small",
            "priority_weight": 7,
            "retries": 5,
        }
        with DAG("a_dag", schedule=None, default_args=defaults) as dag:
            group(conn_id=None, retries=2)
        for task in map(as_it_runs, parts(dag)):
            assert (task.pool, task.owner, task.priority_weight, task.retries) == ("small", "data", 7, 2)
            assert task.execution_timeout == timedelta(hours=2)
            assert notify in told_of_failures(task)
            assert task.conn_id == "lake"

    def test_explicit_ones_too(self) -> None:
        table = Asset(uri="postgres://erp:5432/shop/public/orders")
        with DAG("a_dag", schedule=None) as dag:
            group(
                pool="api",
                pool_slots=2,
                on_failure_callback=notify,
                depends_on_past=True,
                doc_md="Why",
                inlets=[table],
            )
        for task in map(as_it_runs, parts(dag)):
            assert (task.pool, task.pool_slots, task.depends_on_past, task.doc_md) == ("api", 2, True, "Why")
            assert task.inlets == [table]
            assert notify in told_of_failures(task)

    def test_what_is_one_tasks_is_not_the_others_default(self) -> None:
        """A rule, outlets and XComs that all tasks of a DAG have would break what the group is."""
        table = Asset(uri="warehouse://raw/events")
        defaults = {"trigger_rule": "one_success", "outlets": [table], "do_xcom_push": False}
        with DAG("a_dag", schedule=None, default_args=defaults) as dag:
            group()
        plan, chunk, report = (as_it_runs(task) for task in parts(dag))
        rules = [task.trigger_rule for task in (plan, chunk, report)]
        assert rules == ["one_success", "all_success", "all_done"]
        assert plan.do_xcom_push
        assert [task.outlets for task in (plan, chunk, report)] == [[], [], [table]]


def test_a_loop_over_sources() -> None:
    regions = {"eu": "1d", "us": "6h", "asia": "1mo"}
    with DAG("a_dag", schedule=None) as dag:
        for region, chunk in regions.items():
            ChunkedBackfillOperator.expand_window(
                task_id=region,
                chunk=chunk,
                source_name=f"events_{region}",
                source_kwargs={"region": region},
                **COMMON,
            )
    assert len(dag.task_dict) == len(regions) * len(PARTS)
    for region, size in regions.items():
        plan, chunk_task, _ = parts(dag, region)
        assert (plan.chunk, plan.source_name) == (size, f"events_{region}")
        assert chunk_task.partial_kwargs["source_kwargs"] == {"region": region}
    assert set(restored(dag).task_dict) == set(dag.task_dict)


def test_the_tasks_by_hand() -> None:
    with DAG("a_dag", schedule=None) as dag:
        plan = BackfillPlanOperator(task_id="plan", chunk="1d", **COMMON)
        chunks = ChunkedBackfillOperator.partial(task_id="chunk", **COMMON).expand_kwargs(plan.output)
        report = BackfillReportOperator(
            task_id="report",
            plan_task_id="plan",
            conn_id="warehouse",
            dataset_name="raw",
            trigger_rule="all_done",
        )
        _ = chunks >> report
    again = restored(dag)
    assert again.get_task("chunk").upstream_task_ids == {"plan"}
    assert again.get_task("report").upstream_task_ids == {"chunk"}
