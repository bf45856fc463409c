"""A backfill that says what has become of it: each task that fails, and the window once it is covered.

Needs the connection ``warehouse`` (type ``duckdb`` or ``postgres``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow.providers.common.compat.sdk import DAG, BaseNotifier

from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator

# [START notifications]
TEXT = """\
{{ backfill.summary }}
{% if backfill.status == "failed" -%}
{{ backfill.error }}
{% endif -%}
{{ ti.log_url }}
"""


class Note(BaseNotifier):
    """Writes to the task's log. Any of Airflow's notifiers can stand in its place."""

    template_fields = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Any) -> None:
        self.log.info("note: %s", self.text)


def of_the_window(notifier: BaseNotifier) -> Callable[[Any], None]:
    """Of the tasks that succeed the report alone, which is about the whole window."""

    def notify(context: Any) -> None:
        if context["backfill"]["task"] == "report":
            notifier(context)

    return notify


with DAG(dag_id="example_notifications", schedule=None, tags=["example", "backfill"]):
    ChunkedBackfillOperator.expand_window(
        task_id="web_events",
        source="sources.web_events:page_views",
        conn_id="warehouse",
        dataset_name="web_notifications",
        start="2026-01-01",
        end="2026-01-04",
        chunk="1d",
        on_failure_callback=Note(TEXT),
        on_success_callback=of_the_window(Note(TEXT)),
    )
# [END notifications]
