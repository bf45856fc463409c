"""Everything that this package raises on purpose.

::

    BackfillError
    ├── RefusedError                        nothing was written; the command exits with 2
    │   ├── SettingError                    an option of [chunked_backfill] is unusable
    │   ├── WindowError
    │   │   ├── NaiveBoundError             a time without an offset
    │   │   ├── EmptyWindowError            the end is not after the start
    │   │   ├── BoundFormatError            a bound is neither a time nor a whole number
    │   │   ├── ChunkSizeError              a chunk size is not one, or does not fit the window
    │   │   ├── TooManyChunksError          the plan is longer than max_chunks
    │   │   └── TimezoneError               no such time zone
    │   ├── SourceError
    │   │   ├── SourceNotFoundError         the reference leads nowhere
    │   │   ├── SourceImportError           the source's module does not import
    │   │   └── SourceArgumentsError        the source does not take the arguments, or lacks one
    │   ├── TargetError
    │   │   ├── DestinationUnsupportedError the destination cannot carry the ledger
    │   │   └── ConnectionTypeError         the Airflow connection has a type that is not known
    │   ├── PreflightError                  findings about the source and its target
    │   ├── PlanConflictError               the stored plan has other inputs
    │   └── OverlapError                    another backfill has done part of the window
    ├── LedgerError
    │   ├── ClaimLostError                  the attempt's claim ran out or was taken away
    │   ├── ChunkHeldError                  somebody else holds the chunk now
    │   ├── LedgerBusyError                 the ledger's database stayed locked
    │   ├── LedgerUnreachableError          the ledger's database does not let us in
    │   ├── ChunkMissingError               the ledger has no such row
    │   └── DuplicateChunksError            the ledger has a row twice
    └── AttemptError                        one attempt failed; another may succeed

Each class keeps its values as attributes and builds its message from them. A message is one line (a
`PreflightError` with several findings has one line each), names the value, says why, and says what to do.
Passwords inside addresses and connection strings are masked in every message. All survive pickling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from airflow_provider_backfill._text import line, masked, shown


def _restore(cls: type[BackfillError], args: tuple[Any, ...], state: dict[str, Any]) -> BackfillError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class BackfillError(Exception):
    """The root of the tree; catching it catches whatever this package raises on purpose.

    Args:
        message: What happened, why, and what to do. Subclasses take values instead and write it themselves.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str) -> None:
        super().__init__(masked(message))

    def __post_init__(self) -> None:
        BackfillError.__init__(self, self._message())

    def _message(self) -> str:
        raise NotImplementedError

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # The default calls the class with the message alone, which is no value of any class below.
        return _restore, (type(self), self.args, dict(self.__dict__))


class RefusedError(BackfillError):
    """Refused before anything was written. A retry cannot help."""

    exit_code: ClassVar[int] = 2


