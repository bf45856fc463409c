"""Cursor formats: the bounds of a chunk as a source's cursor has them, in type and value (pure).

===================================  =================================================================
format                               the cursor's values
===================================  =================================================================
``datetime``                         aware datetimes
``naive``, ``naive@Europe/Berlin``   naive datetimes that clocks in the zone showed; default ``UTC``
``date``                             dates of the window's time zone
``epoch_s|ms|us|ns``                 whole seconds, milliseconds, microseconds, nanoseconds since 1970
``id``                               whole numbers that are no times, for windows of whole numbers
``%Y-%m-%dT%H:%M:%SZ``, ...          text of this very shape; ``@Europe/Berlin`` behind it names the zone
===================================  =================================================================

A shape may have ``%Y %m %d %H %M %S %f``, ``%3f`` for milliseconds, ``%F`` and ``%T``, from the year on
without a gap, so that texts sort as the times do that they mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal, TypeAlias

from airflow_provider_backfill.engine.bounds import Bound, as_utc
from airflow_provider_backfill.engine.intervals import bound_text
from airflow_provider_backfill.engine.timezones import (
    day_start,
    first_instant,
    is_ambiguous,
    local_wall,
    resolve_timezone,
)
from airflow_provider_backfill.exceptions import CursorFormatError

Kind: TypeAlias = Literal["datetime", "naive", "date", "epoch", "id", "text"]

#: In a mapping of formats, all resources that it does not name.
EVERY_RESOURCE = "*"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
#: Microseconds in a unit; a nanosecond is finer than any bound.
_UNITS = {"epoch_s": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1, "epoch_ns": 1}
_FIELDS = "YmdHMSf"
#: Microseconds below which a text shows nothing, by its last field.
_FINEST = {"S": 1_000_000, "3f": 1_000, "f": 1, "M": 60_000_000, "H": 3_600_000_000, "d": 86_400_000_000}
_DIRECTIVE = re.compile(r"%(3f|.)", re.DOTALL)
_NAMES = {
    1: "microseconds",
    1_000: "milliseconds",
    1_000_000: "seconds",
    60_000_000: "minutes",
    3_600_000_000: "hours",
    86_400_000_000: "days",
}
# Not strftime, which writes years before 1000 with fewer digits, and knows no milliseconds.
_WRITTEN: Mapping[str, Callable[[datetime], str]] = {
    "Y": lambda wall: f"{wall.year:04d}",
    "m": lambda wall: f"{wall.month:02d}",
    "d": lambda wall: f"{wall.day:02d}",
    "H": lambda wall: f"{wall.hour:02d}",
    "M": lambda wall: f"{wall.minute:02d}",
    "S": lambda wall: f"{wall.second:02d}",
    "f": lambda wall: f"{wall.microsecond:06d}",
    "3f": lambda wall: f"{wall.microsecond // 1_000:03d}",
    "%": lambda wall: "%",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorFormat:
    """How a cursor's values spell a chunk's bounds. `parse` reads what people write.

    Args:
        spelling: As given.
        kind: What the values are.
        timezone: Canonical zone of naive datetimes and of texts; default ``UTC``.
        unit: Microseconds in the smallest step that the values can show; default 1.
        shape: The pattern of texts, ``%F`` and ``%T`` written out; default empty.
    """

    spelling: str
    kind: Kind
    timezone: str = "UTC"
    unit: int = 1
    shape: str = ""

    @classmethod
    def parse(cls, text: str) -> CursorFormat:
        """Read a format.

        Raises:
            CursorFormatError: It is none, or its texts would not sort as times do.
            TimezoneError: There is no such zone.
        """
        if not isinstance(text, str):
            raise CursorFormatError(text, f"is of type {type(text).__name__}, and no text")
        name = text.strip()
        if name in {"datetime", "date", "id"}:
            return cls(spelling=text, kind=name)  # type: ignore[arg-type]
        if name in _UNITS:
            return cls(spelling=text, kind="epoch", unit=_UNITS[name])
        shape, _, zone = name.rpartition("@") if "@" in name else (name, "", "")
        if shape == "naive":
            return cls(spelling=text, kind="naive", timezone=resolve_timezone(zone or "UTC"))
        if "%" not in shape:
            raise CursorFormatError(text, "is unknown")
        timezone = resolve_timezone(zone or "UTC")
        if timezone != "UTC" and re.search(r"(Z|[+-]00:?00)$", shape):
            reason = f"says UTC at its end and {timezone} behind the @"
            raise CursorFormatError(text, reason, "leave one of them out")
        shape = shape.replace("%F", "%Y-%m-%d").replace("%T", "%H:%M:%S")
        return cls(spelling=text, kind="text", timezone=timezone, unit=_finest(text, shape), shape=shape)

    @property
    def whole(self) -> bool:
        """For windows of whole numbers, not of times."""
        return self.kind == "id"

    def bound(self, bound: Bound, window_timezone: str) -> Any:
        """A chunk's bound as the cursor has it.

        Args:
            bound: An instant in UTC, or a whole number.
            window_timezone: Canonical zone of the window, whose days dates are.

        Raises:
            CursorFormatError: The cursor's values cannot say that bound.
        """
        if isinstance(bound, int):
            if not self.whole:
                raise CursorFormatError(
                    self.spelling,
                    "is of times, and the window is of whole numbers",
                    "pass cursor_format 'id', or times as start and end",
                )
            return bound
        if self.whole:
            raise CursorFormatError(
                self.spelling,
                "is of whole numbers, and the window is of times",
                "pass whole numbers as start, end and chunk, or a format of times, e.g. epoch_s or epoch_ms",
            )
        if self.kind == "date":
            return self._day(bound, window_timezone)
        if self.kind == "datetime":
            return bound
        if self.kind == "epoch":
            return self._epoch(bound)
        wall = self._wall(bound)
        return wall if self.kind == "naive" else _filled(self.shape, wall)

    def _day(self, bound: datetime, timezone: str) -> date:
        day = local_wall(bound, timezone).date()
        if day_start(day, timezone) != bound:
            raise CursorFormatError(
                self.spelling,
                f"has no time of day, and the bound {bound_text(bound)} of a chunk is not the start of a day "
                f"in {timezone}",
                "let start and end be dates and chunks whole days, e.g. 1d; timezone= says whose days",
            )
        return day

    def _epoch(self, bound: datetime) -> int:
        microseconds = (bound - _EPOCH) // _MICROSECOND
        if microseconds % self.unit:
            self._refuse_finer(bound)
        return microseconds * 1_000 if self.spelling.strip() == "epoch_ns" else microseconds // self.unit

    def _wall(self, bound: datetime) -> datetime:
        if is_ambiguous(bound, self.timezone):
            raise CursorFormatError(
                self.spelling,
                f"cannot say the bound {bound_text(bound)} of a chunk, since clocks in {self.timezone} show "
                "that time twice",
                "choose bounds outside the hour that is repeated, e.g. chunks of whole days in that zone",
            )
        wall = local_wall(bound, self.timezone).replace(fold=0)
        if (wall - datetime(1, 1, 1)) // _MICROSECOND % self.unit:  # noqa: DTZ001
            self._refuse_finer(bound)
        return wall

    def _refuse_finer(self, bound: datetime) -> None:
        raise CursorFormatError(
            self.spelling,
            f"has whole {_NAMES[self.unit]}, and the bound {bound_text(bound)} of a chunk is finer",
            f"let start, end and chunk be whole {_NAMES[self.unit]}, or pass a finer format",
        )

    def restored(self, value: Any, window_timezone: str) -> Bound | None:
        """A value that the source's author wrote as a bound; None if it is not of this format.

        Args:
            value: For example an ``initial_value``.
            window_timezone: Canonical zone of the window, whose days dates are.
        """
        number = isinstance(value, int) and not isinstance(value, bool)
        if self.kind == "epoch":
            return _since_epoch(value, self) if number else None
        if self.whole:
            return value if number else None
        if self.kind == "text":
            return self._read(value) if isinstance(value, str) else None
        if isinstance(value, datetime):
            if self.kind == "date":
                return day_start(value.date(), window_timezone)
            if value.tzinfo is None:
                zone = self.timezone if self.kind == "naive" else "UTC"
                return first_instant(value.replace(fold=0), zone)
            return as_utc(value, "initial_value")
        if self.kind == "date" and isinstance(value, date):
            return day_start(value, window_timezone)
        return None

    def _read(self, text: str) -> datetime | None:
        try:
            wall = datetime.strptime(text, self.shape.replace("%3f", "%f"))  # noqa: DTZ007
        except ValueError:
            return None
        return first_instant(wall, self.timezone)

    def comparable(self, value: Any) -> Any:
        """A value that the source's author wrote, e.g. as ``initial_value``, as the bounds are."""
        if self.kind == "naive" and isinstance(value, datetime) and value.tzinfo:
            return local_wall(value, self.timezone).replace(fold=0)
        if self.kind == "datetime" and isinstance(value, datetime) and not value.tzinfo:
            return value.replace(tzinfo=UTC)
        return value


