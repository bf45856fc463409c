"""Arguments that come out of a template as text."""

from __future__ import annotations


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


def positive(name: str, value: object) -> int:
    """A whole number from 1, or the text of one.

    Raises:
        ChoiceError: It is none.
    """
    from airflow_provider_backfill.exceptions import ChoiceError

    spelled = str(value).strip()
    if not (spelled.isascii() and spelled.isdecimal() and int(spelled)):
        raise ChoiceError(name, value, ("a whole number from 1",))
    return int(spelled)
