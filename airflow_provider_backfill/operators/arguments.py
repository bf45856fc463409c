"""Arguments that come out of a template as text."""

from __future__ import annotations

from typing import Any


def truth(name: str, value: object) -> bool:
    """A truth value, or the text of one.

    Raises:
        ChoiceError: It is neither.
    """
    from airflow_provider_backfill.exceptions import ChoiceError

    spelled = str(value).strip().lower()
    if spelled not in ("true", "false", "none", ""):
        raise ChoiceError(name, value, ("true", "false"))
    return spelled == "true"


def given(value: object) -> Any:
    """A value, or None for what a template makes of none."""
    return None if str(value).strip() in ("", "None") else value


def hours(name: str, value: object) -> float | None:
    """A number of hours above 0, or the text of one; None for what a template makes of none.

    Raises:
        ChoiceError: It is none.
    """
    from airflow_provider_backfill.exceptions import ChoiceError

    if given(value) is None:
        return None
    try:
        number = float(str(value))
    except ValueError:
        number = 0
    # Infinity is no number to compare with, either.
    if not 0 < number < float("inf"):
        raise ChoiceError(name, value, ("a number of hours greater than 0",))
    return number


def natural(name: str, value: object) -> int:
    """A whole number from 0, or the text of one; see `positive`."""
    return _number(name, value, 0)


def positive(name: str, value: object) -> int:
    """A whole number from 1, or the text of one.

    Raises:
        ChoiceError: It is none.
    """
    return _number(name, value, 1)


def _number(name: str, value: object, least: int) -> int:
    from airflow_provider_backfill.exceptions import ChoiceError

    spelled = str(value).strip()
    if not (spelled.isascii() and spelled.isdecimal() and int(spelled) >= least):
        raise ChoiceError(name, value, (f"a whole number from {least}",))
    return int(spelled)