def _finest(given: str, shape: str) -> int:
    """The smallest step that texts of a shape can show, microseconds.

    Raises:
        CursorFormatError: They would not sort as the times do that they mean.
    """
    fields = [field for field in _DIRECTIVE.findall(shape) if field != "%"]
    letters = "".join(field[-1] for field in fields)
    if "%" in _DIRECTIVE.sub("", shape) or not letters or not _FIELDS.startswith(letters) or len(letters) < 3:
        if letters[:1] == "Y" and set(letters) & set("zZ"):
            remedy = "write the offset as it stands, e.g. %Y-%m-%dT%H:%M:%SZ or %Y-%m-%dT%H:%M:%S+00:00"
        else:
            remedy = (
                "let it go from the year down without a gap, e.g. %Y-%m-%d or %Y-%m-%dT%H:%M:%SZ, or make "
                "the source yield datetimes"
            )
        raise CursorFormatError(given, "gives texts that do not sort as times do", remedy)
    return _FINEST[fields[-1]]


def _since_epoch(number: int, form: CursorFormat) -> datetime:
    nano = form.spelling.strip() == "epoch_ns"
    return _EPOCH + (number // 1_000 if nano else number * form.unit) * _MICROSECOND


def _filled(shape: str, wall: datetime) -> str:
    return _DIRECTIVE.sub(lambda match: _WRITTEN[match[1]](wall), shape)
