"""Triggering a DAG run that backfills, once for each thing that is asked."""

from __future__ import annotations

import hashlib
import json

from airflow.api.common.trigger_dag import trigger_dag
from airflow.exceptions import DagNotFound, DagRunAlreadyExists, ParamValidationError
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.types import DagRunTriggeredByType
from fastapi import HTTPException
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from airflow_provider_backfill._text import line
from airflow_provider_backfill.plugins.audit import record
from airflow_provider_backfill.plugins.desk import Desk
from airflow_provider_backfill.plugins.documents import NewBackfill, RunAnswer


def run_id_of(body: NewBackfill) -> str:
    """The run that a body asks for: the same body, in any order, gives the same."""
    text = json.dumps([body.params, body.request], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"manual__{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def trigger(desk: Desk, dag_id: str, body: NewBackfill) -> RunAnswer:
    """Start the run, or join the one that the same body has started.

    Raises:
        HTTPException: 404: the DAG does not backfill. 400: it does not take these params.
    """
    desk.ledgers(dag_id)
    try:
        run_id = run_id_of(body)
    except UnicodeEncodeError:
        raise HTTPException(400, "params have half of a surrogate pair, which is no text") from None
    # As Airflow's own trigger does.
    with create_session() as session:
        if session.scalar(select(DagModel.has_import_errors).where(DagModel.dag_id == dag_id)):
            raise HTTPException(400, "the DAG has import errors: mend them, and trigger it then")
    if answer := _answer(desk, dag_id, run_id, joined=True):
        return answer
    record(desk.user, "backfill.create", dag_id, run_id=run_id, params=sorted(body.params))
    try:
        trigger_dag(
            dag_id=dag_id,
            run_id=run_id,
            conf=body.params,
            triggered_by=DagRunTriggeredByType.REST_API,
            triggering_user_name=desk.user.get_name(),
        )
    except (DagRunAlreadyExists, IntegrityError):
        # Somebody has asked the same at the same time; or else the run cannot be.
        if (answer := _answer(desk, dag_id, run_id, joined=True)) is None:
            raise
        return answer
    except DagNotFound:
        raise HTTPException(404, "there is no such DAG") from None
    except (ParamValidationError, ValueError) as error:
        raise HTTPException(400, line(error)) from None
    answer = _answer(desk, dag_id, run_id, joined=False)
    if answer is None:
        raise HTTPException(409, "the run was deleted as it began; ask again")
    return answer


def _answer(desk: Desk, dag_id: str, run_id: str, *, joined: bool) -> RunAnswer | None:
    with create_session() as session:
        run = select(DagRun.state).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
        state = session.scalar(run)
        if state is None:
            return None
        paused = session.scalar(select(DagModel.is_paused).where(DagModel.dag_id == dag_id))
    return RunAnswer(
        dag_id=dag_id,
        dag_run_id=run_id,
        state=str(state),
        joined=joined,
        paused=bool(paused),
        run=desk.addresses.airflow_run(dag_id, run_id),
    )
