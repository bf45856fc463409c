"""The named statements of ``sql/*.sql``."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)\b")
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


@cache
def load_queries(file_name: str) -> dict[str, str]:
    """Read one file of named statements; comments are dropped."""
    text = files("airflow_provider_backfill.engine").joinpath("sql", file_name).read_text(encoding="utf-8")
    parts = _NAME.split(text)[1:]
    return {name: _COMMENT.sub("", body).strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def bind(statement: str, mark: str) -> tuple[str, tuple[str, ...]]:
    """Write ``:name`` parameters in a driver's own style and tell which there are.

    Args:
        statement: SQL with ``:name`` parameters.
        mark: The driver's style with ``{}`` for the name, for example ``%({})s``.
    """
    names = tuple(dict.fromkeys(_PARAMETER.findall(statement)))
    return _PARAMETER.sub(lambda match: mark.format(match[1]), statement), names
