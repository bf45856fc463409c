"""Metrics: what becomes of them in Airflow's statistics and in a file, and of a sink that fails."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from statsd import StatsClient

from airflow_provider_backfill.engine.metrics import (
    CATALOGUE,
    PREFIX,
    BestEffort,
    Ending,
    Kind,
    Metric,
    Metrics,
    Waiting,
)
from airflow_provider_backfill.engine.metrics_file import JsonLines
from airflow_provider_backfill.engine.runner import Outcome
from airflow_provider_backfill.engine.targets import target_from_path
from airflow_provider_backfill.operators.metrics import AirflowStats, stats_of
from airflow_provider_backfill.version_compat import AIRFLOW_V_3_0_PLUS, Stats
from tests.support.metrics import Broken, Kept
from tests.support.tasks import FakeTaskInstance, context_of

if AIRFLOW_V_3_0_PLUS:
    from airflow.sdk._shared.observability.metrics.otel_logger import SafeOtelLogger
    from airflow.sdk._shared.observability.metrics.statsd_logger import SafeStatsdLogger
else:
    from airflow.metrics.otel_logger import SafeOtelLogger  # type: ignore[import-not-found,no-redef]
    from airflow.metrics.statsd_logger import SafeStatsdLogger  # type: ignore[import-not-found,no-redef]

TASK = {"dag_id": "web", "task_id": "events.chunk"}
WHERE = {"source": "web_events", "dataset": "web_raw"}


def measures(sink: Any) -> Metrics:
    return Metrics(sink=sink, target=target_from_path("web.duckdb", "web_raw"), source_name="web_events")


def everything(metrics: Metrics) -> None:
    """Each metric once."""
    outcome = Outcome(loaded=True, records=7, attempt=1, dropped=3, rejected=2, warnings=1)
    keys = ("d7a7c6e21e0d8ecb", "000002")
    metrics.ended(Ending.COMPLETED, 1.5, *keys, outcome, lapsed=1)
    for ending in (Ending.FAILED, Ending.STOPPED, Ending.LOST):
        metrics.ended(ending, 0.25, *keys)
    metrics.skipped(*keys)
    metrics.waiting(keys[0])
    metrics.waited(20.0, keys[0])
    metrics.progress(2, 5, keys[0])


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Puts another one behind Airflow's statistics."""

    def put(logger: Any) -> None:
        for name in ("incr", "gauge", "timing"):
            monkeypatch.setattr(Stats, name, getattr(logger, name), raising=False)

    return put


def test_each_metric_of_the_catalogue_is_told() -> None:
    kept = Kept()
    everything(measures(kept))
    assert {metric.name for metric in kept.metrics} == {f"{PREFIX}.{name}" for name in CATALOGUE}
    # OpenTelemetry cuts longer ones, and Airflow puts its own name before them.
    assert max(map(len, CATALOGUE)) + len(f"airflow.{PREFIX}.") <= 63


def test_what_did_not_happen_is_not_counted() -> None:
    kept = Kept()
    outcome = Outcome(loaded=True, records=0, attempt=1)
    measures(kept).ended(Ending.COMPLETED, 1.0, "d7a7c6e21e0d8ecb", "000002", outcome)
    assert kept.counts() == {"chunks.completed": 1}


def test_one_chunk_alone_is_no_progress() -> None:
    kept = Kept()
    measures(kept).progress(1, 1, "d7a7c6e21e0d8ecb")
    assert kept.metrics == []


def test_a_wait_is_counted_once_however_often_it_is_looked_at() -> None:
    kept = Kept()
    waiting = Waiting(measures(kept), "d7a7c6e21e0d8ecb")
    waiting.end()
    for _ in range(2):
        for _ in range(3):
            waiting.begin()
        waiting.end()
        waiting.end()
    assert kept.counts() == {"waits": 2}
    assert len(kept.of("wait.duration")) == 2


def test_without_a_sink_nothing_is_measured() -> None:
    everything(measures(None))


