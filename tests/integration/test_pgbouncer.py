"""A backfill through pgbouncer in transaction mode, which gives each transaction another connection."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import dlt
import psycopg2
import pytest

from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.runner import Outcome, this_claimant
from airflow_provider_backfill.engine.settings import Settings
from tests.integration.conftest import postgres_target
from tests.support.commands import BACKFILL_ID, Site
from tests.support.crowds import crowd
from tests.support.ledgers import opened, plan, sql, take
from tests.support.pgbouncer import PgBouncer, PgBouncerUnavailableError, pooled_database
from tests.support.postgres import Postgres
from tests.support.sources import day, events, source_of
from tests.support.worlds import IDS, ITEMS, World

FIVE = [(number, number * 10) for number in range(1, 6)]

#: What changes a connection for whoever gets it next; pgbouncer itself sets what it keeps for each client.
_SESSION = re.compile(
    r"statement:\s+(DISCARD|RESET|PREPARE|LISTEN|SET\s+(?!LOCAL|client_encoding|datestyle|timezone"
    r"|standard_conforming_strings|application_name))"
    r"|search_path|default_transaction|WITH\s+HOLD|pg_(try_)?advisory_lock",
    re.IGNORECASE,
)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A server of this module's own, whose log begins each entry with the database."""
    with Postgres(settings={"log_line_prefix": "%d "}) as server:
        yield server


@pytest.fixture(scope="module")
def bouncer(server: Postgres) -> Iterator[PgBouncer]:
    """A pooler with the connections that the manual asks for: one more than attempts at once."""
    with ExitStack() as stack:
        try:
            pooler = stack.enter_context(PgBouncer(server, settings={"default_pool_size": "5"}))
        except PgBouncerUnavailableError as error:
            pytest.skip(str(error))
        yield pooler


