"""``@task.chunked_backfill``: what a DAG file with it makes, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import task

from airflow_provider_backfill.decorators.backfill import chunked_backfill_task
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.operators.base import revealed
from airflow_provider_backfill.version_compat import DAG, TaskGroup
from tests.unit.test_imports import HEAVY, imported

COMMON: dict[str, Any] = {"conn_id": "warehouse", "dataset_name": "raw"}
WINDOW: dict[str, Any] = {"start": "2026-01-01", "end": "2026-01-06", "chunk": "1d"}

PARSED = """
from airflow.providers.common.compat.sdk import DAG, task

with DAG("a_dag", schedule=None) as dag:
    @task.chunked_backfill(conn_id="warehouse", dataset_name="raw")
    def web_events():
        raise AssertionError("called while the DAG was parsed")

    web_events()
    web_events.override(task_id="by_day", chunk="1d")()

assert set(dag.task_dict) == {"web_events", "by_day.plan", "by_day.chunk", "by_day.report"}
"""


def web_events(region: str = "eu", since: Any = None) -> Any:
    raise AssertionError("called while the DAG was parsed")


def decorated(function: Any = web_events, **arguments: Any) -> Any:
    return task.chunked_backfill(**{**COMMON, **arguments})(function)


@pytest.fixture
def dag() -> Any:
    return DAG("a_dag", schedule=None, params={"region": "us"})


def test_parsing_calls_no_function_and_imports_neither_dlt_nor_a_driver(tmp_path: Path) -> None:
    modules = imported(PARSED, tmp_path=tmp_path)
    without = imported("from airflow_provider_backfill.version_compat import DAG", tmp_path=tmp_path)
    assert not (modules - without) & HEAVY
    assert "dlt" not in modules


class TestOneChunk:
    def test_it_is_a_task_named_after_the_function(self, dag: Any) -> None:
        with dag:
            decorated(start="2026-01-01", retries=3)()
        [made] = dag.tasks
        assert isinstance(made, ChunkedBackfillOperator)
        assert (made.task_id, made.start, made.end, made.chunk, made.retries) == (
            "web_events",
            "2026-01-01",
            None,
            None,
            3,
        )
        assert made.source_spec.reference is web_events
        assert made.source_spec.arguments == {}

    def test_what_it_is_called_with_is_for_the_source(self, dag: Any) -> None:
        with dag:
            decorated(resources=["a"])("{{ params.region }}", since="{chunk.start}")
        [made] = dag.tasks
        made.render_template_fields({"params": {"region": "us"}})
        assert made.source_spec.arguments == {"region": "us", "since": "{chunk.start}"}
        assert made.source_spec.resources == ("a",)

    def test_what_other_tasks_return_makes_them_upstream(self, dag: Any) -> None:
        with dag:

            @task
            def region() -> str:
                return "us"

            @task
            def after() -> None: ...

            loaded = decorated()(region=region())
            _ = loaded >> after()
        assert dag.task_dict["web_events"].upstream_task_ids == {"region"}
        assert dag.task_dict["after"].upstream_task_ids == {"web_events"}


class TestWindow:
    def test_a_chunk_size_makes_it_the_group(self, dag: Any) -> None:
        with dag:

            @task
            def region() -> str:
                return "us"

            made = decorated(**WINDOW, max_active_chunks=4, resources=["a"], outlets=[])(region=region())
        assert isinstance(made, TaskGroup)
        assert set(dag.task_dict) == {"region", "web_events.plan", "web_events.chunk", "web_events.report"}
        plan, chunk = dag.task_dict["web_events.plan"], dag.task_dict["web_events.chunk"]
        assert (plan.chunk, plan.start, plan.end) == ("1d", "2026-01-01", "2026-01-06")
        assert plan.resource_names == chunk.partial_kwargs["resource_names"] == ["a"]
        assert plan.source_kwargs == chunk.partial_kwargs["source_kwargs"]
        assert plan.upstream_task_ids == {"region"}
        assert chunk.upstream_task_ids == {"region", "web_events.plan"}
        assert chunk.max_active_tis_per_dagrun == 4
        assert revealed(plan.source) is revealed(chunk.partial_kwargs["source"]) is web_events

    def test_override_makes_one_of_the_other(self, dag: Any) -> None:
        with dag:
            decorated().override(task_id="by_day", **WINDOW)()
            decorated(**WINDOW).override(task_id="at_once", chunk=None)()
        assert set(dag.task_dict) == {"by_day.plan", "by_day.chunk", "by_day.report", "at_once"}

    def test_groups_compose(self, dag: Any) -> None:
        with dag:
            _ = decorated(**WINDOW)() >> decorated(**WINDOW, task_id="then")()
        assert dag.task_dict["then.plan"].upstream_task_ids == {"web_events.report"}


@pytest.mark.parametrize(("arguments", "last"), [({}, ""), (WINDOW, ".plan")], ids=["one chunk", "window"])
class TestBoth:
    def test_several_sources_in_a_loop(self, dag: Any, arguments: dict[str, Any], last: str) -> None:
        with dag:
            for region in ("eu", "us"):
                decorated(**arguments).override(task_id=f"web_{region}")(region=region)
        for region in ("eu", "us"):
            assert dag.task_dict[f"web_{region}{last}"].source_spec.arguments == {"region": region}

    def test_one_function_several_times(self, dag: Any, arguments: dict[str, Any], last: str) -> None:
        with dag:
            for _ in range(3):
                decorated(**arguments)()
        with DAG("nested", schedule=None) as nested, TaskGroup("etl"):
            for _ in range(3):
                decorated(**arguments)()
        names = {f"web_events{last}", f"web_events__1{last}", f"web_events__2{last}"}
        assert names <= set(dag.task_dict)
        assert {f"etl.{name}" for name in names} <= set(nested.task_dict)

    def test_the_functions_text_is_the_tasks(self, dag: Any, arguments: dict[str, Any], last: str) -> None:
        def described() -> None:
            """All views."""

        with dag:
            decorated(described, **arguments)()
            decorated(described, task_id="other", doc_md="Mine.", **arguments)()
        assert dag.task_dict[f"described{last}"].doc_md == "All views."
        assert dag.task_dict[f"other{last}"].doc_md == "Mine."

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda made: made(planet="mars"), "unexpected keyword argument 'planet'"),
            (lambda made: made.expand(region=["eu"]), "cannot be mapped; call it once for each source"),
            (lambda made: made.partial(region="eu"), "cannot be mapped; call it once for each source"),
            (lambda made: made.expand_kwargs([{}]), "cannot be mapped; call it once for each source"),
            (lambda made: made.override(source="a:b"), "got source; the source is what the function"),
            (lambda made: made.override(source_kwargs={}), "got source_kwargs; the source is what"),
        ],
    )
    def test_what_does_not_fit_is_refused(
        self, dag: Any, arguments: dict[str, Any], last: str, call: Any, message: str
    ) -> None:
        with dag, pytest.raises(TypeError, match=message):
            call(decorated(**arguments))

    def test_airflows_context_does_not_reach_the_function(
        self, dag: Any, arguments: dict[str, Any], last: str
    ) -> None:
        def wants_params(params: Any = None) -> None: ...

        with dag:
            with pytest.raises(TypeError, match="wants_params has a parameter 'params' and gets nothing"):
                decorated(wants_params, **arguments)()
            decorated(wants_params, **arguments)(params="{{ params.region }}")
        made = dag.task_dict[f"wants_params{last}"]
        assert made.source_spec.arguments == {"params": "{{ params.region }}"}


def test_a_limit_of_chunks_without_chunks_is_refused(dag: Any) -> None:
    with (
        dag,
        pytest.raises(TypeError, match="or leave max_active_chunks out"),
    ):
        decorated(max_active_chunks=2)()


def test_without_parentheses_the_dag_has_the_arguments() -> None:
    with DAG("a_dag", schedule=None, default_args=COMMON) as dag:
        chunked_backfill_task(web_events)()
    made: Any = dag.task_dict["web_events"]
    assert made.dataset_name == "raw"
