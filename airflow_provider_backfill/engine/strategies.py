"""Which windows to backfill, by the name of a strategy, from what is known of a source (pure).

Each is a small function from coverage to windows; `select` calls it by its name. Where resources of a source
differ in what they have done, `select` is called for each with what is known of that one.

Bounds that a person gives are aligned outward to the source's grain; the end not beyond the present, since
a day that is not over would count as done. Bounds that come from the source or the ledger stay where they
are: moving them would ask for what the source has not, or load twice what is there. A window that starts
with such a bound off the grain is cut at the next bound of the grain, so that one short chunk sets the
following ones right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from operator import attrgetter
from typing import Any

from airflow_provider_backfill.engine.bounds import Bound
from airflow_provider_backfill.engine.coverage import Completed, check_kind
from airflow_provider_backfill.engine.grains import Grain, align
from airflow_provider_backfill.engine.intervals import Interval, bound_text, meetings, merge, missing
from airflow_provider_backfill.engine.timezones import local_wall, resolve_timezone
from airflow_provider_backfill.engine.window import ChunkSize, Window, calendar_step
from airflow_provider_backfill.exceptions import ChoiceError, StrategyError

__all__ = ["Asked", "Grain", "Known", "Selection", "Strategy", "behind", "select"]

_FIRST = datetime.min.replace(tzinfo=UTC)


class Strategy(StrEnum):
    """Which windows to backfill."""

    FULL = "full"
    WINDOW = "window"
    GAPS = "gaps"
    FORWARD_ONLY = "forward_only"
    SINCE_FAILED = "since_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a person asks for.

    Args:
        strategy: ``full``: from the source's ``initial_value`` to now. ``window``: as given. ``gaps``: only
            what is missing. ``forward_only``: nothing before ``since``; the rest is recorded as done.
            ``since_failed``: what is missing from the first failed chunk on.
        size: How long a chunk is.
        window: The window, for ``window``; within it, for the others; ``full`` takes none. Default none:
            from the source's ``initial_value`` to now.
        since: For ``forward_only``, before which nothing is loaded; default none.
        lookback: Completed chunks that lie within so many chunks' length before a window are loaded again,
            except before ``since``; default 0.
        grain: What bounds are aligned to: ``hour``, ``day``, ``week`` or ``month``. Default none, which
            leaves them as they are; a window that ends now then has another identity at each planning.
        timezone: IANA name of the zone, where no window says it; default ``UTC``.

    Raises:
        ChoiceError: ``strategy`` or ``grain`` is none of these.
        StrategyError: ``lookback`` is less than 0.
        TimezoneError: There is no such zone.
    """

    strategy: str
    size: ChunkSize
    window: Window | None = None
    since: Bound | None = None
    lookback: int = 0
    grain: str | None = None
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if self.strategy not in list(Strategy):
            raise ChoiceError("strategy", self.strategy, tuple(Strategy))
        if self.grain is not None and self.grain not in list(Grain):
            raise ChoiceError("grain", self.grain, tuple(Grain))
        if self.lookback < 0:
            raise self.refusal(f"has lookback {self.lookback}", "pass how many chunks, 0 or more")
        zone = self.window.timezone if self.window else resolve_timezone(self.timezone)
        object.__setattr__(self, "timezone", zone)

    def aligned(self, bound: Bound, *, up: bool = False) -> Bound:
        """A bound moved to the grain, if one is given."""
        return align(bound, Grain(self.grain), self.timezone, up=up) if self.grain else bound

    def refusal(self, reason: str, remedy: str) -> StrategyError:
        return StrategyError(self.strategy, reason, remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of the source.

    Args:
        now: The present; of whole numbers, the first that the source has not given out yet.
        initial_value: Where its history starts; None if it does not say.
        completed: What its backfills have completed, in any order.
        failed: Its failed chunks, in any order.
        unfinished: Windows of its backfills of the asked chunk size and zone that have chunks not completed,
            in any order. They are resumed as they are, so that their identity stays.
    """

    now: Bound
    initial_value: Bound | None = None
    completed: tuple[Completed, ...] = ()
    failed: tuple[Interval, ...] = ()
    unfinished: tuple[Window, ...] = ()

    @property
    def covered(self) -> tuple[Interval, ...]:
        return merge(each.interval for each in self.completed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a strategy chose. What of the windows is covered already does not run, as in any plan.

    Args:
        windows: Windows to plan, in order, none overlapping another.
        done: Windows to record as completed without running, likewise; they overlap no window to plan.
        redo: Completed chunks to load again, in order. Whoever seeds the windows does so once, when they are
            new: a resumed window would have them loaded at each planning.
    """

    windows: tuple[Window, ...] = ()
    done: tuple[Window, ...] = ()
    redo: tuple[Completed, ...] = ()


def select(asked: Asked, known: Known) -> Selection:
    """Choose the windows of a strategy. Where nothing is to be done, there are none.

    Raises:
        StrategyError: The strategy lacks what it chooses from, or is given what it does not take; or times
            and whole numbers are mixed.
        BoundFormatError: Whole numbers have a grain, or completed chunks are of the other kind.
        ChunkSizeError: The chunk size is of the other kind.
    """
    _check_kinds(asked, known)
    chosen = _STRATEGIES[Strategy(asked.strategy)](asked, known)
    for each in chosen.windows:
        each.check_kind(asked.size)
    return replace(chosen, redo=behind(asked, known, chosen.windows))


def full(asked: Asked, known: Known) -> Selection:
    """From the source's ``initial_value`` to now."""
    if asked.window:
        raise asked.refusal(f"was given a window ({asked.window.interval})", "pass strategy window")
    return Selection(windows=_windows(asked, _span(asked, known)))


def window(asked: Asked, known: Known) -> Selection:
    """The window as given."""
    if not asked.window:
        raise asked.refusal("was given no window", "pass start and end")
    return Selection(windows=_windows(asked, _span(asked, known)))


def gaps(asked: Asked, known: Known) -> Selection:
    """Only what is missing, as `_missing` has it."""
    covered = known.covered
    return Selection(
        windows=_missing(asked, known, _span(asked, known, covered[0].start if covered else None))
    )


def forward_only(asked: Asked, known: Known) -> Selection:
    """Nothing before ``since``: what is missing there is to be recorded as done."""
    if asked.since is None:
        remedy = "pass since, e.g. 2026-01-01"
        raise asked.refusal("was not told before which instant (or number) nothing is loaded", remedy)
    since = asked.aligned(asked.since)
    halves = [each.halves(since) for each in _span(asked, known, since)]
    done = [gap for before, _ in halves if before for gap in missing(before, known.covered)]
    return Selection(
        windows=_windows(asked, [behind for _, behind in halves if behind]),
        done=tuple(Window(start=gap.start, end=gap.end, timezone=asked.timezone) for gap in done),
    )


def since_failed(asked: Asked, known: Known) -> Selection:
    """What is missing (see `_missing`) from the first failed chunk on that nobody has loaded since."""
    failed = sorted(known.failed)
    if not failed:
        return Selection()
    holes = missing(Interval(failed[0].start, merge(failed)[-1].end), known.covered)
    still = {position for _, position in meetings(holes, failed)}
    span = _span(asked, known, failed[0].start)
    parts = [
        part for each in span for position in sorted(still) if (part := failed[position].intersection(each))
    ]
    return Selection(windows=_missing(asked, known, [Interval(parts[0].start, span[0].end)] if parts else []))


_STRATEGIES: dict[Strategy, Callable[[Asked, Known], Selection]] = {
    Strategy.FULL: full,
    Strategy.WINDOW: window,
    Strategy.GAPS: gaps,
    Strategy.FORWARD_ONLY: forward_only,
    Strategy.SINCE_FAILED: since_failed,
}


def _check_kinds(asked: Asked, known: Known) -> None:
    bounds: list[tuple[str, Bound | None]] = [
        ("start", asked.window.start if asked.window else None),
        ("since", asked.since),
        ("the source's initial_value", known.initial_value),
        ("the present", None if asked.window else known.now),
        *(("a failed chunk's start", each.start) for each in known.failed),
        *(("an unfinished backfill's start", each.start) for each in known.unfinished),
    ]
    (name, first), *rest = [(name, bound) for name, bound in bounds if bound is not None]
    for other, bound in rest:
        if isinstance(bound, int) != isinstance(first, int):
            kinds = ("whole number", "time") if isinstance(first, int) else ("time", "whole number")
            reason = (
                f"has {name} {bound_text(first)}, a {kinds[0]}, and {other} {bound_text(bound)}, a {kinds[1]}"
            )
            raise asked.refusal(reason, "pass all as times or all as whole numbers")
    check_kind(first, known.completed)


def _span(asked: Asked, known: Known, fallback: Bound | None = None) -> tuple[Interval, ...]:
    """The one interval that is asked for; none if nothing of it is over.

    Args:
        asked: Its window, or else from the source's ``initial_value`` to now.
        known: Whose present bounds the alignment.
        fallback: Where it starts if the source does not say.
    """
    # Any: the bounds are of one kind, which mypy cannot know.
    start: Any = asked.aligned(asked.window.start) if asked.window else known.initial_value
    end: Any = asked.window.end if asked.window else known.now
    if start is None:
        start = fallback
    if start is None:
        raise asked.refusal(
            "has no start: the source has no initial_value", "give its incremental one, or pass start and end"
        )
    if asked.grain:
        now: Any = known.now
        up: Any = asked.aligned(end, up=True)
        end = up if up <= now else asked.aligned(end)
    return (Interval(start, end),) if start < end else ()


def _missing(asked: Asked, known: Known, span: Sequence[Interval]) -> tuple[Window, ...]:
    """What of an interval is missing: unfinished backfills as they are, and the gaps beside them.

    A backfill is resumed if nothing is missing in it that was not asked for; else its gaps are. Without
    that, a gap that is half done would come back as another, shorter one, with another identity.
    """
    if not span:
        return ()
    (wanted,) = span
    covered = known.covered
    unfinished = sorted(known.unfinished, key=attrgetter("interval"))
    intervals = [each.interval for each in unfinished]
    reach = merge([wanted, *intervals])
    holes = missing(Interval(reach[0].start, reach[-1].end), covered)
    left: dict[int, list[Interval | None]] = {}
    for number, position in meetings(holes, intervals):
        left.setdefault(position, []).append(holes[number].intersection(intervals[position]))
    resumed: list[Window] = []
    for position, parts in left.items():
        asked_for = all(part and wanted.contains(part) for part in parts)
        if asked_for and not (resumed and resumed[-1].interval.overlaps(intervals[position])):
            resumed.append(unfinished[position])
    fresh = missing(wanted, [*covered, *(each.interval for each in resumed)])
    return tuple(sorted([*resumed, *_windows(asked, fresh)], key=attrgetter("interval")))


def _windows(asked: Asked, intervals: Iterable[Interval]) -> tuple[Window, ...]:
    """Intervals as windows, each cut at the first bound of the grain in it."""
    parts = (part for each in intervals for part in each.halves(asked.aligned(each.start, up=True)) if part)
    return tuple(Window(start=part.start, end=part.end, timezone=asked.timezone) for part in parts)


def behind(asked: Asked, known: Known, windows: Iterable[Window]) -> tuple[Completed, ...]:
    """Completed chunks within the lookback of a window, also if they reach out of it."""
    # Before what forward_only starts with, nothing is loaded.
    if not asked.lookback or asked.strategy == Strategy.FORWARD_ONLY:
        return ()
    spans = []
    for each in windows:
        start: Any = _steps_before(each, asked.size, asked.lookback)
        if known.initial_value is not None:
            start = max(start, known.initial_value)
        if start < each.start:
            spans.append(Interval(start, each.start))
    completed = sorted(known.completed, key=attrgetter("interval"))
    touched = {position for _, position in meetings(merge(spans), (each.interval for each in completed))}
    return tuple(completed[position] for position in sorted(touched))


def _steps_before(window: Window, size: ChunkSize, steps: int) -> Bound:
    """Where the chunk starts that lies so many before a window's first; the first instant if none does."""
    start: Any = window.start
    try:
        if not size.calendar:
            return start - steps * size.step  # type: ignore[no-any-return]
        earlier = calendar_step(local_wall(start, window.timezone), window.timezone, size, -steps)
    except OverflowError:
        return _FIRST
    # A step that leads out of the calendar gives its last instant.
    return earlier if earlier <= start else _FIRST
