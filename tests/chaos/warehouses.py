"""A fresh database a scenario: a copy of one that the forward pipeline had loaded into, or an empty one."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.engine.targets import target_from_url
from tests.chaos import source
from tests.chaos.actors import in_child
from tests.support.postgres import Postgres

Table = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What the forward pipeline left in a dataset.

    Args:
        bookmark: All of ``_dlt_pipeline_state``.
        load_ids: All of ``_dlt_loads``.
    """

    bookmark: Table
    load_ids: frozenset[str]


NOTHING = Before(bookmark=[], load_ids=frozenset())


@dataclass(frozen=True, slots=True)
class Site:
    """One scenario's database.

    Args:
        url: Where it is.
        before: What it holds at the start.
    """

    url: str
    before: Before

    @property
    def port(self) -> int:
        """Of the server."""
        return urlsplit(self.url).port or 0

    def through(self, port: int) -> Site:
        """The same database by way of a proxy."""
        return replace(self, url=self.url.replace(f":{self.port}/", f":{port}/"))

    @property
    def target(self) -> Target:
        return target_from_url(self.url, source.DATASET)


class Warehouse(ABC):
    """Makes databases of one kind.

    Args:
        home: A directory for files and logs.
    """

    name: str

    def __init__(self, home: Path) -> None:
        self._home = home
        self._templates: dict[str, tuple[str, Before]] = {}
        home.mkdir(parents=True, exist_ok=True)

    def open(self, name: str, disposition: str, dataset: str) -> Site:
        """A database called ``name``.

        Args:
            name: Fresh in this warehouse.
            disposition: A key of `source.DISPOSITIONS`.
            dataset: ``forward`` or ``empty``.
        """
        if dataset == "empty":
            return Site(self._create(name, None), NOTHING)
        if disposition not in self._templates:
            template = f"template_{disposition}"
            url = self._create(template, None)
            before = in_child(lambda: load_forward(url, disposition, self._home), self._home / "forward.log")
            self._templates[disposition] = template, before
        template, before = self._templates[disposition]
        return Site(self._create(name, template), before)

    @abstractmethod
    def _create(self, name: str, template: str | None) -> str:
        """Make a database, empty or as the template, and return its URL."""

    @abstractmethod
    def drop(self, site: Site) -> None: ...

    def close(self) -> None:  # noqa: B027 - a file needs no closing
        """Stop what runs."""


class DuckdbWarehouse(Warehouse):
    """One file a scenario."""

    name = "duckdb"

    def _path(self, name: str) -> Path:
        return self._home / f"{name}.duckdb"

    def _create(self, name: str, template: str | None) -> str:
        if template:
            shutil.copy(self._path(template), self._path(name))
        return f"duckdb:///{self._path(name)}"

    def drop(self, site: Site) -> None:
        for suffix in ("", ".wal"):
            Path(site.target.credentials + suffix).unlink(missing_ok=True)


class PostgresWarehouse(Warehouse):
    """One database a scenario, on a server of this warehouse's own, which scenarios may crash."""

    name = "postgres"

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.server = Postgres().start()

    def _create(self, name: str, template: str | None) -> str:
        copied = f' TEMPLATE "{template}"' if template else ""
        self.server.execute(f'CREATE DATABASE "{name}"{copied}')
        return self.server.url(name)

    def drop(self, site: Site) -> None:
        self.server.drop_database(site.url)

    def query(self, site: Site, sql: str, parameters: Sequence[Any] = ()) -> Table:
        """Ask about a scenario's database, from another one."""
        return self.server.execute(sql, parameters)

    def close(self) -> None:
        self.server.stop()


def load_forward(url: str, disposition: str, home: Path) -> Before:
    """Run the forward pipeline into an empty database, as a daily job had done."""
    import dlt

    target = target_from_url(url, source.DATASET)
    pipeline = dlt.pipeline(
        "web_forward",
        pipelines_dir=str(home / f"forward_{disposition}_{os.getpid()}"),
        destination=target.dialect.destination(target, plain=True),
        dataset_name=source.DATASET,
    )
    pipeline.run(source.web_events(disposition, since=source.FORWARD.isoformat()))
    pipeline.deactivate()
    with target.connect(30) as session:
        return Before(
            bookmark=read_bookmark(session.execute),
            load_ids=frozenset(
                str(load_id)
                for (load_id,) in session.execute(f"SELECT load_id FROM {source.DATASET}._dlt_loads")
            ),
        )


def read_bookmark(execute: Any) -> Table:
    """Every row of ``_dlt_pipeline_state``, in an order of its own."""
    rows = execute(f"SELECT * FROM {source.DATASET}._dlt_pipeline_state ORDER BY version, _dlt_id")
    return [tuple(row) for row in rows]
