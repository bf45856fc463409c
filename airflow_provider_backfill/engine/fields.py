"""Fields in the arguments of a source, ``{chunk.start}``, which each chunk fills (pure).

==========================================  ==========================================================
field                                       what stands for it
==========================================  ==========================================================
``chunk.start``, ``chunk.end``              the bounds: times in UTC, or whole numbers
``chunk.start_date``, ``chunk.end_date``    the bounds as dates of the window's time zone
``chunk.last_date``                         the last day of the chunk, which is the one before its end
``chunk.start_epoch``, ``..._epoch_ms``     seconds since 1970; with ``_ms``, ``_us``, ``_ns`` finer
``chunk.end_epoch``, ``..._epoch_ms``       likewise
``chunk.id``                                the chunk's run id, the same in each attempt
==========================================  ==========================================================

An argument that is a field and nothing else gets the value itself. Within a text times are as ISO-8601 writes
them, or as a format behind a colon says: ``{chunk.start:%Y-%m-%d}``. All other braces are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from airflow_provider_backfill.engine.bounds import Bound
from airflow_provider_backfill.engine.cursors import CursorFormat
from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.exceptions import ChunkFieldError, CursorFormatError

_FIELD = re.compile(r"\{chunk\.(?P<name>\w*)(?::(?P<format>[^{}]*))?\}")
_EPOCHS = {"epoch": "epoch_s", "epoch_ms": "epoch_ms", "epoch_us": "epoch_us", "epoch_ns": "epoch_ns"}
NAMES = (
    "start",
    "end",
    "start_date",
    "end_date",
    "last_date",
    *(f"{bound}_{form}" for bound in ("start", "end") for form in _EPOCHS),
    "id",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkFields:
    """What a chunk has to say about itself.

    Args:
        interval: What it covers.
        timezone: Canonical zone of the window, whose days dates are; default ``UTC``.
        run_id: Its stable id.
    """

    interval: Interval
    run_id: str
    timezone: str = "UTC"

    def fill(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with every field replaced, also those within lists and mappings.

        Raises:
            ChunkFieldError: There is no such field, or this chunk has no value for it.
        """
        return {name: self._filled(value) for name, value in arguments.items()}

    def _filled(self, value: Any) -> Any:
        if isinstance(value, str):
            whole = _FIELD.fullmatch(value)
            if whole and whole["format"] is None:
                return self._value(whole)
            return _FIELD.sub(self._text, value)
        if isinstance(value, Mapping):
            return {key: self._filled(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)([self._filled(item) for item in value])
        return value

    def _text(self, field: re.Match[str]) -> str:
        value = self._value(field)
        if field["format"] is not None:
            try:
                return format(value, field["format"])
            except ValueError as error:
                raise ChunkFieldError(field[0], f"has no such format: {error}", "mend the format") from None
        return value.isoformat() if isinstance(value, date) else str(value)

    def _value(self, field: re.Match[str]) -> Any:
        name = field["name"]
        if name == "id":
            return self.run_id
        if name not in NAMES:
            raise ChunkFieldError(field[0], "is unknown", f"pass one of chunk.{', chunk.'.join(NAMES)}")
        if name in ("start", "end"):
            return self._bound(name)
        bound, _, form = name.partition("_")
        try:
            if form != "date":
                return CursorFormat.parse(_EPOCHS[form]).bound(self._bound(bound), self.timezone)
            days = CursorFormat.parse("date").bound(
                self._bound("end" if bound == "last" else bound), self.timezone
            )
        except CursorFormatError as error:
            raise ChunkFieldError(field[0], error.reason, error.remedy) from None
        return days - timedelta(days=1) if bound == "last" else days

    def _bound(self, name: str) -> Bound:
        return self.interval.start if name == "start" else self.interval.end


def mentioned(value: Any) -> tuple[str, ...]:
    """The fields in it that are of a chunk's bounds, by which a source can be bounded."""
    return tuple(
        field[0] for text in _texts(value) for field in _FIELD.finditer(text) if field["name"] != "id"
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for item in value.values() for text in _texts(item))
    elif isinstance(value, list | tuple):
        yield from (text for item in value for text in _texts(item))
