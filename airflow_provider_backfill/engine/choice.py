"""Choosing the windows of a backfill by the name of a strategy, from what its dataset has."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from airflow_provider_backfill.engine.backfill import Backfill, first_fields
from airflow_provider_backfill.engine.bounds import Bound, parse_bound
from airflow_provider_backfill.engine.coverage import Completed
from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.engine.estimates import Estimate
from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.ledger_reader import LedgerReader
from airflow_provider_backfill.engine.marks import ChunkMarks
from airflow_provider_backfill.engine.metrics import MetricsSink
from airflow_provider_backfill.engine.overlaps import Overlap
from airflow_provider_backfill.engine.plan import BackfillPlan, backfill_id, source_key, timezone_of
from airflow_provider_backfill.engine.records import ChunkStatus, SourceChunk
from airflow_provider_backfill.engine.selections import Reach, Selection
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.strategies import Asked, Known, Strategy, behind, select
from airflow_provider_backfill.engine.survey import Survey, together
from airflow_provider_backfill.engine.timezones import resolve_timezone
from airflow_provider_backfill.engine.window import ChunkSize, Window
from airflow_provider_backfill.exceptions import StrategyError


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Chunks of a backfill that are loaded again.

    Args:
        backfill: The backfill.
        plan: Its plan as it is recorded.
        chunk_ids: The chunks, in order.
        completed: Those among them that are completed still, and have to be restated first.
    """

    backfill: Backfill
    plan: BackfillPlan
    chunk_ids: tuple[str, ...]
    completed: tuple[str, ...] = ()

    @property
    def intervals(self) -> list[Interval]:
        """What is loaded again, in order."""
        return [chunk.interval for chunk in self.plan.chunks if chunk.chunk_id in self.chunk_ids]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What a strategy has chosen. Falsy if there is nothing to do.

    Args:
        windows: Backfills to plan and run, in order.
        done: Backfills whose chunks are recorded as completed without running.
        again: What is loaded again before them.
    """

    windows: tuple[Backfill, ...] = ()
    done: tuple[Backfill, ...] = ()
    again: tuple[Again, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.windows or self.done or self.again)

    def check(self) -> None:
        """Refuse what `record` could not do. Only reads.

        Raises:
            RefusedError: Other backfills are in the way, or rows cannot be told from others.
        """
        for backfill in self.done:
            backfill.survey(backfill.cut())
        if any(each.completed for each in self.again):
            self.windows[0].check_restatable()

    def estimate(self, found: Sequence[Survey]) -> Estimate | None:
        """What all of it will take; None without a window.

        Args:
            found: How the plans of ``windows`` stand.
        """
        return together(found, (interval for each in self.again for interval in each.intervals))

    def record(self, who: str) -> None:
        """Write down what is done without running, and what is to be loaded again, before the windows are.

        In that order a crash loses nothing: a window that is not seeded yet is a new one the next time.

        Args:
            who: User and host, for the marks of what is done.

        Raises:
            RefusedError: As `check`.
        """
        for backfill in self.done:
            rows = backfill.seed(backfill.cut())
            with backfill.target.connect(backfill.settings.file_lock_timeout_seconds) as session:
                marks = ChunkMarks(session, backfill.target)
                Ledger(session, backfill.target).prepare(marks)
                marks.done(rows, who, "strategy forward_only: nothing before is loaded")
        if any(each.completed for each in self.again):
            backfill = self.windows[0]
            with backfill.target.connect(backfill.settings.file_lock_timeout_seconds) as session:
                for each in self.again:
                    if each.completed:
                        Ledger(session, backfill.target).restate(each.plan.backfill_id, *each.completed)


def read_bounds(
    chunk: ChunkSize, *, start: Any = None, end: Any = None, since: Any = None, timezone: str = "UTC"
) -> dict[str, Any]:
    """The arguments ``start``, ``end``, ``since``, ``timezone`` of a `Choice`, from what people write.

    Args:
        chunk: How the windows are to be cut.
        start: See `parse_bound`; None or empty for none, likewise the next two.
        end: Likewise.
        since: Likewise.
        timezone: The zone's name.

    Raises:
        WindowError: A bound is unusable, the end is not after the start, or the chunk does not fit them.
    """
    zone = resolve_timezone(timezone)
    given = {"start": start, "end": end, "since": since}
    bounds: dict[str, Any] = {
        name: None if value in (None, "") else parse_bound(value, name, zone) for name, value in given.items()
    }
    if bounds["start"] is not None and bounds["end"] is not None:
        Window.parse(start, end, zone).check_kind(chunk)
    return {**bounds, "timezone": zone}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was asked for; `make` chooses.

    Args:
        source: The dlt source to read.
        target: The dataset to load into.
        chunk: How to cut the windows.
        strategy: Which windows, see `Asked`; default ``window``, the one from ``start`` to ``end``.
        start: Start of the window, within which the other strategies choose; default where the history of
            the source starts, which its cursors say by their ``initial_value``.
        end: End of it; default the present, by the database's clock. Of whole numbers it must be given.
        since: For ``forward_only``, before which nothing is loaded.
        lookback: How many chunks before a new window are loaded again; default 0.
        grain: What bounds are aligned to; default none.
        timezone: Canonical name of the zone; default ``UTC``.
        settings: Limits, lease and waits; default those of the environment.
        overlap: What a chunk means that other backfills have loaded in part; default ``refuse``.
        sink: Where metrics go; default None, for nowhere.
    """

    source: SourceSpec
    target: Target
    chunk: ChunkSize
    strategy: str = Strategy.WINDOW
    start: Bound | None = None
    end: Bound | None = None
    since: Bound | None = None
    lookback: int = 0
    grain: str | None = None
    timezone: str = "UTC"
    settings: Settings = field(default_factory=Settings.from_environment)
    overlap: str = Overlap.REFUSE
    sink: MetricsSink | None = None

    @property
    def plain(self) -> bool:
        """The window as given; what the dataset has changes nothing."""
        return self.strategy == Strategy.WINDOW and not self.lookback and not self.grain

    @property
    def request(self) -> str:
        """A short text that differs where what was asked for does."""
        parts = (
            *(self.strategy, self.start, self.end, self.since, self.lookback, self.grain),
            *(self.chunk, self.timezone, self.source.label, self.source.name, self.source.resources),
        )
        return hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()[:16]

    def make(self) -> Chosen:
        """Choose the windows. Only reads, in a number of statements that does not grow with the ledger.

        Raises:
            RefusedError: The strategy lacks what it chooses from, or the source or the bounds are unusable.
        """
        asked = self._asked(None)
        if self.plain and asked.window:
            return Chosen(windows=(self.backfill(asked.window),))
        if self.chunk.whole and self.end is None and self.strategy != Strategy.WINDOW:
            raise StrategyError(
                self.strategy,
                "goes to the present, and whole numbers have none",
                "pass the first number that the source has not given out yet as end (--to)",
            )
        from airflow_provider_backfill.engine.binding import initial_value

        # Without a window, a source that takes its bounds as arguments is shown any day.
        size = self.chunk if asked.window else None
        source = self.source.load(first_fields(self.source, asked.window, size, self.settings))
        name = self.source.source_name(source)
        starts = initial_value(source, self.source.cursor_format, self.timezone, whole=self.chunk.whole)
        with _reading(self.target, self.settings) as reader:
            now = self._now(reader)
            rows = reader.source_chunks(name, self.source.resources) if reader and reader.exists() else []
            mine = self._selection(source.selected_resources)
            rows = [row for row in rows if row.selection.reach(mine) is not Reach.NONE]
            asked = self._asked(now)
            known = self._known(rows, mine, now, starts)
            selection = select(asked, known)
            key = source_key(name, self.source.resources)
            recorded = {row.backfill_id for row in rows}
            new = [each for each in selection.windows if backfill_id(key, each, self.chunk) not in recorded]
            again = _grouped(self._again(rows, behind(asked, known, new)))
            return Chosen(
                windows=tuple(map(self.backfill, selection.windows)),
                done=tuple(map(self.backfill, selection.done)),
                again=tuple(
                    self.again(
                        reader.recorded_plan(name),
                        [row.chunk_id for row in chunks],
                        [row.chunk_id for row in chunks if row.done],
                    )
                    for name, chunks in again.items()
                    if reader
                ),
            )

    def again(self, plan: BackfillPlan, chunk_ids: Sequence[str], completed: Sequence[str] = ()) -> Again:
        """Chunks of a backfill that is recorded; see `Again`."""
        return Again(
            backfill=self.backfill(plan.window, plan.size),
            plan=plan,
            chunk_ids=tuple(chunk_ids),
            completed=tuple(completed),
        )

    def backfill(self, window: Window, chunk: ChunkSize | None = None) -> Backfill:
        """The backfill of one window; ``chunk`` is the size, if it is not the one asked for."""
        return Backfill(
            source=self.source,
            target=self.target,
            window=window,
            chunk=chunk or self.chunk,
            settings=self.settings,
            overlap=self.overlap,
            sink=self.sink,
        )

    def _asked(self, now: Bound | None) -> Asked:
        """What is asked of the strategy; with only a start, the window ends with the present once known."""
        end = now if self.end is None and self.strategy != Strategy.WINDOW else self.end
        window = None
        if self.start is not None and end is not None:
            window = Window(start=self.start, end=end, timezone=self.timezone)
        return Asked(
            strategy=self.strategy,
            size=self.chunk,
            window=window,
            since=self.since,
            lookback=self.lookback,
            grain=self.grain,
            timezone=self.timezone,
        )

    def _now(self, reader: LedgerReader | None) -> Bound:
        if self.end is not None and (self.start is None or self.chunk.whole):
            return self.end
        clock = reader.clock() if reader else datetime.now(UTC)
        # Not finer than what a cursor can say.
        return clock.astimezone(UTC).replace(microsecond=0)

    def _known(self, rows: Sequence[SourceChunk], mine: Selection, now: Bound, starts: Bound | None) -> Known:
        # One that loaded only some of the resources has loaded nothing for them all.
        whole = [row for row in rows if row.selection.reach(mine) is Reach.ALL]
        return Known(
            now=now,
            initial_value=starts,
            completed=tuple(_completed(row) for row in whole if (row.done or row.loaded) and not row.covered),
            failed=tuple(row.interval for row in rows if row.status is ChunkStatus.FAILED or row.lapsed),
            unfinished=tuple(
                dict.fromkeys(
                    Window(start=row.window.start, end=row.window.end, timezone=self.timezone)
                    for row in rows
                    if not row.done and self._is_mine(row) and self._has_my_size(row)
                )
            ),
        )

    def _again(self, rows: Sequence[SourceChunk], behind_new: Iterable[Completed]) -> list[SourceChunk]:
        """What the lookback has loaded again: behind new windows, and what was left of it by a crash."""
        if not self.lookback:
            return []
        wanted = {(each.backfill_id, each.chunk_id) for each in behind_new}
        return [
            row
            for row in rows
            # With other resources the chunk would lose some; one that was recorded as done has no rows.
            if self._is_mine(row)
            and (row.replaced or (row.started and (row.backfill_id, row.chunk_id) in wanted))
        ]

    def _is_mine(self, row: SourceChunk) -> bool:
        return row.selection.named == set(self.source.resources)

    def _selection(self, present: Iterable[str]) -> Selection:
        return Selection(named=frozenset(self.source.resources), present=frozenset(present))

    def _has_my_size(self, row: SourceChunk) -> bool:
        size = row.chunk_size.partition("@")[0]
        return (size, timezone_of(row.chunk_size)) == (str(self.chunk), self.timezone)


@contextmanager
def _reading(target: Target, settings: Settings) -> Iterator[LedgerReader | None]:
    if not target.exists():
        yield None
        return
    with target.connect(settings.file_lock_timeout_seconds, read_only=True) as session:
        yield LedgerReader(session, target)


def _completed(row: SourceChunk) -> Completed:
    return Completed(backfill_id=row.backfill_id, chunk_id=row.chunk_id, interval=row.interval)


def _grouped(rows: Iterable[SourceChunk]) -> dict[str, list[SourceChunk]]:
    """Chunks by their backfill, in order."""
    found: dict[str, list[SourceChunk]] = {}
    for row in rows:
        found.setdefault(row.backfill_id, []).append(row)
    return found
