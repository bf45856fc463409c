"""What Airflow's plugin manager loads, in every process of Airflow: little, and nothing that takes long."""

from __future__ import annotations

import logging
from typing import Any

from airflow.providers.common.compat.sdk import AirflowPlugin

log = logging.getLogger(__name__)

#: Where the page stands, below the address of Airflow.
PREFIX = "/backfills"


class _Apps:
    """``fastapi_apps``, which only the API server asks for, of the class or of an instance."""

    def __get__(self, instance: object, owner: type) -> list[dict[str, Any]]:
        try:
            from airflow_provider_backfill.plugins.app import create_app
        except ImportError:
            # Airflow does not guard this: its API server would not start for our sake.
            log.warning("this Airflow lacks what the Backfill page needs, which is left out", exc_info=True)
            return []
        return [{"app": create_app(), "url_prefix": PREFIX, "name": "Chunked backfill"}]


class BackfillPlugin(AirflowPlugin):
    """A tab on each DAG and DAG run, and an entry in the navigation. Airflow 2.11 has no use for it.

    The addresses have no slash in front, so that they follow the path that Airflow is served under.
    """

    name = "chunked_backfill"
    fastapi_apps = _Apps()
    external_views = [  # noqa: RUF012 - Airflow's own attribute
        {
            "name": "Backfill",
            "href": "backfills/dags/{DAG_ID}",
            "destination": "dag",
            "url_route": "chunked_backfill",
        },
        {
            "name": "Backfill",
            "href": "backfills/dags/{DAG_ID}?run_id={RUN_ID}",
            "destination": "dag_run",
            "url_route": "chunked_backfill_run",
        },
        {
            "name": "Backfills",
            "href": "backfills/",
            "destination": "nav",
            "category": "browse",
            "url_route": "backfills",
        },
    ]
