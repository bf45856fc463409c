"""The operator that runs one chunk, alone or mapped over the chunks of a window."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill.operators.base import SourceOperator, airflow_errors, this_task
from airflow_provider_backfill.version_compat import Context, TaskGroup

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.destinations.base import Target
    from airflow_provider_backfill.engine.intervals import Interval
    from airflow_provider_backfill.engine.records import Claim
    from airflow_provider_backfill.engine.runner import Outcome

#: How long a task that is told to stop tries to give its chunk back. Airflow kills it after five seconds.
_RELEASE_SECONDS = 3


class ChunkedBackfillOperator(SourceOperator):
    """Loads one chunk of a window, exactly once.

    By itself it is a backfill of one chunk: ``[start, end)``, by default the DAG run's data interval, so that
    Airflow's own backfills drive it. With `expand_window` it is mapped over the chunks of a window. In either
    case a chunk that is completed already succeeds at once, without touching the source.

    The return value is a dict: ``backfill_id``, ``chunk_id``, ``chunk`` (its interval, for people), ``status``
    (``completed``, or ``skipped`` if there was nothing to do), ``rows``, ``bytes``, ``seconds``.

    Args:
        chunk: For a task that is not mapped, the size under which the ledger knows its one chunk
            (templated); default its exact length. A size that cuts the window in pieces is refused.
        backfill_id: The backfill that the chunk is part of, which has planned it; set when mapped, likewise
            the next three.
        chunk_id: The chunk, six digits.
        label: The chunk's interval for people.
        total: How many chunks the backfill has.
        source: See `SourceOperator`, likewise all others.

    Raises:
        AirflowFailException: No retry can mend it: the window, the source or the destination is refused.
        AirflowException: The attempt failed and left nothing behind, or somebody else holds the chunk.

    Example:
        >>> ChunkedBackfillOperator(
        ...     task_id="web_events",
        ...     source="sources.web_events:page_views",
        ...     conn_id="warehouse",
        ...     dataset_name="web_raw",
        ... )
    """

    template_fields: Sequence[str] = (*SourceOperator.template_fields, "chunk", "backfill_id", "chunk_id", "label")

    # The chunk in flight, for on_kill.
    _in_flight: _InFlight | None = None

    def __init__(
        self,
        *,
        chunk: str | None = None,
        backfill_id: str | None = None,
        chunk_id: str | None = None,
        label: str | None = None,
        total: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.chunk = chunk
        self.backfill_id = backfill_id
        self.chunk_id = chunk_id
        self.label = label
        self.total = total
