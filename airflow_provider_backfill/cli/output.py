"""What a run shows while it goes on: lines for files and pipes, a progress bar on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import click

from airflow_provider_backfill.engine.controls import Control
from airflow_provider_backfill.engine.plan import BackfillPlan, interval_label
from airflow_provider_backfill.engine.records import ChunkRow, Claim
from airflow_provider_backfill.engine.report import chunk_line, completed, running

#: Off a terminal, how often a wait may be mentioned, seconds.
WAIT_LINE_SECONDS = 10.0
# A pipe has no width, for which rich takes 80; and a folded note would be one letter wide on a terminal.
_ENDLESS = 10_000


def waiting_for(rows: Sequence[ChunkRow], total: int, seconds_left: float) -> str:
    """Who keeps a run waiting, for how long the leases go on, and for how long the run does."""
    first = rows[0]
    what = f"chunk {first.number}/{total}" if len(rows) == 1 else f"{len(rows)} chunks"
    if not first.held:
        return (
            f"waiting for {what} that another backfill of the source keeps; giving up in {seconds_left:.0f} s"
        )
    # The one that lasts longest; a holder without a lease never ends by itself.
    leases = [row.lease_left for row in rows]
    known = [left for left in leases if left is not None]
    lease = (
        "no lease"
        if len(known) < len(leases)
        else f"lease runs out in {max(0.0, *known):.0f} s unless renewed"
    )
    who = ", ".join(sorted({row.claimed_by or "an unknown worker" for row in rows}))
    return f"waiting for {what} claimed elsewhere by {who} ({lease}); giving up in {seconds_left:.0f} s"


def paused_by(control: Control) -> str:
    """Why a run does not go on."""
    return f"waiting, the backfill is {control}"


class Lines:
    """One line a step.

    Args:
        plan: What runs.
        write: Where lines go; default stdout.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        plan: BackfillPlan,
        write: Callable[[str], None] = click.echo,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = len(plan.chunks)
        self._write = write
        self._clock = clock
        self._waited_at: float | None = None
        self._control: Control | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Nothing to close."""

    def _line(self, claim: Claim, text: str) -> None:
        self._write(chunk_line(claim.number, self._total, claim.interval, text))

    def running(self, claim: Claim) -> None:
        self._line(claim, running(claim.run_id))

    def completed(self, claim: Claim, records: int) -> None:
        self._line(claim, completed(records))

    def failed(self, claim: Claim, reason: str) -> None:
        self._line(claim, f"failed ({reason})")

    def waiting(self, rows: list[ChunkRow], seconds_left: float) -> None:
        now = self._clock()
        if self._waited_at is None or now - self._waited_at >= WAIT_LINE_SECONDS:
            self._waited_at = now
            self._write(waiting_for(rows, self._total, seconds_left))

    def paused(self, control: Control) -> None:
        if self._control != control:
            self._control = control
            self._write(paused_by(control))


class Bar:
    """A progress bar with the chunk that runs and the rows loaded; failures stay above it as lines.

    Args:
        plan: What runs.
        done: Chunks that are completed already.
    """

    def __init__(self, plan: BackfillPlan, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column

        self._plan = plan
        self._total = len(plan.chunks)
        self._rows = 0
        self._running: dict[str, Claim] = {}
        self._progress = Progress(
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("chunks, {task.fields[rows]} rows"),
            TimeElapsedColumn(),
            # Last and with all the room that is left, so that it alone is cut where the terminal ends.
            TextColumn(
                "{task.description}",
                markup=False,
                table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
            console=Console(),
            expand=True,
            transient=True,
        )
        self._task = self._progress.add_task("", total=self._total, completed=done, rows="0")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exc: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._progress.stop()

    def _show(self) -> None:
        claims = list(self._running.values())
        text = ""
        if claims:
            label = interval_label(claims[-1].interval, self._plan.window.timezone)
            others = f" and {len(claims) - 1} more" if len(claims) > 1 else ""
            text = f"chunk {claims[-1].number}/{self._total} {label}{others}"
        self._progress.update(self._task, description=text, rows=f"{self._rows:,}")

    def running(self, claim: Claim) -> None:
        self._running[claim.chunk_id] = claim
        self._show()

    def completed(self, claim: Claim, records: int) -> None:
        self._running.pop(claim.chunk_id, None)
        self._rows += records
        self._progress.advance(self._task)
        self._show()

    def failed(self, claim: Claim, reason: str) -> None:
        from rich.text import Text

        self._running.pop(claim.chunk_id, None)
        line = chunk_line(claim.number, self._total, claim.interval, f"failed ({reason})")
        self._progress.console.print(Text(line), soft_wrap=True)
        self._show()

    def waiting(self, rows: list[ChunkRow], seconds_left: float) -> None:
        self._progress.update(self._task, description=waiting_for(rows, self._total, seconds_left))

    def paused(self, control: Control) -> None:
        self._progress.update(self._task, description=paused_by(control))


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values, one pair a line."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        click.echo(f"{name:<{width}}  {value}")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table, one line a row, which a narrow terminal breaks where it ends."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(width=_ENDLESS)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())
