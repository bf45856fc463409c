"""Putting a chunk's bounds into the cursors of a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill.engine.bounds import Bound
from airflow_provider_backfill.engine.cursors import EVERY_RESOURCE, CursorFormat
from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.engine.preflight.cursors import cursor_in
from airflow_provider_backfill.exceptions import CursorFormatError, Finding

if TYPE_CHECKING:
    from dlt.extract.incremental import Incremental
    from dlt.extract.resource import DltResource
    from dlt.extract.source import DltSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a cursor stands.

    Args:
        resource: The resource whose cursor it is: a selected one, or a parent of one.
        owner: That resource; None if dlt does not say.
        pipe: dlt's pipe.
        position: Which of its steps.
        cursor: The incremental as the extraction will have it; None if dlt's configuration gives it.
        format: How its bounds are spelled; None leaves them to dlt.
    """

    resource: str
    owner: Any
    pipe: Any
    position: int
    cursor: Incremental[Any] | None
    format: CursorFormat | None


#: What an extraction changes in the wrapper around a resource's function.
_CHANGED = ("_incremental", "_from_hints", "_primary_key", "_allow_external_schedulers")


@contextmanager
def bound(
    source: DltSource, interval: Interval, formats: Mapping[str, str], timezone: str
) -> Iterator[AbstractContextManager[Any]]:
    """Give the cursors of a source the bounds of a chunk, as long as the block lasts.

    A cursor whose format dlt knows is told to take its bounds from dlt's own context. The others get theirs
    here, as an explicit end value, with which dlt neither reads nor writes any state.

    Args:
        source: A fresh source.
        interval: The chunk.
        formats: The format of each resource's cursor, ``*`` for those not named.
        timezone: Canonical zone of the window, whose days dates are.

    Returns:
        dlt's context, to be entered around the extraction alone.

    Raises:
        CursorFormatError: A cursor's values cannot say these bounds.
    """
    from dlt.extract.incremental import IncrementalResourceWrapper

    explicit = False
    kept: list[tuple[Any, dict[str, Any]]] = []
    hints: list[tuple[Any, Any]] = []
    try:
        for place in cursor_places(source, formats, interval.whole):
            step = place.pipe._steps[place.position]
            wrapper = isinstance(step, IncrementalResourceWrapper)
            if wrapper:
                # A function that is called already shares its wrapper with every clone of its resource.
                kept.append((step, {name: getattr(step, name) for name in _CHANGED}))
            if place.format is None or place.cursor is None:
                if wrapper and step._incremental is not None:
                    step._incremental = step._incremental.copy()
                step.allow_external_schedulers = True
                continue
            explicit = True
            bounded = _bounded(place.cursor, place.format, interval, timezone)
            if wrapper:
                # From hints: whatever the function is called with later does not replace it.
                step.set_incremental(bounded, from_hints=True)
                step._allow_external_schedulers = None
            else:
                place.pipe._steps[place.position] = bounded
            owner = place.owner
            if owner is not None and owner._hints and owner._hints.get("incremental") is not None:
                # An extraction applies the hints of each resource once more, and so its cursor.
                hints.append((owner, owner._hints))
                owner._hints = {**owner._hints, "incremental": bounded}
        yield _context(interval, explicit=explicit)
    finally:
        for step, values in kept:
            vars(step).update(values)
        for owner, before in hints:
            owner._hints = before


def _context(interval: Interval, *, explicit: bool) -> AbstractContextManager[Any]:
    from dlt.common.configuration.container import Container
    from dlt.extract.incremental.context import TimeIntervalContext

    context = TimeIntervalContext(
        interval=None if interval.whole else interval.instants, allow_external_schedulers=not interval.whole
    )
    if explicit and not interval.whole:
        # Older versions of dlt heed this before what a cursor itself says.
        context.allow_external_schedulers = None
    entered: AbstractContextManager[Any] = Container().injectable_context(context)
    return entered


def effective_formats(source: DltSource, formats: Mapping[str, str], *, whole: bool) -> dict[str, str]:
    """The formats of the selected resources: as declared, else as a cursor's type says by itself.

    A transformer has the format of the nearest parent whose cursor bounds it.

    Raises:
        CursorFormatError: A format is none, or names a resource that the source does not have.
    """
    _check_names(source, formats)
    found: dict[str, str] = {}
    for name in source.selected_resources:
        places = list(_places_of(source.resources[name], formats, whole))
        if places and places[0].format is not None:
            found[name] = places[0].format.spelling
    return found


