"""dlt's traces of what attempts have extracted and normalised, in ``_dlt_trace``; they only record."""

from __future__ import annotations

import secrets
from typing import Any

from airflow_provider_backfill._text import masked
from airflow_provider_backfill.engine.destinations.base import Session, Target
from airflow_provider_backfill.engine.extract import Package
from airflow_provider_backfill.engine.observers import Observer, recorded
from airflow_provider_backfill.engine.records import Claim
from airflow_provider_backfill.engine.statements import TRACES_TABLE


class Traces(Observer):
    """The table ``_dlt_trace`` beside the ledger: one row a published load."""

    file_name = "traces.sql"
    table = TRACES_TABLE

    def write(self, **values: Any) -> None:
        with self._brief():
            self._prepare()
            self._run("write", values)


def record_trace(session: Session, target: Target, claim: Claim, source_name: str, package: Package) -> None:
    """Write the trace of a package, if it has one. What cannot be written is one line in the log.

    Args:
        session: An open connection, outside of any transaction.
        target: Where the table stands.
        claim: The claim that the attempt held.
        source_name: The source that the chunk was planned for.
        package: What was extracted.
    """
    trace = package.trace
    if trace is None or package.load_id is None:
        return

    def write() -> None:
        from dlt.common.json import json

        document = trace.asdict()
        Traces(session, target).write(
            transaction_id=document["transaction_id"],
            pipeline_name=source_name,
            started_at=document["started_at"],
            finished_at=document["steps"][-1]["finished_at"],
            steps=masked(target.redact(json.dumps(document["steps"]))),
            load_id=package.load_id,
            row_id=secrets.token_hex(8),
        )

    recorded(write, target, f"chunk {claim.number}: the trace is not recorded in {TRACES_TABLE}")
