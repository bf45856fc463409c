"""What the engine asks of a database, and where a backfill loads to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import quote, unquote, urlsplit

from airflow_provider_backfill._text import shown
from airflow_provider_backfill.engine.queries import bind
from airflow_provider_backfill.exceptions import TargetError

LEDGER_TABLE = "_dlt_backfills"

#: How long a transaction that holds a lock may think before its next statement, seconds.
IDLE_SECONDS = 60.0


class Session(ABC):
    """One open connection of a driver, spoken to with ``:name`` parameters.

    Args:
        native: The driver's connection.
    """

    mark: ClassVar[str]

    def __init__(self, native: Any) -> None:
        self.native = native
        #: How long each statement may take, seconds; None for as long as it takes.
        self.patience: float | None = None

    def execute(self, statement: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows; none for a statement that returns none."""
        text, names = bind(statement, self.mark)
        return self._execute(text, {name: (parameters or {})[name] for name in names})

    @abstractmethod
    def _execute(self, text: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Commit at the end of the block, roll back when it raises."""


class Dialect(ABC):
    """Everything that differs between databases. Stateless; one subclass a database.

    `features.Feature` says what the database must have; ``airflow_provider_backfill.testing`` shows it.
    """

    #: The name dlt knows the destination by.
    name: ClassVar[str]
    #: URL schemes that mean this database.
    schemes: ClassVar[tuple[str, ...]]
    #: Spellings that ``sql/ledger.sql`` leaves to the dialect.
    fragments: ClassVar[Mapping[str, str]]
    session_class: ClassVar[type[Session]]
    #: The load-file format an attempt writes, if this is not dlt's own choice.
    loader_file_format: ClassVar[str | None] = None
    #: One process at a time has the database open, so that dlt must share the engine's connection.
    single_process: ClassVar[bool] = False
    #: What tells the rows of a table that nobody else changes, in the order in which they came, and its type.
    row_id: ClassVar[tuple[str, str]]

    @abstractmethod
    def connect(
        self, target: Target, wait_seconds: float, *, read_only: bool = False
    ) -> AbstractContextManager[Session]:
        """Open a connection, waiting for an exclusive one at most ``wait_seconds``.

        With ``read_only`` the database itself refuses to write.

        Raises:
            LedgerBusyError: Another process kept the database to itself for longer.
            LedgerUnreachableError: The database does not answer or refuses the login.
        """

    @abstractmethod
    def lock(
        self, session: Session, key: str, *, shared: bool = False, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        """Take the lock ``key`` until the end of the transaction.

        Where the database can, it ends a transaction that sends nothing for ``idle_seconds`` from then on:
        the machine at its other end may be gone, and others wait for the lock.
        """

    def limit_statements(self, session: Session, seconds: float) -> None:  # noqa: B027 - for most, none waits
        """End each further statement of the transaction that takes longer, for whoever cannot wait."""

    def exists(self, target: Target) -> bool:
        """Whether there is a database to look into, where connecting would make an empty one."""
        return True

    def quote(self, identifier: str) -> str:
        return '"' + identifier.replace('"', '""') + '"'

    @abstractmethod
    def schemas(self, session: Session, prefix: str) -> list[str]:
        """Names of the schemas that begin with ``prefix``."""

    @abstractmethod
    def table_columns(self, session: Session, schema: str, table: str) -> list[str]:
        """The table's column names in order; empty when there is no such table."""

    def tables(self, session: Session, schema: str, prefix: str) -> list[str]:
        """Names of the schema's tables that begin with ``prefix``."""
        rows = session.execute(
            "SELECT table_name FROM information_schema.tables"
            " WHERE table_schema = :schema AND starts_with(table_name, :prefix) ORDER BY table_name",
            {"schema": schema, "prefix": prefix},
        )
        return [str(name) for (name,) in rows]

    @abstractmethod
    def row_as_json(self, alias: str, columns: Mapping[str, str], nested: Mapping[str, str]) -> str:
        """An expression for a whole row as JSON.

        Args:
            alias: What the table is called in the query.
            columns: Its columns, quoted, and dlt's types of them.
            nested: Further keys, as literals, and expressions for JSON lists, null for an empty one.
        """

    @abstractmethod
    def list_as_json(self, rows: str, order: str) -> str:
        """An aggregate that makes a JSON list of JSON ``rows``, sorted by the expression ``order``."""

    @abstractmethod
    def build_destination(self, credentials: str) -> Any:
        """A dlt destination for what :meth:`connect` takes."""

    def destination(
        self, target: Target, native: Any | None = None, *, plain: bool = False, **options: Any
    ) -> Any:
        """The dlt destination of an attempt.

        Args:
            target: What it loads to; a destination that the user configured keeps its configuration.
            native: An open connection to share, where only one process may have the database open.
            plain: Leave the format of load files to dlt.
            options: Configuration on top.
        """
        destination = copy(target.destination or self.build_destination(target.credentials))
        destination.config_params = {**destination.config_params, **options}
        if native is not None:
            destination.config_params["credentials"] = native
        if self.loader_file_format and not plain:
            formats = {"preferred_loader_file_format": self.loader_file_format}
            destination.caps_params = {**formats, **destination.caps_params}
        return destination

    def prepare_client(self, client: Any) -> None:  # noqa: B027 - most databases need nothing
        """Change dlt's client before it connects."""

    def merge_job(self) -> Any:
        """The dlt job that generates the SQL of a merge."""
        from dlt.destinations.sql_jobs import SqlMergeFollowupJob

        return SqlMergeFollowupJob

    def check(self, target: Target) -> None:  # noqa: B027 - most databases refuse none
        """Refuse what the database cannot have as a target, before it is opened.

        Raises:
            TargetError: For example a name that the database would take for something else.
        """

    def passwords(self, credentials: str) -> Sequence[str]:
        """The passwords in what :meth:`connect` takes, so that no text shows them; default that of a URL."""
        with suppress(ValueError):
            if found := urlsplit(credentials).password:
                return (found, unquote(found))
        return ()

    def address(self, credentials: str) -> tuple[str, str] | None:
        """The database's place and name, as OpenLineage spells them: a namespace, the first part of a name.

        None, the default, leaves the tables out of lineage.
        """
        return None

    def read_url(self, url: str) -> str:
        """The credentials that ``url`` spells, as :meth:`connect` takes them."""
        return url

    def read_config(self, config: Any) -> str:
        """Likewise those of a dlt destination's configuration, which dlt has completed."""
        return str(config.credentials.to_native_representation())

    @contextmanager
    def exclusive(self, target: Target) -> Iterator[None]:
        """Keep other threads of this process out, where the database does not do so itself."""
        yield

    def drop_schema(self, session: Session, schema: str) -> None:
        session.execute(f"DROP SCHEMA IF EXISTS {self.quote(schema)} CASCADE")

    def create_schema(self, session: Session, schema: str) -> None:
        session.execute(f"CREATE SCHEMA IF NOT EXISTS {self.quote(schema)}")

    def is_conflict(self, error: BaseException) -> bool:
        """Whether the database ended this transaction in favour of another one; it may be tried again."""
        return False

    def is_timeout(self, error: BaseException) -> bool:
        """Whether a statement took longer than `limit_statements` allows; for most, none does."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a backfill loads to, and where its ledger stands.

    Args:
        dialect: The database's dialect.
        credentials: What the driver connects with: a libpq URI, or the path of a DuckDB file. Never shown.
        dataset_name: The dataset, as dlt names it physically.
        destination: A dlt destination configured by the user; None builds one from the credentials.
    """

    dialect: Dialect
    credentials: str = field(repr=False)
    dataset_name: str
    destination: Any = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Statements mark their parameters with them.
        if set(self.dataset_name) & set(":%"):
            raise TargetError(
                f"dataset_name {shown(self.dataset_name)} has a : or a % in it; pass another name"
            )
        self.dialect.check(self)

    def connect(self, wait_seconds: float, *, read_only: bool = False) -> AbstractContextManager[Session]:
        return self.dialect.connect(self, wait_seconds, read_only=read_only)

    def exists(self) -> bool:
        """Whether there is a database to look into, where connecting would make an empty one."""
        return self.dialect.exists(self)

    @property
    def ledger(self) -> str:
        """The ledger's qualified and quoted name."""
        return self.table(LEDGER_TABLE)

    def table(self, name: str) -> str:
        """A table's qualified and quoted name."""
        return f"{self.dialect.quote(self.dataset_name)}.{self.dialect.quote(name)}"

    def redact(self, text: str) -> str:
        """Blank the password out of a text, as it is and as a URL spells it."""
        for secret in self.secrets():
            text = text.replace(secret, "***")
        return text

    def secrets(self) -> Sequence[str]:
        """Every spelling of the password, the longest first; none if there is no password."""
        spellings = {
            spelling
            for password in self.dialect.passwords(self.credentials)
            for plain in (password, unquote(password))
            for spelling in (plain, quote(plain, safe=""), quote(plain))
        }
        return sorted(spellings, key=len, reverse=True)