def cursor_column(
    resource: DltResource, formats: Mapping[str, str], bounding: str | None, *, whole: bool
) -> tuple[str, CursorFormat | None] | None:
    """The column that tells which chunk a row of a resource belongs to, and how its values spell times.

    Args:
        resource: A resource of a fresh source.
        formats: As `bound` takes them.
        bounding: The column that bounds a resource without a cursor; see `SourceSpec.cursor_column`.
        whole: Whether the window is of whole numbers.

    Returns:
        The column as the source names it; None if there is none. A parent's cursor is no column of its
        transformer. Without a format the values are datetimes, or whole numbers in a window of such.
    """
    from dlt.common.jsonpath import extract_simple_field_name

    places = list(_places_of(resource, formats, whole))
    if places:
        nearest: Any = places[0]
        own = nearest.cursor if nearest.pipe is resource._pipe else None
        name = own.get_cursor_column_name() if own is not None else None
        return (name, nearest.format) if name else None
    name = extract_simple_field_name(bounding) if bounding else None
    text = formats.get(resource.name, formats.get(EVERY_RESOURCE))
    return (name, CursorFormat.parse(text) if text else None) if name else None


def initial_value(
    source: DltSource, formats: Mapping[str, str], timezone: str, *, whole: bool
) -> Bound | None:
    """Where the history of a source starts: the first ``initial_value`` of its cursors; None if none has one.

    Args:
        source: A fresh source.
        formats: As `bound` takes them.
        timezone: Canonical zone of the window, whose days dates are.
        whole: Whether the window is of whole numbers.
    """
    datetimes = CursorFormat.parse("datetime")
    starts: list[Any] = [
        start
        for place in cursor_places(source, formats, whole)
        if place.cursor is not None
        and (start := (place.format or datetimes).restored(place.cursor.initial_value, timezone)) is not None
    ]
    return min(starts, default=None)


def unbindable(
    source: DltSource, formats: Mapping[str, str], chunks: Sequence[Interval], timezone: str
) -> list[Finding]:
    """What keeps the bounds of some chunk from a cursor; one finding a resource.

    Args:
        source: A fresh source.
        formats: As `bind` takes them.
        chunks: All chunks, in order.
        timezone: Canonical zone of the window.
    """
    window = Interval(chunks[0].start, chunks[-1].end)
    findings: list[Finding] = []
    refused: dict[CursorFormat, CursorFormatError | None] = {}
    for place in cursor_places(source, formats, window.whole):
        if place.format is None:
            findings += _unformatted(place, whole=window.whole)
            continue
        if place.format not in refused:
            refused[place.format] = _refusal(place.format, chunks, timezone)
        error = refused[place.format]
        if place.cursor is None:
            findings.append(
                Finding(
                    rule="cursor-format",
                    resource=place.resource,
                    message="its cursor comes from dlt's configuration, so no format can be applied to it",
                    remedy="declare the cursor in the source",
                )
            )
        elif error is not None:
            message = f"cursor format {error.value!r} {error.reason}"
            findings.append(
                Finding(rule="cursor-format", resource=place.resource, message=message, remedy=error.remedy)
            )
        else:
            findings += _outside(place.resource, place.cursor, place.format, chunks, timezone)
    return list(dict.fromkeys(findings))


def _refusal(form: CursorFormat, chunks: Sequence[Interval], timezone: str) -> CursorFormatError | None:
    try:
        for bound in (chunks[0].start, *(chunk.end for chunk in chunks)):
            form.bound(bound, timezone)
    except CursorFormatError as error:
        return error
    return None


def _unformatted(place: Place, *, whole: bool) -> Iterator[Finding]:
    kind = value_type(place.cursor)
    # Untyped cursors and texts are the preflight's to refuse.
    if whole and (place.cursor is None or kind not in (None, str)):
        yield Finding(
            rule="cursor-format",
            resource=place.resource,
            message=f"its cursor is of type {getattr(kind, '__name__', 'unknown')}, and the window is of "
            "whole numbers",
            remedy="pass times as start, end and chunk, or declare the cursor as an id: cursor_format 'id'",
        )


