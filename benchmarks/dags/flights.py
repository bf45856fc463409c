"""The same days of flights, by the operator and by hand."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from airflow.sdk import DAG, dag, task

from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator

NEW_YORK = ZoneInfo("America/New_York")
WINDOW = {"start": "2013-01-01", "end": "2013-02-01"}


@dag(schedule=None, params=WINDOW)
def ours() -> None:
    ChunkedBackfillOperator.expand_window(
        task_id="flights",
        source="sources.nyc_flights:flights",
        conn_id="warehouse",
        dataset_name="ours",
        start="{{ params.start }}",
        end="{{ params.end }}",
        chunk="1d",
        timezone="America/New_York",
        max_active_chunks=2,
        retries=2,
    )


def by_hand(name: str, *, tuned: bool) -> None:
    """A mapped task that runs dlt.

    Args:
        name: Of the DAG and of its dataset.
        tuned: Keep dlt from asking Airflow for a Variable at each of some 700 settings.
    """

    @task
    def days(params: Any = None) -> list[str]:
        start, end = (datetime.fromisoformat(params[name]) for name in ("start", "end"))
        return [f"{start + timedelta(days=number):%Y-%m-%d}" for number in range((end - start).days)]

    @task(retries=2, max_active_tis_per_dagrun=2, map_index_template="{{ task.op_kwargs['day'] }}")
    def load(day: str) -> None:
        if tuned:
            os.environ["PROVIDERS__ENABLE_AIRFLOW_SECRETS"] = "false"
        import dlt
        from airflow.sdk import BaseHook
        from dlt.common.configuration.container import Container
        from dlt.extract.incremental.context import TimeIntervalContext

        from sources.nyc_flights import flights

        start = datetime.fromisoformat(day).replace(tzinfo=NEW_YORK)
        interval = TimeIntervalContext(
            interval=(start, start + timedelta(days=1)), allow_external_schedulers=True
        )
        pipeline = dlt.pipeline(
            # Two days at once must not share a working directory.
            pipeline_name=f"flights_{day.replace('-', '_')}",
            destination=dlt.destinations.postgres(BaseHook.get_connection("warehouse").get_uri()),
            dataset_name=name,
        )
        with Container().injectable_context(interval):
            pipeline.run(flights)

    with DAG(dag_id=name, schedule=None, params=WINDOW):
        load.expand(day=days())


ours()
by_hand("by_hand", tuned=False)
by_hand("by_hand_tuned", tuned=True)
