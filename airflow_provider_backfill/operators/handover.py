"""The task that hands a covered window over to the pipeline that loads forward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_backfill.operators.base import SourceOperator, airflow_errors
from airflow_provider_backfill.operators.plan import BACKFILL_ID_KEY
from airflow_provider_backfill.operators.summary import summarised
from airflow_provider_backfill.version_compat import Context


class BackfillHandoverOperator(SourceOperator):
    """Sets the bookmarks of a dlt pipeline to the end of a window that is covered.

    The return value is a list of dicts, one a cursor: ``resource``, ``cursor``, ``before`` (None if the
    pipeline had no bookmark) and ``value``, as texts.

    Args:
        plan_task_id: The whole id of the task that planned, with its groups.
        handover: The forward pipeline's name (templated); nothing is done if it is empty.
        source: See `SourceOperator`, likewise all others.

    Raises:
        AirflowFailException: A bookmark would move backwards or past rows that nobody loads, or the window is
            not covered. Nothing was changed.
    """

    template_fields: Sequence[str] = (*SourceOperator.template_fields, "handover")

    def __init__(self, *, plan_task_id: str, handover: str | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan_task_id = plan_task_id
        self.handover = handover

    def execute(self, context: Context) -> list[dict[str, Any]]:
        with summarised(self, context, "handover", self.source_label) as summary:
            return self._handed_over(context, summary)

    def _handed_over(self, context: Context, summary: dict[str, Any]) -> list[dict[str, Any]]:
        if not self.handover:
            self.log.info("no pipeline is named, so nothing is handed over")
            return []
        with airflow_errors(self.redact):
            planned = context["ti"].xcom_pull(task_ids=self.plan_task_id, key=BACKFILL_ID_KEY)
            # Of several windows the last: what lies before it has to be covered too.
            chosen = [planned] if isinstance(planned, str) else planned
            if not chosen:
                self.log.info("no window was chosen, so nothing is handed over")
                return []
            summary["backfill_id"] = chosen[-1]
            return self._hand_over(chosen[-1])

    def _hand_over(self, backfill_id: str) -> list[dict[str, Any]]:
        from airflow_provider_backfill.engine.handover import Handover
        from airflow_provider_backfill.hooks.backfill import prepare_dlt

        prepare_dlt()
        row = self.rows(backfill_id)[0]
        handover = Handover(
            pipeline_name=str(self.handover),
            source=self.source_spec,
            target=self.hook.target,
            window=row.window,
            timezone=row.timezone,
            fields=row.fields,
            settings=self.settings,
        )
        bookmarks = handover.carry_out()
        for bookmark in bookmarks:
            self.log.info("handed over to pipeline %s: %s", self.handover, bookmark)
        return [bookmark.as_json() for bookmark in bookmarks]
