"""Sources that dlt makes, `rest_api` and `sql_database`: what the rules find in them, without asking them."""

from __future__ import annotations

import json
import sqlite3
import threading
from datetime import UTC, date, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import dlt
import pytest
from dlt.sources import incremental
from dlt.sources.rest_api import rest_api_source
from dlt.sources.sql_database import sql_database, sql_table

from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.engine.preflight import examine
from airflow_provider_backfill.engine.source import SourceSpec

DAYS = [
    Interval(datetime(2024, 1, number, tzinfo=UTC), datetime(2024, 1, number + 1, tzinfo=UTC))
    for number in (1, 2)
]
HOURS = [
    Interval(datetime(2024, 1, 1, hour, tzinfo=UTC), datetime(2024, 1, 1, hour + 1, tzinfo=UTC))
    for hour in (0, 1)
]
EPOCH = datetime(2020, 1, 1, tzinfo=UTC)


def found(source, chunks=DAYS, only=(), **formats):
    """Rule and resource of each finding, sorted, and of each warning."""
    spec = SourceSpec(reference=source, resources=only, cursor_format=formats)
    report = examine(spec, spec.load(), chunks)
    return (
        sorted((finding.rule, finding.resource) for finding in report.findings),
        [(warning.rule, warning.resource) for warning in report.warnings],
    )


# --- rest_api


class Api:
    """A small HTTP server that counts what it is asked for."""

    def __init__(self) -> None:
        api = self
        self.asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                api.asked.append(self.path)
                body = json.dumps([{"id": 1, "at": "2024-01-01T12:00:00Z"}]).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"

    def __enter__(self) -> Api:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def api():
    with Api() as server:
        yield server


def endpoint(path, cursor=None, **hints):
    return {
        "name": path,
        **hints,
        "endpoint": {"path": path, "paginator": "single_page", **({"incremental": cursor} if cursor else {})},
    }


def test_rest_resources_are_looked_at_and_never_asked(api):
    at = {"cursor_path": "at"}
    config: Any = {
        "client": {"base_url": api.url},
        "resources": [
            endpoint("good", {**at, "initial_value": EPOCH, "start_param": "since", "end_param": "until"}),
            endpoint("texts", {**at, "initial_value": "2020-01-01T00:00:00Z"}),
            endpoint("numbers", {**at, "initial_value": 0}),
            endpoint("plain"),
            endpoint("replaced", {**at, "initial_value": EPOCH, "lag": 60.0}, write_disposition="replace"),
            endpoint("keyless", {**at, "initial_value": EPOCH}, write_disposition="merge"),
            endpoint("late", {**at, "initial_value": datetime(2025, 1, 1, tzinfo=UTC)}),
            {
                "name": "in_params",
                "endpoint": {
                    "path": "in_params",
                    "params": {"since": {"type": "incremental", "initial_value": EPOCH, **at}},
                },
            },
            {"name": "below_good", "endpoint": {"path": "good/{resources.good.id}"}},
            {"name": "below_texts", "endpoint": {"path": "texts/{resources.texts.id}"}},
            {"name": "below_plain", "endpoint": {"path": "plain/{resources.plain.id}"}},
        ],
    }

    def make():
        return rest_api_source(config, name="shop")

    refused, warned = found(make)
    assert refused == [
        ("cursor-type", "below_texts"),
        ("cursor-type", "texts"),
        ("cursor-unit", "numbers"),
        ("initial-value", "late"),
        ("keyless-merge", "keyless"),
        ("no-cursor", "below_plain"),
        ("no-cursor", "plain"),
        ("replace", "replaced"),
    ]
    assert warned == [("lag", "replaced")]
    assert found(make, only=("good", "in_params", "below_good")) == ([], [])
    text = "%Y-%m-%dT%H:%M:%SZ"
    assert found(make, only=("texts", "below_texts", "numbers"), texts=text, numbers="epoch_ms") == ([], [])
    assert found(make, chunks=(), only=("late", "numbers"))[0] == [("cursor-unit", "numbers")]
    assert api.asked == []
    # It would have answered.
    assert [row["id"] for row in make().plain] == [1]
    assert [path.partition("?")[0] for path in api.asked] == ["/plain"]


