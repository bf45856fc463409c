"""Which ledgers a serialized DAG names."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import DAG, TaskGroup

from airflow_provider_backfill.decorators.backfill import chunked_backfill_task
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator

SOURCE: dict[str, Any] = {"source": "sources.web_events:page_views"}
HERE: dict[str, Any] = {"conn_id": "warehouse", "dataset_name": "web_raw"}
WINDOW: dict[str, Any] = {"start": "2026-01-01", "end": "2026-01-06", "chunk": "1d"}


class Ours(ChunkedBackfillOperator):
    """As a user's package may have it."""


def named(dag: DAG) -> list[tuple[str | None, str, str | None, tuple[str, ...], bool]]:
    from airflow.serialization.serialized_objects import DagSerialization

    from airflow_provider_backfill.plugins.ledgers import named_in

    return [
        (each.conn_id, each.dataset_name, each.into, each.tasks, each.unreadable is None)
        for each in named_in(DagSerialization.to_dict(dag))
    ]


def test_the_tasks_of_a_group_are_one_and_so_are_groups_of_one_place():
    with DAG("a_dag", schedule=None) as dag:
        ChunkedBackfillOperator.expand_window(task_id="first", **SOURCE, **HERE, **WINDOW, handover="forward")
        with TaskGroup("nightly"):
            ChunkedBackfillOperator.expand_window(task_id="second", **SOURCE, **HERE, **WINDOW)
            ChunkedBackfillOperator(task_id="alone", **SOURCE, **HERE)
    assert named(dag) == [("warehouse", "web_raw", None, ("first", "nightly.second", "nightly.alone"), True)]


def test_subclasses_decorated_functions_and_default_args():
    with DAG("a_dag", schedule=None, default_args={"conn_id": "lake", "retries": 1}) as dag:
        Ours(task_id="ours", dataset_name="a", **SOURCE)
        Ours.partial(task_id="mapped", dataset_name="b", **SOURCE).expand(start=["2026-01-01"])

        @chunked_backfill_task(dataset_name="c")
        def decorated():
            raise AssertionError

        decorated()
    assert named(dag) == [
        ("lake", "a", None, ("ours",), True),
        ("lake", "b", None, ("mapped",), True),
        ("lake", "c", None, ("decorated",), True),
    ]


def test_what_is_mapped_over_in_the_dag_itself_is_read():
    with DAG("a_dag", schedule=None) as dag:
        ChunkedBackfillOperator.partial(task_id="mapped", **SOURCE, conn_id="warehouse").expand_kwargs(
            [{"dataset_name": "one"}, {"dataset_name": "two", "into": "look"}]
        )
    assert named(dag) == [
        ("warehouse", "one", None, ("mapped",), True),
        ("warehouse", "two", "look", ("mapped",), True),
    ]


def test_templates_and_destinations_in_the_code_are_named_and_not_read():
    first: Any
    with DAG("a_dag", schedule=None) as dag:
        first = ChunkedBackfillOperator(task_id="first", **SOURCE, **HERE)
        ChunkedBackfillOperator(
            task_id="dataset", **SOURCE, conn_id="warehouse", dataset_name="{{ params.dataset }}"
        )
        ChunkedBackfillOperator(
            task_id="xcom", **SOURCE, conn_id="warehouse", dataset_name=first.output["dataset"]
        )
        ChunkedBackfillOperator(
            task_id="code", **SOURCE, destination="postgresql://u:s3cret@db/x", dataset_name="web_raw"
        )
    found = named(dag)
    assert found[0] == ("warehouse", "web_raw", None, ("first",), True)
    assert [readable for *_, readable in found[1:]] == [False, False, False]
    assert "s3cret" not in str(found)


def test_keys_tell_every_place_from_every_other():
    from airflow_provider_backfill.plugins.ledgers import NamedLedger

    places = [("a", "b", None), ("a", "b", "c"), ("ab", "", "c"), ("a", "bc", None), (None, "ab", None)]
    keys = {
        NamedLedger(conn_id=conn_id, dataset_name=dataset, into=into, tasks=()).key
        for conn_id, dataset, into in places
    }
    assert len(keys) == len(places)
