from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_backfill.engine.signals import Stopped
from airflow_provider_backfill.exceptions import (
    AttemptError,
    BoundFormatError,
    ChunkHeldError,
    EmptyWindowError,
    SourceImportError,
)
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.operators.base import Concealed, airflow_errors, concealed, revealed
from airflow_provider_backfill.operators.plan import BackfillPlanOperator
from airflow_provider_backfill.operators.report import BackfillReportOperator, _shortfall
from airflow_provider_backfill.operators.stopping import told_to_stop
from airflow_provider_backfill.version_compat import DAG, AirflowException, AirflowFailException
from tests.support.tasks import FakeTaskInstance, run_task
from tests.unit.test_records import make_row

COMMON: dict[str, Any] = {"source": "sources.events:events", "conn_id": "warehouse", "dataset_name": "raw"}


def operator(**arguments: Any) -> Any:
    return ChunkedBackfillOperator(task_id="events", **{**COMMON, **arguments})


def group(**arguments: Any) -> dict[str, Any]:
    """The tasks of a group, by the last part of their ids."""
    with DAG("a_dag", schedule=None) as dag:
        ChunkedBackfillOperator.expand_window(task_id="events", chunk="1d", **{**COMMON, **arguments})
    return {task_id.rpartition(".")[2]: task for task_id, task in dag.task_dict.items()}


class NoInterval(dict[str, Any]):
    """A context whose data interval must not be looked at."""

    def __getitem__(self, key: str) -> Any:
        assert not key.startswith("data_interval")
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        assert not key.startswith("data_interval")
        return super().get(key, default)


class TestWindow:
    def test_explicit_bounds_leave_the_data_interval_alone(self) -> None:
        window = operator(start="2026-01-01", end="2026-01-02T06:00:00Z").window(NoInterval())
        assert (window.start, window.end) == (
            datetime(2026, 1, 1, tzinfo=UTC),
            datetime(2026, 1, 2, 6, tzinfo=UTC),
        )

    def test_the_data_interval_is_the_default(self) -> None:
        start = datetime(2026, 1, 1, tzinfo=UTC)
        context = {"data_interval_start": start, "data_interval_end": start + timedelta(days=1)}
        assert operator().window(context).interval.instants == (start, start + timedelta(days=1))
        assert operator(end="2026-01-05").window(context).start == start

    def test_a_bare_date_is_midnight_in_the_time_zone(self) -> None:
        window = operator(start="2026-01-01", end="2026-01-02", timezone="America/New_York").window({})
        assert window.start == datetime(2026, 1, 1, 5, tzinfo=UTC)

    def test_a_data_interval_without_length_names_the_timetable(self) -> None:
        now = datetime(2026, 1, 1, tzinfo=UTC)
        with pytest.raises(EmptyWindowError, match="CronDataIntervalTimetable") as caught:
            operator().window({"data_interval_start": now, "data_interval_end": now})
        assert caught.value.from_data_interval

    def test_an_empty_window_of_the_authors_own_does_not(self) -> None:
        with pytest.raises(EmptyWindowError, match="half-open") as caught:
            operator(start="2026-01-01", end="2026-01-01").window({})
        assert not caught.value.from_data_interval

    @pytest.mark.parametrize("context", [{}, {"data_interval_start": None, "data_interval_end": None}])
    def test_a_run_without_a_data_interval_asks_for_bounds(self, context: dict[str, Any]) -> None:
        with pytest.raises(BoundFormatError, match="this DAG run has no data interval; pass start and end"):
            operator().window(context)


