"""Where the log goes: to stderr, short, and dlt's own log only when it matters."""

from __future__ import annotations

import logging
import os
import sys
from typing import TextIO

_PACKAGE = "airflow_provider_backfill"


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to what ``sys.stderr`` is at the moment: a progress bar puts itself in its place."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(_Short())

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, stream: TextIO) -> None:
        """Not kept."""


class _Short(logging.Formatter):
    """``warning: text``, as errors are shown."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {super().format(record)}"


def configure(verbose: bool) -> None:
    """Set up logging in this process.

    Args:
        verbose: Show the package's steps too, and dlt's warnings.
    """
    # What goes wrong in dlt arrives as an exception; its log would tell it a second time.
    os.environ.setdefault("RUNTIME__LOG_LEVEL", "WARNING" if verbose else "CRITICAL")
    logger = logging.getLogger(_PACKAGE)
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    logger.handlers[:] = [_Stderr()]
    logger.propagate = False


def verbose() -> bool:
    """Whether `configure` was asked for steps."""
    return logging.getLogger(_PACKAGE).isEnabledFor(logging.INFO)


def quiet_airflow() -> None:
    """Take stdout, which Airflow logs to once it is imported, back for what the command has to say."""
    logging.getLogger().handlers[:] = [_Stderr()]
    # Of a connection that it does not find, it logs a traceback for each place that it has looked at.
    logging.getLogger("airflow").setLevel(logging.INFO if verbose() else logging.CRITICAL)
