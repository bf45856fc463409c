"""Metrics of a task, in Airflow's own statistics: StatsD, DogStatsD or OpenTelemetry, whichever is on."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_provider_backfill.version_compat import Context, conf

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.metrics import Metric, MetricsSink
    from airflow_provider_backfill.operators.base import TargetOperator

#: Options of Airflow's section ``[metrics]`` of which any turns statistics on.
_SWITCHES = ("statsd_on", "statsd_datadog_enabled", "otel_on")


class AirflowStats:
    """Passes metrics on to Airflow.

    Args:
        tags: What all of them have besides their own.
    """

    def __init__(self, *, tags: Mapping[str, str]) -> None:
        self._tags = dict(tags)

    def write(self, metric: Metric) -> None:
        from airflow_provider_backfill.engine.metrics import Kind
        from airflow_provider_backfill.version_compat import Stats

        tags = {**self._tags, **metric.tags}
        if metric.kind is Kind.COUNTER:
            Stats.incr(metric.name, int(metric.value), tags=tags)
        elif metric.kind is Kind.GAUGE:
            Stats.gauge(metric.name, metric.value, tags=tags)
        else:
            # Each backend makes milliseconds of it.
            Stats.timing(metric.name, timedelta(seconds=metric.value), tags=tags)


def stats_of(context: Context) -> MetricsSink | None:
    """Where the metrics of a task go; None where Airflow keeps no statistics."""
    if not any(conf.getboolean("metrics", switch, fallback=False) for switch in _SWITCHES):
        return None
    from airflow_provider_backfill.engine.metrics import BestEffort

    ti = context["ti"]
    return BestEffort(AirflowStats(tags={"dag_id": ti.dag_id, "task_id": ti.task_id}))


def tell_progress(
    operator: TargetOperator,
    context: Context,
    source_name: str,
    backfill_id: str,
    completed: int,
    total: int,
) -> None:
    """Tell how far a backfill is."""
    from airflow_provider_backfill.engine.metrics import Metrics

    metrics = Metrics(sink=stats_of(context), target=operator.hook.target, source_name=source_name)
    metrics.progress(completed, total, backfill_id)
