"""From an Airflow connection, or a dlt destination, to where a backfill loads to."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill.exceptions import ConnectionTypeError, TargetError
from airflow_provider_backfill.version_compat import BaseHook, mask_secret

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.destinations.base import Target
    from airflow_provider_backfill.version_compat import Connection

#: What the Postgres provider reads from a connection's extra and libpq does not know.
_NOT_LIBPQ = frozenset(
    {
        "aws_conn_id",
        "azure_conn_id",
        "cluster-identifier",
        "cursor",
        "iam",
        "redshift",
        "redshift-serverless",
        "sqlalchemy_query",
        "sqlalchemy_scheme",
        "workgroup-name",
    }
)


class BackfillHook(BaseHook):
    """Turns an Airflow connection into the place where a backfill's data and ledger stand.

    Connection types: ``postgres``; ``duckdb``, whose file is the host or the extra ``database``, as in
    apache-airflow-providers-duckdb; ``dlt``, whose host or extra ``destination`` names a destination of dlt's
    own configuration, which has the credentials; or the name of a dialect of another package, which reads the
    connection's URI.

    The password is registered with Airflow's secrets masker, also as a URL spells it.

    Args:
        conn_id: The Airflow connection; either this or ``destination``.
        dataset_name: The dataset, as people name it.
        destination: Anything that dlt takes as a destination: a URL (``postgresql://…``,
            ``duckdb:///file.duckdb``), the name of a destination, a destination object, or a function that
            returns one. For all but a URL, dlt is imported.
        into: Another dataset of the same database, which stands in for ``dataset_name``; default None.
    """

    conn_name_attr = "conn_id"
    default_conn_name = "dlt_default"
    conn_type = "dlt"
    hook_name = "dlt destination"

    def __init__(
        self,
        *,
        conn_id: str | None = None,
        dataset_name: str,
        destination: Any = None,
        into: str | None = None,
    ) -> None:
        super().__init__()
        self.conn_id = conn_id
        self.dataset_name = dataset_name
        self.destination = destination
        self.into = into

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Reduce the form of a ``dlt`` connection to the one field that it has."""
        return {
            "hidden_fields": ["schema", "login", "password", "port"],
            "relabeling": {"host": "Destination"},
            "placeholders": {"host": "postgres"},
        }

    @cached_property
    def target(self) -> Target:
        """Where to load to.

        Raises:
            ConnectionTypeError: The connection's type leads to no destination.
            DestinationUnsupportedError: The destination cannot carry the ledger.
            TargetError: Neither or both of ``conn_id`` and ``destination`` are given, the destination is not
                configured, or ``into`` is ``dataset_name``.
        """
        if bool(self.conn_id) == (self.destination is not None):
            count = "both" if self.conn_id else "neither"
            raise TargetError(f"{count} of conn_id and destination are given; pass one of them")
        target = (
            self._from_connection(self.conn_id) if self.conn_id else self._from_destination(self.destination)
        )
        for secret in target.secrets():
            mask_secret(secret)
        return self._redirected(target) if self.into else target

    def _redirected(self, target: Target) -> Target:
        from airflow_provider_backfill.engine.targets import redirected

        other = redirected(target, str(self.into))
        self.log.info(
            "redirected into dataset %s; %s is left as it is", other.dataset_name, target.dataset_name
        )
        return other

    def _from_destination(self, destination: Any) -> Target:
        from airflow_provider_backfill.engine.targets import target_from_destination

        if not (isinstance(destination, str) and "://" in destination):
            prepare_dlt()
        return target_from_destination(destination, self.dataset_name)

    def _from_connection(self, conn_id: str) -> Target:
        from airflow_provider_backfill.engine.destinations import dialects
        from airflow_provider_backfill.engine.destinations.features import LACKS, unsupported

        connection = self.get_connection(conn_id)
        kind = connection.conn_type or ""
        makers = {"postgres": self._postgres, "duckdb": self._duckdb, "dlt": self._dlt}
        if kind in makers:
            return makers[kind](connection)
        if kind in dialects():
            return self._by_uri(connection)
        if kind in LACKS:
            raise unsupported(kind)
        raise ConnectionTypeError(conn_id, kind, sorted({*makers, *dialects()}))

    def _by_uri(self, connection: Connection) -> Target:
        from airflow_provider_backfill.engine.targets import target_from_url

        return target_from_url(connection.get_uri(), self.dataset_name)

    def _postgres(self, connection: Connection) -> Target:
        from airflow_provider_backfill.engine.destinations.libpq import libpq_uri
        from airflow_provider_backfill.engine.targets import target_from_url

        extra = connection.extra_dejson
        uri = libpq_uri(
            user=connection.login,
            password=connection.password,
            host=connection.host,
            port=connection.port,
            database=connection.schema,
            options={name: extra[name] for name in extra if name not in _NOT_LIBPQ},
        )
        return target_from_url(uri, self.dataset_name)

    def _duckdb(self, connection: Connection) -> Target:
        from airflow_provider_backfill.engine.targets import target_from_path

        extra = connection.extra_dejson
        path = extra.get("database")
        if not path and (connection.password or extra.get("motherduck_token")):
            from airflow_provider_backfill.engine.destinations.features import unsupported

            raise unsupported("motherduck")
        return target_from_path(path or connection.host or "", self.dataset_name)

    def _dlt(self, connection: Connection) -> Target:
        name = connection.extra_dejson.get("destination") or connection.host
        if not name:
            raise TargetError(
                f"connection {connection.conn_id!r} names no destination; "
                "write its name in dlt's configuration as the host, e.g. postgres"
            )
        return self._from_destination(name)


def prepare_dlt() -> None:
    """Import dlt so that it asks Airflow for secrets alone.

    By itself it asks for a Variable at each of some 700 settings that it looks up in a task. Variables that
    hold secrets, and ``dlt_secrets_toml`` with everything in it, are read as ever. To have the other settings
    looked up too, set ``PROVIDERS__AIRFLOW_SECRETS__ONLY_SECRETS=false``.
    """
    os.environ.setdefault("PROVIDERS__AIRFLOW_SECRETS__ONLY_SECRETS", "true")
    from dlt.common.configuration.container import Container
    from dlt.common.configuration.specs.pluggable_run_context import PluggableRunContext

    # The first look-up sets dlt's providers up. Were it one of a source's, dlt would not find the setting.
    Container()[PluggableRunContext]
