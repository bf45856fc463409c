"""Settings shared by the operator and the command."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from airflow_provider_backfill.engine.window import MOST_CHUNKS
from airflow_provider_backfill.exceptions import SettingError

SECTION = "chunked_backfill"

#: More than the databases and the operating system can count as seconds is no use; 31 years.
LONGEST = 1_000_000_000

_WORDS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an installation may tune; every field is an option of Airflow's section ``[chunked_backfill]``.

    Args:
        lease_seconds: How long a claim lives without a renewal, seconds; default 60.
        heartbeat_seconds: How often a running attempt renews its lease, seconds; default 20.
            At most half of the lease, so that one lost renewal does not cost the claim.
        max_chunks: A plan with more chunks has to be confirmed; default 10,000, at most 1,000,000.
        max_estimated_hours: A plan that is estimated to take longer has to be confirmed, hours; default None,
            which lets any pass.
        warn_chunks: A plan with more chunks is warned about; default 1,000.
        wait_timeout_seconds: How long to wait for a chunk that somebody else holds, seconds; default 3,600.
        file_lock_timeout_seconds: How long to wait for a database file that another process has open,
            seconds; default 600.
        work_dir: Where attempts extract to; default ``chunked-backfill-<user id>`` in the system's temporary
            directory, so that no account finds another one's.
        trace: Whether dlt's trace of each load is kept in ``_dlt_trace``; default False.

    Raises:
        SettingError: A number is out of range, or the heartbeat is too slow for the lease.
    """

    lease_seconds: float = 60
    heartbeat_seconds: float = 20
    max_chunks: int = 10_000
    max_estimated_hours: float | None = None
    warn_chunks: int = 1_000
    wait_timeout_seconds: float = 3_600
    file_lock_timeout_seconds: float = 600
    work_dir: str = ""
    trace: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("work_dir", "trace") or value is None:
                continue
            if not value > 0:
                raise SettingError(field.name, value, "must be greater than 0")
            most = MOST_CHUNKS if field.name == "max_chunks" else LONGEST
            if value > most:
                raise SettingError(field.name, value, f"must be at most {most}")
        if self.heartbeat_seconds * 2 > self.lease_seconds:
            raise SettingError(
                "heartbeat_seconds",
                self.heartbeat_seconds,
                f"must be at most half of lease_seconds ({self.lease_seconds:g}), "
                "or one late renewal loses the claim",
            )

    @classmethod
    def read(cls, lookup: Callable[[str], str | None]) -> Settings:
        """Build the settings from option texts; an option that ``lookup`` does not know keeps its default."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            text = lookup(field.name)
            if text is None or not str(text).strip():
                continue
            values[field.name] = _parse(field.name, str(text).strip())
        return cls(**values)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read Airflow's variables, ``AIRFLOW__CHUNKED_BACKFILL__LEASE_SECONDS``, without importing it."""
        variables = os.environ if environ is None else environ
        return cls.read(lambda option: variables.get(f"AIRFLOW__{SECTION.upper()}__{option.upper()}"))

    def confirmed(self) -> Settings:
        """As they are for a plan that somebody has confirmed: nothing has to be confirmed any more."""
        return replace(self, max_chunks=MOST_CHUNKS, max_estimated_hours=None)

    @property
    def work_root(self) -> str:
        return self.work_dir or os.path.join(tempfile.gettempdir(), f"chunked-backfill-{os.getuid()}")


def _parse(option: str, text: str) -> Any:
    if option == "work_dir":
        return text
    if option == "trace":
        # As Airflow reads its own.
        if text.lower() not in _WORDS:
            raise SettingError(option, text, "is neither true nor false")
        return _WORDS[text.lower()]
    kind = int if option.endswith("_chunks") else float
    try:
        return kind(text)
    except ValueError:
        raise SettingError(option, text, f"is not {'a whole' if kind is int else 'a'} number") from None
