"""Settings, sources, targets and plans that are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflow_provider_backfill._text import line, shown
from airflow_provider_backfill.exceptions.base import RefusedError, docs_of, see


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
    """The ``source`` cannot be called with these arguments; values are not shown, as some are secret."""

    source: str
    reason: str
    remedy: str = "pass none"

    def _message(self) -> str:
        return f"source {shown(self.source)} cannot be called: {line(self.reason)}; {line(self.remedy)}"


class TargetError(RefusedError):
    """The place to load into cannot be used."""


@dataclass(eq=False, repr=False)
class DestinationUnsupportedError(TargetError):
    """The ``destination`` cannot carry the ledger for want of the features ``missing``; ``supported`` can.

    ``reason`` leads over to the features. ``detail`` is more about it, or empty.
    """

    destination: str
    missing: Sequence[str] = ()
    supported: Sequence[str] = ()
    reason: str = "it lacks"
    detail: str = ""

    def _message(self) -> str:
        why = f"{line(self.reason)} {_listed(self.missing, 'and') or 'what it takes'}"
        more = f" ({line(self.detail)})" if self.detail else ""
        known = _listed(self.supported, "or") or "one that has a dialect"
        return (
            f"destination {shown(self.destination)} cannot carry the ledger beside the data: {why}{more}; "
            f"use {known}"
        )


def _listed(words: Sequence[str], last: str) -> str:
    return f" {last} ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


@dataclass(eq=False, repr=False)
class DialectError(TargetError):
    """The dialect that ``package`` has for a destination, by the ``name`` of that, cannot be used."""

    name: str
    package: str
    reason: str

    def _message(self) -> str:
        return (
            f"the dialect {shown(self.name)} of {self.package} cannot be used: {line(self.reason)}; "
            "mend the package, or remove it"
        )


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

    @classmethod
    def of_error(cls, error: Exception) -> Finding:
        """A refusal that came as an exception, under the name of its class; its message has the remedy."""
        rule = type(error).__name__
        # A finding says by itself where it is explained.
        message = str(error).removesuffix(see(rule))
        return cls(rule=rule, resource=None, message=message, remedy="")

    @property
    def docs(self) -> str:
        """Where the rule is explained."""
        return docs_of(self.rule)

    def __str__(self) -> str:
        subject = "" if self.resource is None else f"resource {shown(self.resource)}: "
        remedy = f"; {line(self.remedy)}" if self.remedy else ""
        return f"{subject}{line(self.message)}{remedy}{see(self.rule)}"


@dataclass(eq=False, repr=False)
class PreflightError(RefusedError):
    """The source cannot be backfilled as it is: all ``findings``, not only the first."""

    findings: Sequence[Finding]

    def _message(self) -> str:
        if len(self.findings) == 1:
            return f"refused: {self.findings[0]}"
        return "\n- ".join([f"refused for {len(self.findings)} reasons:", *map(str, self.findings)])

    def _ending(self) -> str:
        # Each finding has its own.
        return ""


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
            "run it with the inputs in the ledger, give this source another name (source_name), "
            "or load into another dataset"
        )


@dataclass(eq=False, repr=False)
class DuplicateChunksError(RefusedError):
    """The ledger, which another tool has planned in, has chunk ``chunk_id`` (six digits) more than once."""

    backfill_id: str
    chunk_id: str

    def _message(self) -> str:
        return (
            f"the ledger has chunk {self.chunk_id} of backfill {self.backfill_id} more than once, so that it "
            "could be loaded twice; see such chunks, and leave one row of each, with chunked-backfill mend"
        )


@dataclass(eq=False, repr=False)
class OverlapError(RefusedError):
    """Another backfill of the ``source`` has completed ``count`` chunks in this window.

    Loading them again would double their rows. ``interval`` is what they span; ``remedy`` is what to do.
    """

    source: str
    backfill_id: str
    interval: object
    count: int
    remedy: str = "pass the window and chunk of that backfill to resume it, or a window that does not overlap"

    def _message(self) -> str:
        return (
            f"source {shown(self.source)}: backfill {self.backfill_id} has completed {self.count} chunk(s) "
            f"in this window ({self.interval}), which would be loaded a second time; {self.remedy}"
        )


@dataclass(eq=False, repr=False)
class PromoteError(RefusedError):
    """What the ``dataset`` holds cannot be moved into the one that it belongs to, for this ``reason``."""

    dataset: str
    reason: str
    remedy: str

    def _message(self) -> str:
        return f"dataset {shown(self.dataset)} cannot be promoted: {line(self.reason)}; {self.remedy}"


@dataclass(eq=False, repr=False)
class HandoverError(RefusedError):
    """The bookmark of pipeline ``pipeline_name`` cannot be set to the window's end, for this ``reason``."""

    pipeline_name: str
    reason: str
    remedy: str

    def _message(self) -> str:
        whom = f"pipeline {shown(self.pipeline_name)}"
        return f"nothing is handed over to {whom}: {line(self.reason)}; {self.remedy}"


@dataclass(eq=False, repr=False)
class RestateError(RefusedError):
    """The rows of ``subject``, a chunk or a table, cannot be told from others, for this ``reason``."""

    subject: str
    reason: str

    def _message(self) -> str:
        return (
            f"{self.subject} cannot be loaded again: {line(self.reason)}, so its old rows would stay beside "
            "the new ones; delete them by hand and say so (chunked-backfill mark --pending --forget), load "
            "the window into another dataset, or leave it"
        )


@dataclass(eq=False, repr=False)
class GateError(RefusedError):
    """The ``assertion`` is none, or cannot be made about these rows."""

    assertion: object
    reason: str
    remedy: str

    def _message(self) -> str:
        return f"assertion {shown(self.assertion)} {line(self.reason)}; {line(self.remedy)}"