@dataclass(frozen=True, slots=True)
class Database:
    """An empty one: by way of the pooler, and past it."""

    pooled: Target
    direct: Target
    server: Postgres

    def one(self, statement: str) -> object:
        [(value,)] = sql(self.direct, statement)
        return value

    def assert_nothing_is_left(self) -> None:
        """The connections that the pooler keeps hold no lock, no transaction and no table."""
        here = "SELECT oid FROM pg_database WHERE datname = current_database()"
        assert (
            self.one(f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = ({here})")
            == 0
        )
        pooled = "datname = current_database() AND pid <> pg_backend_pid()"
        assert self.one(f"SELECT count(*) FROM pg_stat_activity WHERE {pooled}") > 0  # type: ignore[operator]
        assert (
            sql(self.direct, f"SELECT state, query FROM pg_stat_activity WHERE {pooled} AND state <> 'idle'")
            == []
        )
        assert sql(self.direct, "SELECT relname FROM pg_class WHERE relpersistence = 't'") == []
        name = self.direct.credentials.partition("?")[0].rpartition("/")[2]
        entries = re.split(r"^(?=\S+ [A-Z]+: )", self.server.log, flags=re.MULTILINE)
        said = [entry for entry in entries if entry.startswith(f"{name} LOG:  statement: ")]
        assert any("pg_advisory_xact_lock" in entry for entry in said)
        assert [entry for entry in said if _SESSION.search(entry)] == []


@pytest.fixture
def database(server: Postgres, bouncer: PgBouncer) -> Iterator[Database]:
    with pooled_database(server, bouncer) as (pooled, direct):
        name = direct.rpartition("/")[2]
        # Connections past the pooler are the test's own.
        server.execute(f"ALTER DATABASE \"{name}\" SET log_statement = 'all'")
        quiet = f"{direct}?options=-c%20log_statement%3Dnone"
        yield Database(postgres_target(pooled), postgres_target(quiet), server)


@pytest.fixture
def site(tmp_path: Path, database: Database) -> Site:
    return Site(home=tmp_path / "home", target=database.pooled)


def test_the_pooler_refuses_what_dlt_sends_by_itself(database):
    """Without this the tests below would prove nothing; a pgbouncer of another make may take it."""
    with pytest.raises(psycopg2.OperationalError, match="unsupported startup parameter"):
        psycopg2.connect(database.pooled.credentials, options="-csearch_path=web_raw,public")
    pipeline = dlt.pipeline("pooled", destination=dlt.destinations.postgres(database.pooled.credentials))
    with pytest.raises(Exception, match="unsupported startup parameter"), pipeline.sql_client() as client:
        client.execute_sql("SELECT 1")


@pytest.mark.parametrize("workers", ["1", "4"])
def test_the_command_runs_through_it(site, database, workers):
    site.quickly("plan")
    done = site.backfill("run", "--concurrency", workers)
    assert done.err == []
    assert done.out[-1] == f"Backfill {BACKFILL_ID}: 5 completed, 0 skipped, 0 claimed elsewhere (5 chunks)"
    assert site.loaded() == FIVE
    assert [row.attempt for row in site.rows()] == [1] * 5
    assert site.invoke("status", *site.place).out[1:] != []
    assert site.stages() == []
    database.assert_nothing_is_left()


def test_a_failed_chunk_is_given_back_and_a_held_one_released_through_it(site, database):
    site.tell("broken")
    site.quickly("run", code=1)
    assert site.statuses() == ["completed", "completed", "failed", "pending", "pending"]
    with opened(site.target) as ledger:
        take(ledger, plan(), 2)
    site.invoke("release", *site.place, "--all", "--yes")
    site.untell("broken")
    site.quickly("run")
    assert site.loaded() == FIVE
    database.assert_nothing_is_left()


def merged() -> dlt.sources.DltSource:
    """Each day's row with its nested ones, and a new version of row 1 every day."""
    rows = events(4)
    rows += [{**rows[0], "at": day(number, 13), "order": 100 + number} for number in (2, 3, 4)]
    return source_of(
        rows, write_disposition="merge", primary_key="id", columns={"order": {"dedup_sort": "desc"}}
    )()


appended = source_of(events(4))


def _chunk(number: int, barrier: object, backfill: Backfill, backfill_id: str) -> Outcome:
    barrier.wait(60)  # type: ignore[attr-defined]
    return backfill.runner.run_chunk(backfill_id, f"{number:06d}", this_claimant())


@pytest.mark.parametrize("disposition", ["append", "merge"])
def test_four_attempts_at_once_pass_through_it(database, settings: Settings, disposition):
    world = World(database.pooled, settings)
    name = "merged" if disposition == "merge" else "appended"
    backfill, made = world.seeded(f"{__name__}:{name}", days=4)
    with crowd(4) as processes:
        outcomes = processes.run(_chunk, backfill, made.backfill_id)
    assert [outcome.loaded for outcome in outcomes] == [True] * 4
    rows = world.query(IDS)
    assert [number for number, _ in rows] == [1, 2, 3, 4]
    if disposition == "append":
        assert rows == FIVE[:4]
    else:
        assert rows[0][1] in {10, 102, 103, 104}
    assert world.query(ITEMS) == [(1, 2), (2, 2), (3, 2), (4, 2)]
    assert world.query("SELECT count(*) FROM @events__items") == [(8,)]
    assert world.leftovers() == []
    database.assert_nothing_is_left()


def test_what_others_left_in_a_connection_does_no_harm(database, settings):
    """``SET`` outlives its client in this mode; pgbouncer's own manual warns of it."""
    world = World(database.pooled, settings)
    rude = psycopg2.connect(database.pooled.credentials)
    rude.autocommit = True
    with rude.cursor() as cursor:
        cursor.execute("CREATE SCHEMA elsewhere")
        cursor.execute(
            "CREATE TABLE elsewhere.events (id text); CREATE TABLE elsewhere._dlt_backfills (id text)"
        )
        cursor.execute("SET search_path = elsewhere")
        cursor.execute("PREPARE mine AS SELECT 1")
        cursor.execute("SET default_transaction_isolation = 'serializable'")
    rude.close()
    with database.pooled.connect(10) as session:
        assert session.execute("SHOW search_path") == [("elsewhere",)]
    backfill, made = world.seeded(merged)
    world.run(backfill, made)
    assert world.query(IDS) == [(1, 103), (2, 20), (3, 30)]
    assert world.query(ITEMS) == [(1, 2), (2, 2), (3, 2)]
    assert sql(database.direct, "SELECT id FROM elsewhere.events") == []


def test_a_conflict_is_tried_again_on_the_same_connection(database, settings):
    """After an error dlt would discard the session, and with it what the pooler's connection is set to."""
    from airflow_provider_backfill.engine.stage import open_client

    world = World(database.pooled, settings)
    backfill, made = world.seeded(source_of(events()))
    world.run(backfill, made, 1)
    schema = backfill.source.load().schema
    with open_client(database.pooled, "backfill_stage_x", schema, 5) as (client, session):
        native = client.sql_client.native_connection
        with pytest.raises(Exception, match="division by zero"), session.transaction():
            client.sql_client.execute_sql("SELECT 1/0")
        with session.transaction():
            assert session.execute("SHOW transaction_isolation") == [("read committed",)]
        assert session.execute("SELECT 1") == [(1,)]
        assert native is client.sql_client.native_connection
        assert native.autocommit
    database.assert_nothing_is_left()
