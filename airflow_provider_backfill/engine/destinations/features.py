"""What a destination must have to carry the ledger, and the one refusal of those that do not."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from importlib.metadata import entry_points

from airflow_provider_backfill.exceptions import DestinationUnsupportedError

#: Other packages offer a `Dialect` subclass under this group, by the name that dlt gives the destination.
ENTRY_POINT_GROUP = "airflow_provider_backfill.dialects"


class Feature(StrEnum):
    """What the ledger needs of the database that it stands in."""

    TRANSACTIONS = "transactions that span datasets"
    KEYS = "unique keys that it enforces"
    LOCKS = "locks that last until a transaction ends"
    SHARED = "a database that other processes can open"


_NO_DATABASE = (Feature.TRANSACTIONS, Feature.KEYS, Feature.LOCKS)
_KEYS_AND_LOCKS = (Feature.KEYS, Feature.LOCKS)
#: They take the declaration of a key, and leave it to whoever writes to keep it.
_KEYS_ARE_NOTES = (Feature.KEYS,)

#: What destinations of dlt's are known to lack, by their own manuals. Any other may need a dialect alone.
LACKS: Mapping[str, tuple[Feature, ...]] = {
    "athena": _NO_DATABASE,
    "bigquery": _KEYS_AND_LOCKS,
    "clickhouse": _NO_DATABASE,
    "databricks": _KEYS_AND_LOCKS,
    "destination": _NO_DATABASE,
    "dremio": _NO_DATABASE,
    "ducklake": _KEYS_AND_LOCKS,
    "dummy": _NO_DATABASE,
    "fabric": _KEYS_ARE_NOTES,
    "filesystem": _NO_DATABASE,
    "lance": _NO_DATABASE,
    "lancedb": _NO_DATABASE,
    "qdrant": _NO_DATABASE,
    "redshift": _KEYS_ARE_NOTES,
    "snowflake": _KEYS_ARE_NOTES,
    "synapse": _KEYS_ARE_NOTES,
    "weaviate": _NO_DATABASE,
}


def offered() -> tuple[str, ...]:
    """The destinations that can carry the ledger, as people are told of them; loads no dialect."""
    others = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)} - {"duckdb", "postgres"}
    return ("duckdb (a file)", "postgres", *sorted(others))


def unsupported(destination: str, *lacks: Feature, because: str = "") -> DestinationUnsupportedError:
    """The refusal of a destination.

    Args:
        destination: What people call it.
        lacks: What it lacks; default what `LACKS` has, else all, for want of a dialect that says otherwise.
        because: More about it, for example that dlt does not know it; default nothing.
    """
    known = lacks or LACKS.get(destination, ())
    return DestinationUnsupportedError(
        destination=destination,
        missing=tuple(map(str, known or Feature)),
        supported=offered(),
        reason="it lacks" if known else "no dialect shows that it has",
        detail=because,
    )
