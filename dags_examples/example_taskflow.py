"""Page views without those of robots, which another task names; five days by window, a sixth by itself.

Needs the connection ``warehouse`` (type ``duckdb`` or ``postgres``).
"""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG, task

# [START taskflow]
with DAG(dag_id="example_taskflow", schedule=None):

    @task
    def robots() -> list[str]:
        return ["/day/2"]

    @task.chunked_backfill(
        conn_id="warehouse",
        dataset_name="web_taskflow",
        start="2026-01-01",
        end="2026-01-06",
        chunk="1d",
        retries=1,
    )
    def web_events(leave_out):
        from sources.web_events import page_views

        return page_views().add_filter(lambda view: view["page"] not in leave_out)

    history = web_events(leave_out=robots())
    # [END taskflow]

    # [START one_chunk]
    @task.chunked_backfill(
        conn_id="warehouse", dataset_name="web_taskflow", start="2026-01-06", end="2026-01-07"
    )
    def last_day():
        from sources.web_events import page_views

        return page_views()

    history >> last_day()
    # [END one_chunk]