class TestGroup:
    def test_its_tasks_and_their_order(self) -> None:
        tasks = group(max_active_chunks=4)
        assert {name: task.task_id for name, task in tasks.items()} == {
            "plan": "events.plan",
            "chunk": "events.chunk",
            "report": "events.report",
        }
        assert tasks["chunk"].upstream_task_ids == {"events.plan"}
        assert tasks["report"].upstream_task_ids == {"events.chunk"}
        assert tasks["report"].trigger_rule == "all_done"
        assert isinstance(tasks["plan"], BackfillPlanOperator)
        assert isinstance(tasks["report"], BackfillReportOperator)
        assert tasks["report"].plan_task_id == "events.plan"
        assert tasks["chunk"].max_active_tis_per_dagrun == 4
        assert tasks["chunk"].partial_kwargs["map_index_template"] == "{{ task.interval_label }}"

    def test_its_arguments(self) -> None:
        arguments = {
            "start": "{{ params.start }}",
            "end": "{{ params.end }}",
            "timezone": "Europe/Berlin",
            "source_name": "web",
            "source_kwargs": {"token": "x"},
        }
        tasks = group(**arguments, resources=["a", "b"])
        plan, chunk = tasks["plan"], tasks["chunk"].partial_kwargs
        assert {name: getattr(plan, name) for name in arguments} == arguments
        assert plan.chunk == "1d"
        assert plan.resource_names == ["a", "b"]
        assert chunk["resource_names"] == ["a", "b"]
        for name in ("timezone", "source_name", "source_kwargs"):
            assert chunk[name] == arguments[name]
        for name in ("conn_id", "dataset_name"):
            assert getattr(tasks["report"], name) == COMMON[name]
        # The mapped arguments have these.
        assert not {"start", "end", "chunk"} & set(chunk)

    def test_arguments_of_airflow_go_to_each_task_but_few(self) -> None:
        tasks = group(
            retries=3,
            retry_delay=timedelta(seconds=7),
            queue="heavy",
            execution_timeout=timedelta(hours=1),
            trigger_rule="none_failed",
            task_display_name="Events",
        )
        for task in tasks.values():
            assert (task.retries, task.queue) == (3, "heavy")
            assert task.retry_delay == timedelta(seconds=7)
            assert task.execution_timeout == timedelta(hours=1)
        assert tasks["plan"].trigger_rule == "none_failed"
        assert tasks["chunk"].trigger_rule == "all_success"
        assert tasks["report"].trigger_rule == "all_done"
        assert tasks["chunk"].task_display_name == "Events"
        assert tasks["plan"].task_display_name != "Events"

    def test_default_arguments(self) -> None:
        tasks = group(default_args={"retries": 5, "deferrable": False})
        assert {task.retries for task in tasks.values()} == {5}
        assert tasks["chunk"].unmap({"chunks": [["000000", "2026-01-01", "2026-01-02"]]}).deferrable is False

    def test_only_the_chunks_are_deferrable(self) -> None:
        # The other tasks do not know the argument, so it must not reach them.
        for arguments, expected in (({"deferrable": False}, False), ({}, True)):
            chunk = group(**arguments)["chunk"].unmap({"chunks": [["000000", "2026-01-01", "2026-01-02"]]})
            assert chunk.deferrable is expected

    def test_in_another_group_and_in_a_dag_that_is_passed(self) -> None:
        dag = DAG("a_dag", schedule=None)
        ChunkedBackfillOperator.expand_window(task_id="events", chunk="1d", dag=dag, **COMMON)
        assert set(dag.task_dict) == {"events.plan", "events.chunk", "events.report"}

    def test_it_composes(self) -> None:
        with DAG("a_dag", schedule=None) as dag:
            first = ChunkedBackfillOperator.expand_window(task_id="first", chunk="1d", **COMMON)
            second = ChunkedBackfillOperator.expand_window(task_id="second", chunk="1d", **COMMON)
            _ = first >> second
        assert dag.task_dict["second.plan"].upstream_task_ids == {"first.report"}


class TestSecretsInTheDag:
    DESTINATION = "postgresql://bob:hunter2@host/db"

    def test_a_destination_does_not_reach_the_serialised_dag(self) -> None:
        import dlt

        for destination in (self.DESTINATION, dlt.destinations.postgres(self.DESTINATION)):
            chunk = group(conn_id=None, destination=destination)["chunk"]
            assert "hunter2" not in repr(chunk.partial_kwargs)
            assert revealed(chunk.partial_kwargs["destination"]) is destination
            by_hand = ChunkedBackfillOperator.partial(
                task_id="a", destination=destination, dataset_name="raw"
            ).expand_kwargs([{"start": "2026-01-01", "end": "2026-01-02"}])
            assert "hunter2" not in repr(by_hand.partial_kwargs)

    def test_no_template_has_it(self) -> None:
        assert "destination" not in ChunkedBackfillOperator.template_fields

    def test_what_is_harmless_is_not_concealed(self) -> None:
        for value in (None, "sources.events:events", "postgres"):
            assert concealed(value) is value
        assert isinstance(concealed(len), Concealed)


class TestErrors:
    def test_no_retry_for_what_no_retry_mends(self) -> None:
        cause = ValueError("deep down")
        with pytest.raises(AirflowFailException, match="failed to import") as caught, airflow_errors():
            raise SourceImportError("sources.events:events", "ValueError") from cause
        assert caught.value.__cause__ is cause

    def test_an_attempt_may_be_retried_and_shows_what_began_it(self) -> None:
        root = ValueError("the API is down")
        wrapper = RuntimeError("pipeline step failed")
        wrapper.__cause__ = root
        with pytest.raises(AirflowException, match="the API is down") as caught, airflow_errors():
            raise AttemptError("3/5", "ValueError: the API is down") from wrapper
        assert not isinstance(caught.value, AirflowFailException)
        assert caught.value.__cause__ is root

    def test_a_held_chunk_may_be_retried(self) -> None:
        with pytest.raises(AirflowException, match="is held by worker-3:4711") as caught, airflow_errors():
            raise ChunkHeldError("3/5", "worker-3:4711", datetime(2026, 1, 1, tzinfo=UTC), 42)
        assert not isinstance(caught.value, AirflowFailException)

    def test_a_stop_may_be_retried(self) -> None:
        with pytest.raises(AirflowException, match="stopped by SIGTERM") as caught, airflow_errors():
            raise Stopped("SIGTERM")
        assert not isinstance(caught.value, AirflowFailException)


