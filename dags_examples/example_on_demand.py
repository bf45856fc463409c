"""A backfill that anyone may ask for: the trigger form, or one request to the API.

Needs the connection ``warehouse`` (type ``duckdb`` or ``postgres``).
"""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG, Param

from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator

# [START on_demand]
RESOURCES = ["page_views", "searches"]

with DAG(
    dag_id="example_on_demand",
    schedule=None,
    # Airflow checks them before there is a DAG run.
    params={
        # Without a default, so that nobody loads a window by forgetting to name one.
        "start": Param(type="string", format="date", description="First day to load"),
        "end": Param(type="string", format="date", description="The day after the last one"),
        "chunk": Param(
            "1d",
            type="string",
            pattern="^0*[1-9][0-9]*(s|m|h|d|w|mo)$",
            description="How much to load at a time: 6h, 1d, 1w, 1mo",
        ),
        "resources": Param(
            None,
            type=["null", "array"],
            items={"type": "string", "enum": RESOURCES},
            examples=RESOURCES,
            description="What to load; nothing chosen means all",
        ),
        "restate": Param(
            False, type="boolean", description="Load again what is there already, and replace it"
        ),
        "confirm": Param(
            False, type="boolean", description="Load it even if that is estimated to take more than 8 hours"
        ),
    },
    tags=["example", "backfill"],
):
    ChunkedBackfillOperator.expand_window(
        task_id="site",
        source="sources.web_events:site",
        conn_id="warehouse",
        dataset_name="web_on_demand",
        start="{{ params.start }}",
        end="{{ params.end }}",
        chunk="{{ params.chunk }}",
        resources="{{ (params.resources or []) | join(',') }}",
        restate="{{ params.restate }}",
        confirm="{{ params.confirm }}",
        max_estimated_hours=8,
        retries=2,
    )
# [END on_demand]
