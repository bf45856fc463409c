"""What a backfill measures, on its way to a sink: Airflow's stats in a task, a file at the command."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from airflow_provider_backfill._text import line
from airflow_provider_backfill.engine.destinations.base import Target

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.runner import Outcome

log = logging.getLogger(__name__)

#: What the name of each begins with.
PREFIX = "chunked_backfill"


class Kind(StrEnum):
    """How the values of a metric come together."""

    COUNTER = "counter"
    GAUGE = "gauge"
    TIMING = "timing"


#: Every metric, without the prefix that all have; docs/reference/metrics.md says what each is.
CATALOGUE: Mapping[str, Kind] = {
    "chunks.completed": Kind.COUNTER,
    "chunks.failed": Kind.COUNTER,
    "chunks.stopped": Kind.COUNTER,
    "chunks.skipped": Kind.COUNTER,
    "chunk.duration": Kind.TIMING,
    "rows.loaded": Kind.COUNTER,
    "rows.dropped": Kind.COUNTER,
    "rows.rejected": Kind.COUNTER,
    "assertions.warned": Kind.COUNTER,
    "leases.lost": Kind.COUNTER,
    "leases.lapsed": Kind.COUNTER,
    "waits": Kind.COUNTER,
    "wait.duration": Kind.TIMING,
    "progress.ratio": Kind.GAUGE,
}


class Ending(StrEnum):
    """What becomes of an attempt."""

    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One measured value.

    Args:
        name: Its full name, such as ``chunked_backfill.chunks.completed``.
        kind: How its values come together.
        value: How many, of a counter; the state, of a gauge; seconds, of a timing.
        tags: What its series are told apart by: few values each.
        subject: What else it is about, of which there are too many for a tag: ``backfill_id``, ``chunk_id``.
    """

    name: str
    kind: Kind
    value: float
    tags: Mapping[str, str]
    subject: Mapping[str, str] = field(default_factory=dict)


class MetricsSink(Protocol):
    """Where metrics go. It may raise; see `BestEffort`."""

    def write(self, metric: Metric) -> None: ...


class BestEffort:
    """A sink that takes nothing down: what fails is one line in the log, and is not tried again.

    Args:
        sink: The sink that may fail.
    """

    def __init__(self, sink: MetricsSink) -> None:
        self._sink: MetricsSink | None = sink

    def write(self, metric: Metric) -> None:
        if self._sink is None:
            return
        try:
            self._sink.write(metric)
        except Exception as trouble:  # noqa: BLE001
            self._sink = None
            log.error("metrics are not recorded from here on: %s: %s", type(trouble).__name__, line(trouble))


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What is measured of the backfills of one source; nothing without a sink.

    Args:
        sink: Where it goes; None for nowhere.
        target: Where the rows go.
        source_name: What the source is called in the ledger.
    """

    sink: MetricsSink | None
    target: Target
    source_name: str

    def ended(
        self,
        ending: Ending,
        seconds: float,
        backfill_id: str,
        chunk_id: str,
        outcome: Outcome | None = None,
        *,
        lapsed: int = 0,
    ) -> None:
        """An attempt is over.

        Args:
            ending: What became of it.
            seconds: How long it took.
            backfill_id: The backfill.
            chunk_id: The chunk, six digits.
            outcome: What it loaded, if it did.
            lapsed: How many claims it took over whose lease had run out.
        """
        subject = {"backfill_id": backfill_id, "chunk_id": chunk_id}
        self._count("leases.lapsed", lapsed, subject)
        if ending is Ending.LOST:
            self._count("leases.lost", 1, subject)
        else:
            self._count(f"chunks.{ending}", 1, subject)
        self._tell("chunk.duration", seconds, subject, outcome=ending)
        if outcome is not None:
            self._count("rows.loaded", outcome.records, subject)
            self._count("rows.dropped", outcome.dropped, subject)
            self._count("rows.rejected", outcome.rejected, subject)
            self._count("assertions.warned", outcome.warnings, subject)

    def skipped(self, backfill_id: str, chunk_id: str) -> None:
        """A chunk was found completed when its turn came."""
        self._count("chunks.skipped", 1, {"backfill_id": backfill_id, "chunk_id": chunk_id})

    def waiting(self, backfill_id: str) -> None:
        """A wait for what somebody else holds begins."""
        self._count("waits", 1, {"backfill_id": backfill_id})

    def waited(self, seconds: float, backfill_id: str) -> None:
        """Such a wait is over, however it ended."""
        self._tell("wait.duration", seconds, {"backfill_id": backfill_id})

    def progress(self, completed: int, total: int, backfill_id: str) -> None:
        """How much of a backfill is completed. One chunk alone is no progress."""
        if total > 1:
            subject = {"backfill_id": backfill_id}
            self._tell("progress.ratio", completed / total, subject, backfill_id=backfill_id)

    def _count(self, name: str, value: int, subject: Mapping[str, str]) -> None:
        if value:
            self._tell(name, value, subject)

    def _tell(self, name: str, value: float, subject: Mapping[str, str], **tags: str) -> None:
        if self.sink is not None:
            self.sink.write(
                Metric(
                    name=f"{PREFIX}.{name}",
                    kind=CATALOGUE[name],
                    value=value,
                    tags={"source": self.source_name, "dataset": self.target.dataset_name, **tags},
                    subject=subject,
                )
            )


class Waiting:
    """The waits of one run for what others hold, one after the other.

    Args:
        metrics: What is measured.
        backfill_id: The backfill.
    """

    def __init__(self, metrics: Metrics, backfill_id: str) -> None:
        self._metrics = metrics
        self._backfill_id = backfill_id
        self._since: float | None = None

    def begin(self) -> None:
        """There is something to wait for; nothing new if there was before."""
        if self._since is None:
            self._since = time.monotonic()
            self._metrics.waiting(self._backfill_id)

    def end(self) -> None:
        """The run goes on; nothing to do if it did not wait."""
        if self._since is not None:
            self._metrics.waited(time.monotonic() - self._since, self._backfill_id)
            self._since = None
