"""The link from a task to the backfill that it is part of."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from airflow_provider_backfill.version_compat import AIRFLOW_V_3_0_PLUS, BaseOperatorLink, conf


class BackfillLink(BaseOperatorLink):
    """Leads from each task of a backfill to all of it: its task group in the same DAG run.

    A task that is a backfill of one chunk by itself has no such group, and leads to its own page. The link
    has no host, since people may reach Airflow under another one than ``base_url`` says.
    """

    name = "Backfill"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The path of the page; Airflow 3 asks in the worker, Airflow 2.11 in the webserver.

        Args:
            operator: The operator, or what Airflow 2.11 has restored of it.
            ti_key: Which task instance.
        """
        # Airflow 2.11 restores a mapped task without its group, so the DAG is asked.
        task = operator.dag.get_task(ti_key.task_id)
        alone = "chunks" in task.template_fields and not hasattr(task, "partial_kwargs")
        group_id = None if alone else task.task_group and task.task_group.group_id
        if not AIRFLOW_V_3_0_PLUS:
            query = urlencode({"dag_run_id": ti_key.run_id, "task_id": group_id or ti_key.task_id})
            return f"{_prefix('webserver')}/dags/{quote(ti_key.dag_id, safe='')}/grid?{query}"
        if group_id:
            page = f"group/{quote(group_id, safe='')}"
        else:
            page = quote(ti_key.task_id, safe="") + ("/mapped" if ti_key.map_index >= 0 else "")
        dag_id, run_id = quote(ti_key.dag_id, safe=""), quote(ti_key.run_id, safe="")
        return f"{_prefix('api')}/dags/{dag_id}/runs/{run_id}/tasks/{page}"


def _prefix(section: str) -> str:
    """The path under which Airflow is served; empty for most."""
    return urlsplit(conf.get(section, "base_url", fallback="") or "").path.rstrip("/")
