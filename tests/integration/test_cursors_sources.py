"""Real sources: databases, a REST API, nesting, secrets; what each was asked for, and what arrived."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import dlt
import pytest
import sqlalchemy as sa
from dlt.sources.rest_api import rest_api_source
from dlt.sources.sql_database import sql_table

from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.window import ChunkSize, Window
from tests.integration.conftest import duckdb_target, postgres_target
from tests.support.worlds import World

FIRST = datetime(2026, 1, 1)  # noqa: DTZ001
DAYS = 4
IDS = [(n,) for n in range(DAYS * 2)]


def load(world: World, window: Window, chunk: str, **spec: Any) -> list[int]:
    """Run a backfill to its end; the rows of each chunk."""
    backfill = Backfill(
        source=SourceSpec(**spec),
        target=world.target,
        window=window,
        chunk=ChunkSize.parse(chunk),
        settings=world.settings,
    )
    plan = backfill.plan()
    backfill.seed(plan)
    return [outcome.records for outcome in world.run(backfill, plan)]


WINDOW = Window.parse("2026-01-01", "2026-01-05")

#: Column, its type, its cursor type, its format, a value from the naive time in UTC.
COLUMNS: dict[str, tuple[Any, Any, str | None, Any]] = {
    "aware": (sa.DateTime(timezone=True), datetime, None, lambda at: at.replace(tzinfo=UTC)),
    "naive": (sa.DateTime(), datetime, "naive", lambda at: at),
    "naive_berlin": (sa.DateTime(), None, "naive@Europe/Berlin", lambda at: at + timedelta(hours=1)),
    "day": (sa.Date(), date, None, lambda at: at.date()),
    "ms": (sa.BigInteger(), int, "epoch_ms", lambda at: int(at.replace(tzinfo=UTC).timestamp() * 1000)),
    "iso": (sa.Text(), str, "%Y-%m-%dT%H:%M:%SZ", lambda at: at.strftime("%Y-%m-%dT%H:%M:%SZ")),
}


def table(metadata: sa.MetaData) -> sa.Table:
    columns = [sa.Column(name, kind) for name, (kind, *_) in COLUMNS.items()]
    return sa.Table("visits", metadata, sa.Column("id", sa.BigInteger()), *columns)


def fill(engine: sa.Engine) -> None:
    """Two rows a day: its first instant, and one second before its end."""
    times = [
        FIRST + timedelta(days=n) + more
        for n in range(DAYS)
        for more in (timedelta(0), timedelta(hours=23, minutes=59, seconds=59))
    ]
    rows = [
        {"id": n, **{name: value(at) for name, (*_, value) in COLUMNS.items()}} for n, at in enumerate(times)
    ]
    visits = table(sa.MetaData())
    with engine.begin() as connection:
        visits.create(connection)
        connection.execute(visits.insert(), rows)


class Watched:
    """A table as a dlt source, and the conditions that it was read with."""

    def __init__(self, url: str, column: str, backend: str, *, reflected: bool) -> None:
        self.url, self.column, self.backend, self.reflected = url, column, backend, reflected
        self.asked: list[tuple[Any, Any]] = []

    def watch(self, engine: sa.Engine) -> sa.Engine:
        def asked(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
            if "visits" in statement and "WHERE" in statement and f"{self.column} >=" in statement:
                values = parameters.values() if isinstance(parameters, dict) else parameters
                self.asked.append(tuple(values))

        sa.event.listen(engine, "before_cursor_execute", asked)
        return engine

    def source(self) -> Any:
        _, kind, *_ = COLUMNS.get(self.column, (None, int))
        made: Any = dlt.sources.incremental
        cursor = (made[kind] if kind else made)(self.column)
        metadata = sa.MetaData()
        if not self.reflected:
            table(metadata)
        return sql_table(
            credentials=self.url,
            table="visits",
            metadata=metadata,
            incremental=cursor,
            backend=self.backend,  # type: ignore[arg-type]
            engine_adapter_callback=self.watch,
        )


def bounds(column: str) -> list[tuple[Any, Any]]:
    value = COLUMNS[column][-1]
    starts = [value(FIRST + timedelta(days=n)) for n in range(DAYS + 1)]
    return list(pairwise(starts))


def read(world: World, watched: Watched) -> None:
    form = COLUMNS[watched.column][2]
    found = load(
        world,
        WINDOW,
        "1d",
        reference=watched.source,
        name="web_events",
        cursor_format={"visits": form} if form else {},
    )
    assert found == [2] * DAYS
    assert world.query("SELECT id FROM @visits ORDER BY id") == IDS
    assert watched.asked == bounds(watched.column)


@pytest.mark.parametrize("backend", ["sqlalchemy", "pyarrow"])
@pytest.mark.parametrize("column", COLUMNS)
def test_a_postgres_table_to_duckdb(
    postgres_url: str, tmp_path: Path, settings: Settings, column: str, backend: str
) -> None:
    url = postgres_url.replace("postgresql://", "postgresql+psycopg2://")
    engine = sa.create_engine(url)
    fill(engine)
    engine.dispose()
    world = World(duckdb_target(tmp_path / "to.duckdb"), settings)
    read(world, Watched(url, column, backend, reflected=True))


@pytest.mark.parametrize("backend", ["sqlalchemy", "pyarrow"])
@pytest.mark.parametrize("column", COLUMNS)
def test_a_duckdb_table_to_postgres(
    postgres_url: str, tmp_path: Path, settings: Settings, column: str, backend: str
) -> None:
    url = f"duckdb:///{tmp_path / 'from.duckdb'}"
    engine = sa.create_engine(url)
    fill(engine)
    engine.dispose()
    world = World(postgres_target(postgres_url), settings)
    # The driver cannot look a table up under every version of SQLAlchemy.
    read(world, Watched(url, column, backend, reflected=False))


@pytest.mark.parametrize("backend", ["sqlalchemy", "pyarrow"])
def test_a_table_by_its_ids(postgres_url: str, tmp_path: Path, settings: Settings, backend: str) -> None:
    url = postgres_url.replace("postgresql://", "postgresql+psycopg2://")
    engine = sa.create_engine(url)
    fill(engine)
    engine.dispose()
    world = World(duckdb_target(tmp_path / "to.duckdb"), settings)
    watched = Watched(url, "id", backend, reflected=True)
    window = Window.parse(0, 10)
    assert load(world, window, "3", reference=watched.source, name="web_events") == [3, 3, 2, 0]
    assert world.query("SELECT id FROM @visits ORDER BY id") == IDS
    assert watched.asked == [(0, 3), (3, 6), (6, 9), (9, 10)]


# A REST API that pages


class Api(BaseHTTPRequestHandler):
    """Orders by the second since 1970, two a page; each has lines of its own under another path."""

    rows: list[dict[str, Any]]
    asked: list[str]

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        query = {name: int(values[0]) for name, values in parse_qs(address.query).items()}
        self.asked.append(self.path)
        if address.path.endswith("/lines"):
            order = int(address.path.split("/")[2])
            return self.answer([{"order": order, "line": n} for n in range(2)])
        found = [row for row in self.rows if query["since"] <= row["at"] < query["until"]]
        offset = query.get("offset", 0)
        self.answer({"total": len(found), "orders": found[offset : offset + query["limit"]]})
        return None

    def answer(self, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@contextmanager
def served(rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    handler = type("Served", (Api,), {"rows": rows, "asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


ORDERS = {
    "name": "orders",
    "endpoint": {
        "path": "orders",
        "data_selector": "orders",
        "params": {"since": "{incremental.start_value}", "until": "{incremental.end_value}"},
        "incremental": {"cursor_path": "at", "initial_value": 0},
        "paginator": {"type": "offset", "limit": 2, "total_path": "total"},
    },
}
LINES = {
    "name": "lines",
    "endpoint": {"path": "orders/{resources.orders.id}/lines", "paginator": "single_page"},
}


@pytest.mark.parametrize("resources", [("orders",), ("lines",), ("lines", "orders")])
def test_a_rest_api_is_asked_for_the_pages_of_the_chunk_alone(
    target: Target, settings: Settings, resources: tuple[str, ...]
) -> None:
    start = int(FIRST.replace(tzinfo=UTC).timestamp())
    rows = [{"id": n, "at": start + n * 28_800} for n in range(DAYS * 3)]
    world = World(target, settings)
    with served(rows) as (address, asked):

        def source() -> Any:
            config = {"client": {"base_url": address}, "resources": [ORDERS, LINES]}
            return rest_api_source(config, name="web_events")  # type: ignore[arg-type]

        found = load(
            world,
            WINDOW,
            "1d",
            reference=source,
            resources=resources,
            cursor_format={"orders": "epoch_s"},
        )
    each = 3 * ("orders" in resources) + 6 * ("lines" in resources)
    assert found == [each] * DAYS
    if "orders" in resources:
        assert world.query("SELECT id FROM @orders ORDER BY id") == [(n,) for n in range(12)]
    if "lines" in resources:
        assert world.query('SELECT count(*), count(DISTINCT "order") FROM @lines') == [(24, 12)]
    pages = [parse_qs(urlsplit(path).query) for path in asked if path.startswith("/orders?")]
    assert [(int(page["since"][0]), int(page["until"][0]), int(page["offset"][0])) for page in pages] == [
        (start + n * 86_400, start + (n + 1) * 86_400, offset) for n in range(DAYS) for offset in (0, 2)
    ]


def test_a_rest_api_with_start_and_end_parameters(target: Target, settings: Settings) -> None:
    """The older way to say it: ``start_param`` and ``end_param``."""
    start = int(FIRST.replace(tzinfo=UTC).timestamp())
    rows = [{"id": n, "at": start + n * 86_400} for n in range(DAYS)]
    incremental = {
        "cursor_path": "at",
        "initial_value": 0,
        "start_param": "since",
        "end_param": "until",
    }
    endpoint = {**ORDERS["endpoint"], "params": {}, "incremental": incremental}  # type: ignore[dict-item]
    world = World(target, settings)
    with served(rows) as (address, asked):

        def source() -> Any:
            config = {
                "client": {"base_url": address},
                "resources": [{"name": "orders", "endpoint": endpoint}],
            }
            return rest_api_source(config, name="web_events")  # type: ignore[arg-type]

        found = load(world, WINDOW, "1d", reference=source, cursor_format={"*": "epoch_s"})
    assert found == [1] * DAYS
    assert [parse_qs(urlsplit(path).query)["since"][0] for path in asked] == [
        str(start + n * 86_400) for n in range(DAYS)
    ]


# Nesting, arguments and secrets


def test_three_levels_of_nesting(target: Target, settings: Settings) -> None:
    @dlt.resource(name="carts")
    def carts(at: Any = dlt.sources.incremental("at", initial_value="2020")) -> Any:
        for n in range(DAYS):
            moment = (FIRST + timedelta(days=n, hours=5)).strftime("%Y-%m-%d %H:%M:%S")
            parts = [{"part": p, "tags": [{"tag": t} for t in "ab"]} for p in range(2)]
            yield {"id": n, "at": moment, "items": [{"sku": s, "parts": parts} for s in range(2)]}

    world = World(target, settings)
    found = load(
        world, WINDOW, "1d", reference=carts, name="web_events", cursor_format={"*": "%Y-%m-%d %H:%M:%S"}
    )
    assert found == [1 + 2 + 4 + 8] * DAYS
    for table_name, count in (("items", 2), ("items__parts", 4), ("items__parts__tags", 8)):
        assert world.query(f"SELECT count(*) FROM @carts__{table_name}") == [(count * DAYS,)]


def test_a_source_with_arguments_and_a_secret(
    target: Target, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str, Any]] = []

    @dlt.source(name="web_events")
    def shop(region: str, api_key: str = dlt.secrets.value) -> Any:
        @dlt.resource
        def orders(at: Any = dlt.sources.incremental("at", initial_value=0)) -> Any:
            asked.append((region, api_key, at.start_value))
            start = int(FIRST.replace(tzinfo=UTC).timestamp()) * 1000
            yield [{"id": n, "at": start + n * 86_400_000} for n in range(DAYS)]

        return orders

    monkeypatch.setenv("WEB_EVENTS__API_KEY", "hush")
    monkeypatch.setenv("SOURCES__API_KEY", "hush")
    world = World(target, settings)
    found = load(
        world,
        Window.parse("2026-01-01", "2026-01-03"),
        "1d",
        reference=shop,
        arguments={"region": "eu"},
        cursor_format={"*": "epoch_ms"},
    )
    assert found == [1, 1]
    assert asked == [("eu", "hush", 1_767_225_600_000), ("eu", "hush", 1_767_312_000_000)]