def _outside(
    resource: str, cursor: Incremental[Any], form: CursorFormat, chunks: Sequence[Interval], timezone: str
) -> Iterator[Finding]:
    """dlt bounds a cursor by what its author declared too, and a chunk outside that is empty."""
    for rule, name, chunk in (
        ("initial-value", "initial_value", chunks[0]),
        ("end-value", "end_value", chunks[-1]),
    ):
        start, end = _clipped(cursor, form, chunk, timezone)
        if not start < end:
            value = getattr(cursor, name)
            where = "behind the first" if rule == "initial-value" else "before the last"
            yield Finding(
                rule=rule,
                resource=resource,
                message=f"its {name} {value!r} lies {where} chunk ({chunk}), which would be empty",
                remedy=f"change or remove {name}, or the window",
            )
            return


def cursor_places(source: DltSource, formats: Mapping[str, str], whole: bool) -> Iterator[Place]:
    """Every cursor that bounds something of what is selected, once."""
    seen: set[int] = set()
    for resource in source.selected_resources.values():
        for place in _places_of(resource, formats, whole):
            # Transformers share their parent's pipe.
            if id(place.pipe) not in seen:
                yield place
        pipe: Any = resource._pipe
        while pipe is not None:
            seen.add(id(pipe))
            pipe = pipe.parent


def _places_of(resource: Any, formats: Mapping[str, str], whole: bool) -> Iterator[Place]:
    """The cursors of a resource and of its parents, nearest first."""
    from dlt.extract.incremental import Incremental, IncrementalResourceWrapper

    pipe: Any = resource._pipe
    owner: Any = resource
    # A transformer may be named in its parent's stead, but not for more than the cursor that bounds it.
    names = [resource.name]
    while pipe is not None:
        for position, step in enumerate(pipe._steps):
            if not isinstance(step, Incremental | IncrementalResourceWrapper):
                continue
            found = cursor_in(step, pipe, owner)
            if found is None:
                continue
            cursor = found if isinstance(found, Incremental) else None
            named = [formats[name] for name in (pipe.name, *names, EVERY_RESOURCE) if name in formats]
            names = []
            form = CursorFormat.parse(named[0]) if named else _by_type(cursor, whole)
            yield Place(
                resource=pipe.name, owner=owner, pipe=pipe, position=position, cursor=cursor, format=form
            )
        pipe, owner = pipe.parent, getattr(owner, "_parent", None)


def _by_type(cursor: Incremental[Any] | None, whole: bool) -> CursorFormat | None:
    """What needs no declaration: whole numbers in a window of such; dates, whose zone dlt does not ask."""
    kind = value_type(cursor)
    if kind is None:
        return None
    if whole and issubclass(kind, int):
        return CursorFormat.parse("id")
    if not whole and issubclass(kind, date) and not issubclass(kind, datetime):
        return CursorFormat.parse("date")
    return None


def value_type(cursor: Incremental[Any] | None) -> type | None:
    """The type of a cursor's values, if it says so."""
    kind: Any = cursor.get_incremental_value_type() if cursor is not None else None
    return kind if isinstance(kind, type) else None


def _clipped(
    cursor: Incremental[Any], form: CursorFormat, interval: Interval, timezone: str
) -> tuple[Any, Any]:
    """The bounds, within what the source's author declared, as dlt clips them too."""
    start, end = form.bound(interval.start, timezone), form.bound(interval.end, timezone)
    try:
        if cursor.initial_value is not None:
            start = max(start, form.comparable(cursor.initial_value))
        if cursor.end_value is not None:
            end = min(end, form.comparable(cursor.end_value))
    except TypeError:
        # Of another type than the declared format has: the format is what the values are.
        pass
    return start, end


def _bounded(
    cursor: Incremental[Any], form: CursorFormat, interval: Interval, timezone: str
) -> Incremental[Any]:
    own = cursor.copy()
    own.allow_external_schedulers = False
    own.initial_value, own.end_value = (
        as_dlt_has_it(value) for value in _clipped(cursor, form, interval, timezone)
    )
    return own


def as_dlt_has_it(value: Any) -> Any:
    """Sources may call methods of the values that dlt would have put in."""
    import pendulum

    if isinstance(value, date) and not isinstance(value, datetime):
        return pendulum.Date(value.year, value.month, value.day)
    return value


def _check_names(source: DltSource, formats: Mapping[str, str]) -> None:
    for name, text in formats.items():
        if name != EVERY_RESOURCE and name not in source.resources:
            known = ", ".join(sorted(source.resources))
            raise CursorFormatError(
                text, f"is for resource {name!r}, which the source does not have", f"it has: {known}"
            )
        CursorFormat.parse(text)