def test_a_date_in_a_rest_endpoint_takes_whole_days(api):
    config: Any = {
        "client": {"base_url": api.url},
        "resources": [endpoint("days", {"cursor_path": "day", "initial_value": date(2020, 1, 1)})],
    }
    assert found(lambda: rest_api_source(config)) == ([], [])
    assert found(lambda: rest_api_source(config), HOURS) == ([("cursor-format", "days")], [])
    assert api.asked == []


# --- sql_database


@pytest.fixture
def database(tmp_path):
    """The URL of a database with two tables, one of them with a primary key."""
    path = tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, updated_at TIMESTAMP, day DATE)")
        connection.execute("CREATE TABLE lines (order_id INTEGER, updated_at TIMESTAMP)")
        connection.execute("INSERT INTO orders VALUES (1, '2024-01-01 12:00:00', '2024-01-01')")
    connection.close()
    return f"sqlite:///{path}"


def updated(initial=datetime(2020, 1, 1), **more):  # noqa: DTZ001
    return incremental("updated_at", initial_value=initial, **more)


@pytest.mark.parametrize("backend", ["sqlalchemy", "pyarrow"])
@pytest.mark.parametrize("deferred", [False, True], ids=["reflected", "deferred"])
def test_a_table_is_bounded_by_its_argument(database, backend, deferred):
    def table(**more):
        return lambda: sql_table(
            database, table="orders", backend=backend, defer_table_reflect=deferred, **more
        )

    assert found(table(incremental=updated())) == ([], [])
    assert found(table(incremental=updated(lag=5.0))) == ([], [("lag", "orders")])
    assert found(table()) == ([("no-cursor", "orders")], [])
    assert found(table(incremental=incremental("updated_at")))[0] == [("cursor-type", "orders")]
    assert found(table(incremental=incremental("id", initial_value=0)))[0] == [("cursor-unit", "orders")]
    ids = [Interval(0, 10), Interval(10, 20)]
    assert found(table(incremental=incremental("id", initial_value=0)), ids) == ([], [])
    days = incremental("day", initial_value=date(2020, 1, 1))
    assert found(table(incremental=days)) == ([], [])
    assert found(table(incremental=days), HOURS)[0] == [("cursor-format", "orders")]


def test_the_key_of_a_table_is_the_databases(database):
    def table(name, **more):
        return lambda: sql_table(
            database, table=name, incremental=updated(), write_disposition="merge", **more
        )

    assert found(table("orders")) == ([], [])
    assert found(table("lines"))[0] == [("keyless-merge", "lines")]
    assert found(table("lines", merge_key="order_id")) == ([], [])
    # What is reflected when the extraction begins is not known before.
    assert found(table("orders", defer_table_reflect=True))[0] == [("keyless-merge", "orders")]


def test_tables_of_a_database_get_their_cursors_later(database):
    def shop(*hinted, step=False, **more):
        def make():
            source = sql_database(database)
            for name in hinted:
                if step:
                    source.resources[name].add_step(updated(**more))
                else:
                    source.resources[name].apply_hints(incremental=updated(**more))
            return source

        return make

    assert found(shop())[0] == [("no-cursor", "lines"), ("no-cursor", "orders")]
    for step in (False, True):
        assert found(shop("orders", step=step))[0] == [("no-cursor", "lines")]
        assert found(shop("orders", step=step), only=("orders",)) == ([], [])
        assert found(shop("orders", "lines", step=step)) == ([], [])
        assert found(shop("orders", step=step, last_value_func=min), only=("orders",))[0] == [
            ("last-value-func", "orders")
        ]


def test_a_transformer_of_a_table_is_bounded_by_it(database):
    def enriched(cursor):
        def make():
            table = sql_table(database, table="orders", incremental=cursor)
            return dlt.transformer(lambda rows: rows, data_from=table, name="enriched")

        return make

    assert found(enriched(updated())) == ([], [])
    assert found(enriched(None))[0] == [("no-cursor", "enriched")]
    assert found(enriched(updated(range_end="closed")))[0] == [("cursor-range", "enriched")]
