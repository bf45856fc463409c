"""A window, its chunk size, its time zone or a cursor's format is unusable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_backfill._text import line, shown
from airflow_provider_backfill.exceptions.base import RefusedError

_CONFIRM = "confirm it with --yes (in a DAG: confirm=True)"


class WindowError(RefusedError):
    """The window, its chunk size or its time zone is unusable."""


@dataclass(eq=False, repr=False)
class NaiveBoundError(WindowError):
    """The ``bound`` (``start`` or ``end``) is a time without an offset; ``example`` is the same with one."""

    bound: str
    value: str
    example: str

    def _message(self) -> str:
        remedy = f"pass an explicit offset (e.g. {self.example})"
        return f"{self.bound} {shown(self.value)} is timezone-naive; {remedy}"


@dataclass(eq=False, repr=False)
class EmptyWindowError(WindowError):
    """The ``end`` is not after the ``start``; ``from_data_interval``: a DAG run's interval gave both."""

    start: object
    end: object
    from_data_interval: bool = False

    def _message(self) -> str:
        if self.from_data_interval:
            return (
                f"empty window: the data interval starts at {shown(self.start)} and ends at "
                f"{shown(self.end)}, because on Airflow 3 a cron string or a timedelta as schedule makes "
                "intervals of no length; use schedule=CronDataIntervalTimetable(...) or "
                "DeltaDataIntervalTimetable(...), or set [scheduler] create_cron_data_intervals or "
                "create_delta_data_intervals = True, or pass start and end"
            )
        return (
            f"empty window: end {shown(self.end)} is not after start {shown(self.start)}; "
            "a window is half-open, [start, end), so pass an end later than its start"
        )


@dataclass(eq=False, repr=False)
class BoundFormatError(WindowError):
    """The ``bound`` (``start`` or ``end``) is neither a time nor a whole number, or cannot be represented."""

    bound: str
    value: object
    reason: str
    remedy: str = "pass ISO-8601 with an offset (e.g. 2026-01-01T00:00:00Z) or a date (e.g. 2026-01-01)"

    def _message(self) -> str:
        return f"{self.bound} {shown(self.value)} {line(self.reason)}; {self.remedy}"


@dataclass(eq=False, repr=False)
class ChunkSizeError(WindowError):
    """The ``value`` given as chunk size is not one, or does not fit the window."""

    value: object
    reason: str
    remedy: str = "pass a number and a unit, s, m, h (elapsed) or d, w, mo (calendar), e.g. 6h or 1d"

    def _message(self) -> str:
        return f"chunk {shown(self.value)} {line(self.reason)}; {self.remedy}"


@dataclass(eq=False, repr=False)
class TooManyChunksError(WindowError):
    """The window would be cut into ``count`` chunks of size ``chunk``; ``max_chunks`` are allowed.

    ``most`` is how many are allowed to those who confirm it; default none more.
    """

    count: int
    max_chunks: int
    chunk: str
    most: int = 0

    @property
    def reason(self) -> str:
        """What is wrong, without what to do."""
        return (
            f"chunk {shown(self.chunk)} cuts this window into {self.count} chunks, more than max_chunks = "
            f"{self.max_chunks}"
        )

    def _message(self) -> str:
        remedy = "use a larger chunk or a shorter window"
        if self.count <= self.most:
            remedy += f", {_CONFIRM}, or raise [chunked_backfill] max_chunks"
        return f"{self.reason}; {remedy}"


@dataclass(eq=False, repr=False)
class UnconfirmedPlanError(WindowError):
    """The ``estimate`` of a plan is above ``max_estimated_hours``, and nobody has confirmed it."""

    estimate: str
    max_estimated_hours: float

    @property
    def reason(self) -> str:
        """What is wrong, without what to do."""
        return f"the estimate ({self.estimate}) is above max_estimated_hours = {self.max_estimated_hours:g}"

    def _message(self) -> str:
        return (
            f"{self.reason}; {_CONFIRM}, load a shorter window at a time, more chunks at once, "
            "or raise [chunked_backfill] max_estimated_hours"
        )


@dataclass(eq=False, repr=False)
class MapLengthError(WindowError):
    """Airflow maps at most ``max_map_length`` tasks, and these ``count`` chunks take more.

    ``tasks`` is how many they take where several go into one; default one each.
    """

    count: int
    max_map_length: int
    tasks: int | None = None

    def _message(self) -> str:
        tasks = "" if self.tasks in (None, self.count) else f" in {self.tasks} tasks"
        enough = -(-self.count // self.max_map_length)
        return (
            f"this window has {self.count} chunks to run{tasks}, more than the {self.max_map_length} that "
            f"Airflow maps ([core] max_map_length); pass chunks_per_task={enough} or more, "
            "use a larger chunk or a shorter window, raise the limit, or run the window with "
            "chunked-backfill"
        )


@dataclass(eq=False, repr=False)
class TimezoneError(WindowError):
    """There is no such ``timezone``; ``matches`` are the names that resemble it, best first."""

    timezone: object
    matches: Sequence[str] = ()

    def _message(self) -> str:
        near = " or ".join(self.matches)
        hint = f"did you mean {near}?" if near else "pass one, e.g. Europe/Berlin"
        return f"timezone {shown(self.timezone)} is not an IANA time zone; {hint}"


@dataclass(eq=False, repr=False)
class StrategyError(WindowError):
    """The ``strategy`` cannot choose windows from what it was given."""

    strategy: str
    reason: str
    remedy: str

    def _message(self) -> str:
        return f"strategy {shown(self.strategy)} {line(self.reason)}; {self.remedy}"


@dataclass(eq=False, repr=False)
class ChoiceError(RefusedError):
    """The ``argument`` of a backfill has a ``value`` that is none of its ``choices``."""

    argument: str
    value: object
    choices: Sequence[str] = ()

    def _message(self) -> str:
        return f"{self.argument} {shown(self.value)} is unknown; pass {' or '.join(self.choices)}"


@dataclass(eq=False, repr=False)
class ChunkFieldError(RefusedError):
    """A ``field`` in an argument of the source is none of those that a chunk has, or does not fit it."""

    field: str
    reason: str
    remedy: str

    def _message(self) -> str:
        return f"field {shown(self.field)} of a source's argument {line(self.reason)}; {self.remedy}"


@dataclass(eq=False, repr=False)
class CursorFormatError(RefusedError):
    """The cursor format ``value`` is none, or cannot say the bounds of the chunks."""

    value: object
    reason: str
    remedy: str = (
        "pass datetime, naive, naive@Europe/Berlin, date, epoch_s, epoch_ms, epoch_us, epoch_ns, id, or the "
        "shape of a text, e.g. %Y-%m-%dT%H:%M:%SZ"
    )

    def _message(self) -> str:
        return f"cursor format {shown(self.value)} {line(self.reason)}; {self.remedy}"