class TestStopping:
    def test_sigterm_releases_and_then_stops(self) -> None:
        released: list[bool] = []
        before = signal.getsignal(signal.SIGTERM)
        with pytest.raises(Stopped), told_to_stop(lambda: released.append(True)):
            signal.raise_signal(signal.SIGTERM)
        assert released == [True]
        assert signal.getsignal(signal.SIGTERM) is before

    def test_a_second_signal_does_not_cut_the_clean_up_short(self) -> None:
        cleaned: list[bool] = []

        def attempt() -> None:
            with told_to_stop(lambda: None):
                try:
                    signal.raise_signal(signal.SIGTERM)
                finally:
                    signal.raise_signal(signal.SIGTERM)
                    cleaned.append(True)

        with pytest.raises(Stopped):
            attempt()
        assert cleaned == [True]

    def test_on_kill_without_a_chunk_in_flight_does_nothing(self) -> None:
        task = operator()
        task.on_kill()
        task.on_kill()


class TestReport:
    def report(self) -> BackfillReportOperator:
        return BackfillReportOperator(
            task_id="report", plan_task_id="events.plan", conn_id="warehouse", dataset_name="raw"
        )

    def test_without_a_plan_it_fails(self) -> None:
        with pytest.raises(AirflowFailException, match=r"nothing was planned.*events\.plan"):
            run_task(self.report(), FakeTaskInstance(task_id="events.report"))

    def test_what_went_wrong_is_named_before_what_was_not_tried(self) -> None:
        states: dict[int, dict[str, Any]] = {
            100: {"status": "completed"},
            250: {"status": "running", "claimed_by": "worker-3:4711", "lease_left": 30.0},
            350: {"status": "running", "claimed_by": "worker-4:4712", "lease_left": -1.0},
            400: {"status": "failed", "error": "ValueError: no"},
        }
        rows = [make_row(chunk_id=f"{number - 1:06d}", **states.get(number, {})) for number in range(1, 402)]
        where = "[2026-01-03T00:00:00+00:00 → 2026-01-04T00:00:00+00:00)"
        assert _shortfall(rows, {rows[0].backfill_id: len(rows)}).splitlines() == [
            "400 of 401 chunks not completed (2 failed, 1 held, 397 pending):",
            f"- chunk 350/401 {where}: failed (the lease of worker-4:4712 ran out)",
            f"- chunk 400/401 {where}: failed (ValueError: no)",
            f"- chunk 250/401 {where}: held by worker-3:4711",
            f"- chunks 1 to 99 of 401 {where}: pending",
            f"- chunks 101 to 249 of 401 {where}: pending",
            f"- chunks 251 to 349 of 401 {where}: pending",
            f"- chunks 351 to 399 of 401 {where}: pending",
            f"- chunk 401/401 {where}: pending",
            "clear the tasks of these chunks, or run the same window again, to resume",
        ]

    def test_a_long_list_is_cut_and_counted(self) -> None:
        rows = [make_row(chunk_id=f"{index:06d}", status="failed", error="no") for index in range(30)]
        rows += [make_row(chunk_id=f"{index:06d}") for index in range(30, 40)]
        lines = _shortfall(rows, {rows[0].backfill_id: len(rows)}).splitlines()
        assert lines[0] == "40 of 40 chunks not completed (30 failed, 10 pending):"
        assert lines[21] == "- and 20 more"


@pytest.mark.parametrize(
    ("given", "names"), [(None, ()), (["b", "a"], ("b", "a")), ("a, b,", ("a", "b")), ("", ())]
)
def test_resources_as_list_or_text(given: Any, names: tuple[str, ...]) -> None:
    assert operator(resource_names=given).source_spec.resources == names


def test_it_is_deferrable_unless_told_otherwise() -> None:
    assert operator().deferrable is True
    assert operator(deferrable=False).deferrable is False


def test_templates() -> None:
    fields = {"start", "end", "timezone", "conn_id", "dataset_name", "resource_names", "source_name"}
    assert fields | {"source_kwargs", "chunk"} <= set(ChunkedBackfillOperator.template_fields)
    assert fields | {"source_kwargs", "chunk"} <= set(BackfillPlanOperator.template_fields)
