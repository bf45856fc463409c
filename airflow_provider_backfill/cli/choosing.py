"""Which backfill of a dataset is meant, and which of its chunks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from airflow_provider_backfill.cli.output import print_table
from airflow_provider_backfill.cli.reading import Reading, absence, read
from airflow_provider_backfill.cli.request import Place, Request, misuse
from airflow_provider_backfill.engine.backfill import cut, first_fields
from airflow_provider_backfill.engine.bounds import parse_bound
from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.engine.plan import interval_label
from airflow_provider_backfill.engine.records import ChunkRow
from airflow_provider_backfill.exceptions import BoundFormatError

Command = TypeVar("Command", bound=Callable[..., Any])

#: More chunks are counted, not listed.
LISTED = 50
_CHUNK_ID = re.compile(r"[0-9]{6}")
_NUMBER = re.compile(r"([0-9]+)(?:/([0-9]+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A chunk as ``--chunk`` spells it.

    Args:
        number: Its place in the backfill, from 1.
        total: How many chunks the backfill is said to have; None where it is not said.
    """

    number: int
    total: int | None = None

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read ``3``, ``3/5`` or the chunk id ``000002``.

        Raises:
            click.BadParameter: It is none of these.
        """
        if _CHUNK_ID.fullmatch(text):
            return cls(number=int(text) + 1)
        match = _NUMBER.fullmatch(text)
        if match is None or int(match[1]) == 0:
            raise click.BadParameter(
                f"{text!r} is no chunk: pass its number from 1 (3 or 3/5), or the six digits of its chunk_id"
            )
        return cls(number=int(match[1]), total=int(match[2]) if match[2] else None)

    def __str__(self) -> str:
        return str(self.number) if self.total is None else f"{self.number}/{self.total}"


def positions_of(
    ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[Position, ...]:
    """The chunks that an option spells, each once."""
    return tuple(dict.fromkeys(Position.parse(value) for value in values))


def selection_options(command: Command) -> Command:
    """Some of the chunks of a backfill."""
    for option in (
        click.option(
            "--only-to",
            metavar="TIME",
            help="Chunks that begin before this time alone; spelled as --from.  [default: to the last]",
        ),
        click.option(
            "--only-from",
            metavar="TIME",
            help="Chunks that end after this time alone; spelled as --from.  [default: from the first]",
        ),
        click.option(
            "--only",
            "positions",
            multiple=True,
            callback=positions_of,
            metavar="N",
            help="This chunk alone; may be repeated. N counts from 1, as everywhere (3 or 3/5); six digits "
            "are a chunk_id, which counts from 000000.  [default: all]",
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Some of the chunks of a backfill; the fields are the options.

    Args:
        positions: Single chunks.
        only_from: Where a range of them begins; None: with the first.
        only_to: Where it ends; None: with the last.

    Raises:
        click.UsageError: Both single chunks and a range are given.
    """

    positions: tuple[Position, ...]
    only_from: str | None
    only_to: str | None

    def __post_init__(self) -> None:
        if self.positions and self.ranged:
            raise misuse("Pass either --only, or --only-from and --only-to")

    @classmethod
    def taken(cls, options: dict[str, Any]) -> Selection:
        """Take the options out of what click has parsed."""
        return cls(**{name: options.pop(name) for name in ("positions", "only_from", "only_to")})

    @property
    def ranged(self) -> bool:
        return self.only_from is not None or self.only_to is not None

    def of(self, rows: Sequence[ChunkRow]) -> list[ChunkRow]:
        """The chunks that are meant, of a backfill's.

        Raises:
            click.UsageError: There is no such chunk.
            RefusedError: A bound is unusable.
        """
        backfill_id, total = rows[0].backfill_id, len(rows)
        numbers = {row.number for row in rows}
        for position in self.positions:
            if position.number not in numbers or position.total not in (None, total):
                raise misuse(f"Backfill {backfill_id} has no chunk {position}; it has {total} chunks")
        wanted = {position.number for position in self.positions}
        if wanted:
            return [row for row in rows if row.number in wanted]
        start, end = self._bound("only_from", rows[0]), self._bound("only_to", rows[0])
        chosen = [
            row
            for row in rows
            if (start is None or row.interval.end > start) and (end is None or row.interval.start < end)
        ]
        if not chosen:
            raise misuse(f"Backfill {backfill_id} has no chunk there; its window is [{rows[0].window})")
        return chosen

    def _bound(self, name: str, row: ChunkRow) -> Any:
        text = getattr(self, name)
        if text is None:
            return None
        bound = parse_bound(text, name.replace("_", "-"), row.timezone)
        if isinstance(bound, int) != row.window.whole:
            kind = "whole numbers" if row.window.whole else "times"
            raise BoundFormatError(
                name.replace("_", "-"), text, f"does not fit the window, which is of {kind}", f"pass {kind}"
            )
        return bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A backfill that the ledger has.

    Args:
        target: Where it stands.
        rows: Its chunks, in order.
    """

    target: Target
    rows: Sequence[ChunkRow]

    @property
    def backfill_id(self) -> str:
        return self.rows[0].backfill_id

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Known:
        """Find it by its id, or by what it was planned from.

        Raises:
            click.UsageError: It is not said, or the ledger does not have it.
            RefusedError: The source, the window or the destination are unusable.
        """
        given = dict(options)
        backfill_id = given.pop("backfill_id")
        needed = ("source", "start", "end", "chunk")
        if backfill_id:
            if any(given[name] for name in needed):
                raise misuse("Pass either --backfill-id, or SOURCE, --from, --to and --chunk")
            place = Place(**{name: given[name] for name in ("destination", "conn_id", "dataset")})
            return known(place.target(), backfill_id, place.dataset)
        if not all(given[name] for name in needed):
            raise misuse("Say which backfill: pass --backfill-id, or SOURCE, --from, --to and --chunk")
        # What is recorded has been confirmed.
        request = Request.of_given({**given, "yes": True})
        asked = request.backfill()
        source = asked.source.load(first_fields(asked.source, asked.window, asked.chunk, asked.settings))
        plan = cut(asked.source, source, asked.window, asked.chunk, asked.settings)
        return known(asked.target, plan.backfill_id, request.place.dataset)


def known(target: Target, backfill_id: str, dataset: str) -> Known:
    """Read the chunks of a backfill.

    Raises:
        click.UsageError: The ledger does not have it.
    """
    reading = read(target, None)
    rows = [row for row in reading.rows if row.backfill_id == backfill_id]
    if not rows:
        raise misuse(f"The ledger has no backfill {backfill_id!r}; {_others(reading, dataset)}")
    return Known(target=target, rows=rows)


def _others(reading: Reading, dataset: str) -> str:
    if reading.absent:
        return absence(reading, dataset, None)
    return f"it has: {', '.join(dict.fromkeys(row.backfill_id for row in reading.rows))}"


def show(rows: Sequence[ChunkRow], total: int) -> None:
    """List chunks as they stand."""
    cells = [
        (
            f"{row.number}/{total}",
            interval_label(row.interval, row.timezone),
            str(row.status),
            "" if row.records_loaded is None else str(row.records_loaded),
        )
        for row in rows[:LISTED]
    ]
    print_table(("chunk", "interval", "status", "records"), cells)
    if len(rows) > LISTED:
        click.echo(f"and {len(rows) - LISTED} more")


def names(rows: Sequence[ChunkRow], total: int) -> str:
    """Chunks in one line: ``3/5, 4/5``."""
    listed = ", ".join(f"{row.number}/{total}" for row in rows[:LISTED])
    return f"{listed} and {len(rows) - LISTED} more" if len(rows) > LISTED else listed


def chunks(count: int) -> str:
    """``1 chunk``, ``2 chunks``"""
    return f"{count} chunk{'s' * (count != 1)}"
