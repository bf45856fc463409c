"""What OpenLineage's provider is told of a task; where that fails, the task does not."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
    from airflow_provider_backfill.operators.task_try import TaskTry

log = logging.getLogger(__name__)


def lineage(operator: ChunkedBackfillOperator, tried: TaskTry | None) -> OperatorLineage[Any, Any] | None:
    """What a task reads and writes, as far as it has come; None, and a line in the log, if that fails.

    Args:
        operator: The operator, rendered.
        tried: Its try; None before that has begun.
    """
    try:
        from airflow_provider_backfill.operators.facets import lineage_of

        return lineage_of(operator, tried)
    except Exception as trouble:  # noqa: BLE001
        reason = " ".join(operator.redact(str(trouble)).split())
        log.error("the lineage of %s is not told: %s: %s", operator.task_id, type(trouble).__name__, reason)
        return None
