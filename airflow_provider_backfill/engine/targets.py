"""From what people name a destination by, such as a URL or dlt's name of it, to a :class:`Target`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill._text import line, shown
from airflow_provider_backfill.engine.destinations import dialect_for, dialect_for_url
from airflow_provider_backfill.engine.destinations.base import Dialect, Target
from airflow_provider_backfill.engine.destinations.duckdb import absolute
from airflow_provider_backfill.engine.destinations.features import unsupported
from airflow_provider_backfill.exceptions import TargetError

if TYPE_CHECKING:
    from dlt.common.destination import Destination

#: What every naming convention of dlt leaves as it is.
_PLAIN_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
#: The shortest limit on a schema's name among the supported databases, that of PostgreSQL.
_PLAIN_LENGTH = 63


def target_from_url(url: str, dataset_name: str) -> Target:
    """The target that a URL spells.

    Args:
        url: ``postgresql://user:password@host/db``, ``duckdb:///file.duckdb`` or ``duckdb:////abs/file.duckdb``.
        dataset_name: The dataset as people name it.

    Raises:
        DestinationUnsupportedError: No dialect knows the URL's scheme, or it names no file.
        TargetError: The dataset's name is none.
    """
    dialect = dialect_for_url(url)
    return _target(dialect, dialect.read_url(url), dataset_name)


def target_from_path(path: str, dataset_name: str) -> Target:
    """The target for a DuckDB file, relative to the working directory; raises as `target_from_url` does."""
    return _target(dialect_for("duckdb"), absolute(path), dataset_name)


def target_from_destination(
    destination: str | Destination[Any, Any] | Callable[..., Destination[Any, Any]], dataset_name: str
) -> Target:
    """The target for anything that dlt takes as a destination; for all but a URL it imports dlt.

    Args:
        destination: A URL, the name of a destination that dlt's configuration knows (``postgres``,
            ``duckdb``, or one of the user's), a destination object, or a function that returns one.
        dataset_name: The dataset as people name it.

    Raises:
        DestinationUnsupportedError: It cannot carry the ledger.
        TargetError: dlt's configuration does not complete it, or the dataset's name is none.
    """
    if isinstance(destination, str) and "://" in destination:
        return target_from_url(destination, dataset_name)
    found = _dlt_destination(destination)
    dialect = dialect_for(found.destination_type.rpartition(".")[2])
    config = _configured(found, dataset_name)
    credentials = dialect.read_config(config)
    if not getattr(config, "enable_dataset_name_normalization", True):
        return _target(dialect, credentials, dataset_name, found, physical=dataset_name)
    return _target(dialect, credentials, dataset_name, found)


def redirected(target: Target, into: str) -> Target:
    """The same database with another dataset, for a backfill that is to be looked at first.

    Args:
        target: Where the backfill belongs.
        into: The other dataset, as people name it.

    Raises:
        TargetError: It is the same dataset, or the name is none.
    """
    if target.destination is None:
        other = replace(target, dataset_name=physical_dataset_name(into, target.dialect))
    else:
        other = target_from_destination(target.destination, into)
    if other.dataset_name == target.dataset_name:
        raise TargetError(
            f"into {shown(into)} is the dataset that the backfill belongs to; "
            "pass another name, or leave it out to load there"
        )
    return other


def physical_dataset_name(
    dataset_name: str, dialect: Dialect, destination: Destination[Any, Any] | None = None
) -> str:
    """The dataset's name as dlt spells it in the database; most names stay, and then dlt is not imported.

    Args:
        dataset_name: The dataset as people name it.
        dialect: The database.
        destination: A dlt destination configured by the user, if there is one.

    Raises:
        TargetError: The name is empty, or nothing is left of it.
    """
    if not isinstance(dataset_name, str) or not dataset_name.strip():
        raise TargetError(f"dataset_name {shown(dataset_name)} is empty; pass the dataset to load into")
    if len(dataset_name) <= _PLAIN_LENGTH and _PLAIN_NAME.fullmatch(dataset_name):
        return dataset_name
    from dlt.common.schema import Schema

    naming = Schema("backfill").naming
    limit = (destination or dialect.build_destination("")).capabilities().max_identifier_length
    return type(naming)(max_length=limit).normalize_table_identifier(dataset_name)


def _target(
    dialect: Dialect,
    credentials: str,
    dataset_name: str,
    destination: Any = None,
    *,
    physical: str | None = None,
) -> Target:
    return Target(
        dialect=dialect,
        credentials=credentials,
        dataset_name=physical or physical_dataset_name(dataset_name, dialect, destination),
        destination=destination,
    )


def _dlt_destination(destination: Any) -> Destination[Any, Any]:
    from dlt.common.destination import Destination
    from dlt.common.destination.exceptions import InvalidDestinationReference, UnknownDestinationModule

    if callable(destination):
        destination = destination()
    if isinstance(destination, Destination):
        return destination
    if not isinstance(destination, str):
        raise unsupported(type(destination).__name__, because="it is no dlt destination")
    try:
        found = Destination.from_reference(destination)
    except (InvalidDestinationReference, UnknownDestinationModule):
        found = None
    if found is None:
        raise unsupported(destination, because="dlt does not know it")
    return found


def _configured(destination: Destination[Any, Any], dataset_name: str) -> Any:
    """The destination's configuration, completed from dlt's own sources of it."""
    from dlt.common.configuration.exceptions import ConfigFieldMissingException
    from dlt.common.exceptions import DltException
    from dlt.dataset.utils import get_destination_client_initial_config

    name = destination.destination_name
    try:
        return destination.configuration(get_destination_client_initial_config(destination, dataset_name))
    except ConfigFieldMissingException as error:
        reason = f"dlt's configuration lacks its {', '.join(error.fields)}"
    except (DltException, RuntimeError, ValueError) as error:
        reason = line(error)
    raise TargetError(
        f"destination {shown(name)} is not configured: {reason}; set "
        f"DESTINATION__{name.upper()}__CREDENTIALS or write secrets.toml for dlt, "
        "or pass a URL or an Airflow connection"
    )
