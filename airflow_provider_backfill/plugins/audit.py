"""Airflow's audit log: who has done what with which backfill."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow.models.log import Log
from airflow.utils.session import create_session


def record(user: Any, event: str, dag_id: str, **details: Any) -> None:
    """Write one line, before anything is done: what cannot be written down is not done.

    Args:
        user: Airflow's user.
        event: What they do, for example ``backfill.restate``.
        dag_id: Through which DAG.
        details: What it is about; what is None is left out.
    """
    extra: Mapping[str, Any] = {name: value for name, value in details.items() if value is not None}
    name = user.get_name()
    with create_session() as session:
        session.add(
            Log(
                event=event,
                dag_id=dag_id,
                owner=name,
                owner_display_name=name,
                extra=json.dumps(extra, default=str),
            )
        )