def test_a_sink_that_fails_is_asked_once(caplog: pytest.LogCaptureFixture) -> None:
    broken = Broken()
    with caplog.at_level(logging.DEBUG):
        everything(measures(BestEffort(broken)))
    assert broken.asked == 1
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage() == (
        "metrics are not recorded from here on: OSError: no route to postgres://***@collector"
    )


# A file


def test_lines_are_added_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metric = Metric(
        name="chunked_backfill.chunk.duration",
        kind=Kind.TIMING,
        value=1.23456789,
        tags={**WHERE, "outcome": "completed"},
        subject={"backfill_id": "d7a7c6e21e0d8ecb", "chunk_id": "000002"},
    )
    for _ in range(2):
        JsonLines(path).write(metric)
    first, second = map(json.loads, path.read_text().splitlines())
    assert first.pop("time") <= second.pop("time")
    assert first == second
    assert first == {
        "name": "chunked_backfill.chunk.duration",
        "kind": "timing",
        "value": 1.234568,
        "tags": {**WHERE, "outcome": "completed"},
        "backfill_id": "d7a7c6e21e0d8ecb",
        "chunk_id": "000002",
    }


# Airflow's statistics


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.settimeout(10)
        yield listening


def test_statsd_is_told(receiver: socket.socket, backend: Callable[[Any], None]) -> None:
    backend(SafeStatsdLogger(StatsClient("127.0.0.1", receiver.getsockname()[1], prefix="airflow")))
    sink = Kept()
    everything(measures(sink))
    for metric in sink.metrics:
        AirflowStats(tags=TASK).write(metric)
    said = {receiver.recv(1024).decode() for _ in sink.metrics}
    assert {
        "airflow.chunked_backfill.chunks.completed:1|c",
        "airflow.chunked_backfill.rows.loaded:7|c",
        "airflow.chunked_backfill.wait.duration:20000.000000|ms",
        "airflow.chunked_backfill.progress.ratio:0.4|g",
    } <= said


def test_opentelemetry_is_told(backend: Callable[[Any], None]) -> None:
    reader = InMemoryMetricReader()
    backend(SafeOtelLogger(MeterProvider(metric_readers=[reader])))
    everything(measures(AirflowStats(tags=TASK)))
    [resource] = json.loads(reader.get_metrics_data().to_json())["resource_metrics"]
    found = {
        metric["name"]: metric["data"]["data_points"]
        for scope in resource["scope_metrics"]
        for metric in scope["metrics"]
    }
    assert set(found) == {f"airflow.{PREFIX}.{name}" for name in CATALOGUE}
    [rows] = found["airflow.chunked_backfill.rows.loaded"]
    assert rows["value"] == 7
    assert rows["attributes"] == {**TASK, **WHERE}
    [ratio] = found["airflow.chunked_backfill.progress.ratio"]
    assert ratio["value"] == 0.4
    assert ratio["attributes"] == {**TASK, **WHERE, "backfill_id": "d7a7c6e21e0d8ecb"}
    # Airflow 2.11 keeps one set of tags of a gauge in each process.
    durations = [point["attributes"]["outcome"] for point in found["airflow.chunked_backfill.chunk.duration"]]
    assert "completed" in durations


@pytest.mark.parametrize("switch", ["STATSD_ON", "STATSD_DATADOG_ENABLED", "OTEL_ON"])
def test_a_task_has_a_sink_where_airflow_keeps_statistics(
    switch: str,
    monkeypatch: pytest.MonkeyPatch,
    backend: Callable[[Any], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    context = context_of(FakeTaskInstance(dag_id="web", task_id="events.chunk"))
    assert stats_of(context) is None
    monkeypatch.setenv(f"AIRFLOW__METRICS__{switch}", "True")
    sink = stats_of(context)

    class Down:
        def incr(self, *_: Any, **__: Any) -> None:
            raise ConnectionError("statistics are down")

        gauge = timing = incr

    backend(Down())
    everything(measures(sink))
    assert caplog.messages == ["metrics are not recorded from here on: ConnectionError: statistics are down"]