@dataclass(eq=False, repr=False)
class SettingError(RefusedError):
    """The ``option`` of ``[chunked_backfill]`` has a ``value`` that cannot be used."""

    option: str
    value: object
    reason: str

    def _message(self) -> str:
        return (
            f"[chunked_backfill] {self.option} = {shown(self.value)} {line(self.reason)}; change it in "
            f"Airflow's configuration or in AIRFLOW__CHUNKED_BACKFILL__{self.option.upper()}"
        )


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
                f"{shown(self.end)}, because on Airflow 3 a cron string as schedule makes intervals of no "
                "length; use schedule=CronDataIntervalTimetable(...), or set [scheduler] "
                "create_cron_data_intervals = True, or pass start and end"
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
    """The window would be cut into ``count`` chunks of size ``chunk``; ``max_chunks`` are allowed."""

    count: int
    max_chunks: int
    chunk: str

    def _message(self) -> str:
        return (
            f"chunk {shown(self.chunk)} cuts this window into {self.count} chunks, more than max_chunks = "
            f"{self.max_chunks}; use a larger chunk or a shorter window, "
            "or raise [chunked_backfill] max_chunks"
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


class SourceError(RefusedError):
    """The source cannot be used."""


@dataclass(eq=False, repr=False)
class SourceNotFoundError(SourceError):
    """The reference ``source`` (``module:function``) leads nowhere."""

    source: str
    reason: str
    remedy: str = "pass module:function, e.g. sources.web_events:page_views, that can be imported from here"

    def _message(self) -> str:
        return f"source {shown(self.source)} was not found: {line(self.reason)}; {self.remedy}"


@dataclass(eq=False, repr=False)
class SourceImportError(SourceError):
    """The module of the reference ``source`` was found, and its import raised ``reason``."""

    source: str
    reason: str
    remedy: str = "mend the module, or install what it needs"

    def _message(self) -> str:
        return f"source {shown(self.source)} failed to import: {line(self.reason)}; {self.remedy}"


@dataclass(eq=False, repr=False)
class SourceArgumentsError(SourceError):
    """The ``source`` cannot be called with the arguments given, whose values are not shown: some are secret."""

    source: str
    reason: str
    remedy: str = "pass none"

    def _message(self) -> str:
        return f"source {shown(self.source)} cannot be called: {line(self.reason)}; {line(self.remedy)}"


class TargetError(RefusedError):
    """The place to load into cannot be used."""


@dataclass(eq=False, repr=False)
class DestinationUnsupportedError(TargetError):
    """The ``destination`` cannot carry the ledger beside the data; the ``supported`` ones can."""

    destination: str
    supported: Sequence[str] = ()
    reason: str = "cannot carry the ledger beside the data in one transaction"

    def _message(self) -> str:
        known = ", ".join(self.supported) or "one that has a dialect"
        return f"destination {shown(self.destination)} {line(self.reason)}; use {known}"


@dataclass(eq=False, repr=False)
class ConnectionTypeError(TargetError):
    """The Airflow connection ``conn_id`` has a ``conn_type`` that leads to no destination."""

    conn_id: str
    conn_type: str
    supported: Sequence[str] = ()

    def _message(self) -> str:
        known = f"of type {', '.join(self.supported)}" if self.supported else "of another type"
        return (
            f"connection {shown(self.conn_id)} has type {shown(self.conn_type)}, which is no known "
            f"destination; use a connection {known}, or pass destination= instead"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One reason not to start.

    Args:
        rule: The rule's short name, for example ``no-cursor``.
        resource: The resource it is about; None for the backfill as a whole.
        message: What is wrong.
        remedy: What to change.
    """

    rule: str
    resource: str | None
    message: str
    remedy: str

    def __str__(self) -> str:
        subject = "" if self.resource is None else f"resource {shown(self.resource)}: "
        return f"{subject}{line(self.message)}; {line(self.remedy)} [{self.rule}]"


@dataclass(eq=False, repr=False)
class PreflightError(RefusedError):
    """The source cannot be backfilled as it is: all ``findings``, not only the first."""

    findings: Sequence[Finding]

    def _message(self) -> str:
        if len(self.findings) == 1:
            return f"refused: {self.findings[0]}"
        return "\n- ".join([f"refused for {len(self.findings)} reasons:", *map(str, self.findings)])


@dataclass(eq=False, repr=False)
class PlanConflictError(RefusedError):
    """The ledger holds this backfill with other inputs; ``differences`` maps a name to (stored, given)."""

    backfill_id: str
    differences: Mapping[str, tuple[object, object]] = field(default_factory=dict)

    def _message(self) -> str:
        details = ", ".join(
            f"{name} is {shown(stored)} in the ledger and {shown(given)} here"
            for name, (stored, given) in self.differences.items()
        )
        return (
            f"backfill {self.backfill_id} exists with different inputs{details and f' ({details})'}; "
            "run it with the inputs in the ledger, or load into another dataset"
        )


@dataclass(eq=False, repr=False)
class OverlapError(RefusedError):
    """Another backfill of the ``source`` has completed ``count`` chunks in this window.

    Loading them again would double their rows. ``interval`` is what they span.
    """

    source: str
    backfill_id: str
    interval: object
    count: int

    def _message(self) -> str:
        return (
            f"source {shown(self.source)}: backfill {self.backfill_id} has completed {self.count} chunk(s) "
            f"in this window ({self.interval}), which would be loaded a second time; pass the window and "
            "chunk of that backfill to resume it, or a window that does not overlap"
        )


class LedgerError(BackfillError):
    """The ledger did not allow a step."""


@dataclass(eq=False, repr=False)
class ClaimLostError(LedgerError):
    """An attempt no longer holds the claim that a ``step`` (for example ``publish``) needs.

    What it loaded is not published. ``chunk`` is as shown to people (``3/5``), ``holder`` who has it now.
    """

    chunk: str
    step: str
    holder: str | None = None

    def _message(self) -> str:
        cause = f"{self.holder} holds it now" if self.holder else "it ran out or was released"
        return (
            f"chunk {self.chunk}: cannot {self.step}, the claim was lost ({cause}); "
            "nothing of this attempt was published, run the window again to see who completes the chunk"
        )


@dataclass(eq=False, repr=False)
class ChunkHeldError(LedgerError):
    """Somebody else holds the ``chunk`` (``3/5``), or a chunk of the same source that overlaps it.

    ``holder`` is host and process id. The lease lives until ``lease_expires_at`` (None: the holder keeps no
    lease), which is ``seconds_left`` from now by the database's clock.
    """

    chunk: str
    holder: str | None
    lease_expires_at: datetime | None
    seconds_left: float | None

    def _message(self) -> str:
        held = f"chunk {self.chunk} is held by {self.holder or 'an unknown worker'}"
        if self.lease_expires_at is None:
            return (
                f"{held} without a lease; once it is sure that nobody works on it, "
                "free it with `chunked-backfill release`"
            )
        left = "" if self.seconds_left is None else f" ({max(0.0, self.seconds_left):.0f} s left)"
        return (
            f"{held} until {self.lease_expires_at.isoformat(timespec='seconds')}{left} unless renewed; "
            "wait until it is done or its lease runs out"
        )


@dataclass(eq=False, repr=False)
class LedgerBusyError(LedgerError):
    """The ``database`` (or its file) stayed locked for ``waited_seconds``, longer than the wait allows."""

    database: str
    waited_seconds: float
    reason: str = "another process has it open"

    def _message(self) -> str:
        return (
            f"database {shown(self.database)} stayed locked for {self.waited_seconds:.0f} s: "
            f"{line(self.reason)}; close what holds it, run fewer chunks at once, "
            "or raise [chunked_backfill] file_lock_timeout_seconds"
        )


@dataclass(eq=False, repr=False)
class LedgerUnreachableError(LedgerError):
    """The ledger's ``database`` does not answer, or refuses the login."""

    database: str
    reason: str

    def _message(self) -> str:
        return (
            f"database {shown(masked(self.database))} cannot be opened: {line(self.reason)}; "
            "check the address, the login and the file's rights"
        )


@dataclass(eq=False, repr=False)
class DuplicateChunksError(LedgerError):
    """The ledger, made by another tool, has a chunk more than once."""

    backfill_id: str
    chunk_id: str

    def _message(self) -> str:
        return (
            f"the ledger has chunk {self.chunk_id} of backfill {self.backfill_id} more than once, so no "
            "claim on it is safe; delete all but one row a chunk from _dlt_backfills, and keep a completed "
            "one if there is one"
        )


@dataclass(eq=False, repr=False)
class ChunkMissingError(LedgerError):
    """The ledger has no row for chunk ``chunk_id`` (six digits) of backfill ``backfill_id``."""

    backfill_id: str
    chunk_id: str

    def _message(self) -> str:
        return (
            f"chunk {self.chunk_id} of backfill {self.backfill_id} is not in the ledger; "
            "plan the window again, which puts missing rows back"
        )


@dataclass(eq=False, repr=False)
class AttemptError(BackfillError):
    """One attempt at the ``chunk`` (``3/5``) failed and left nothing behind. Another may succeed."""

    chunk: str
    reason: str

    def _message(self) -> str:
        return (
            f"chunk {self.chunk} failed: {line(self.reason)}; "
            "nothing of this attempt was published, retry the task or run the window again"
        )
