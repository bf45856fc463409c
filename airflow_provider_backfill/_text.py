"""Values and foreign messages as text for people: one line, cut when long, without secrets."""

from __future__ import annotations

import re
from datetime import datetime

_ADDRESS_SECRET = re.compile(r"://\S*@")
_NAMED_SECRET = re.compile(
    r"\b([\w-]*(?:password|passwd|pwd|secret|token|api[_-]?key|access[_-]?key|signature|sig))"
    r"=(?:'[^']*'|[^\s&;'\"]+)",
    re.IGNORECASE,
)
_HEADER_SECRET = re.compile(r"\b(Bearer|Basic) +[\w.~+/=-]{8,}", re.IGNORECASE)
_LONGEST_VALUE = 80
_LONGEST_REASON = 500


def masked(text: str) -> str:
    """Hide who logs in, and how, in addresses, connection strings and requests."""
    text = _NAMED_SECRET.sub(r"\1=***", _ADDRESS_SECRET.sub("://***@", text))
    return _HEADER_SECRET.sub(r"\1 ***", text)


def shown(value: object) -> str:
    """A value as its one-line ``repr``; a long one is cut."""
    text = masked(repr(value.isoformat() if isinstance(value, datetime) else value))
    return " ".join(text.split()) if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def line(reason: object) -> str:
    """Foreign text, such as a driver's message, as one line without its final full stop, cut if long."""
    text = masked(" ".join(str(reason).split())).rstrip(".")
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"


def storable(text: str) -> str:
    """A text on one line, as any database takes it: not with a NUL, for example, or a lone surrogate."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def span(seconds: float) -> str:
    """A length of time in the largest unit that it has two of: ``42 s``, ``90 min``, ``3 d``."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
