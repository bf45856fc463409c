"""What the command refuses on real databases, in one line and before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_backfill.engine.destinations import Target
from tests.support.commands import SOURCE, WINDOW, Site


@pytest.fixture
def site(tmp_path: Path, target: Target) -> Site:
    return Site(home=tmp_path / "home", target=target)


RESOURCES = """
from datetime import UTC, datetime

import dlt


@dlt.resource
def no_cursor():
    yield {"id": 1}


@dlt.resource(write_disposition="replace")
def replaced(at=dlt.sources.incremental("at", initial_value=datetime(2020, 1, 1, tzinfo=UTC))):
    yield {"id": 1}


@dlt.source(name="shop")
def shop(region, limit=10):
    return dlt.resource([{"id": 1}], name="orders")


@dlt.source(name="secretive")
def secretive(api_key=dlt.secrets.value):
    return dlt.resource([{"id": 1}], name="orders")


number = 7
"""


@pytest.fixture
def refused(site):
    """Run the command, check that it refuses in one line before it writes anything, and return the line."""
    (site.home / "refusals.py").write_text(RESOURCES)

    def run(source: str, *window: str, place: tuple[str, ...] = site.place) -> str:
        done = site.invoke("run", source, *(window or WINDOW), *place, code=2)
        assert done.out == []
        assert site.rows() == []
        assert site.stages() == []
        [one] = done.err
        return str(one)

    return run


@pytest.mark.parametrize(
    ("window", "message"),
    [
        (
            ("2026-01-01T00:00:00", "2026-01-06T00:00:00Z", "1d"),
            "error: start '2026-01-01T00:00:00' is timezone-naive; pass an explicit offset (e.g. 2026",
        ),
        (("2026-01-06T00:00:00Z", "2026-01-06T00:00:00Z", "1d"), "error: empty window: end "),
        (("2026-01-01T00:00:00Z", "2026-01-06T00:00:00Z", "0d"), "error: chunk '0d' is not greater than 0; "),
        (("2026-01-01T00:00:00Z", "2026-01-06T00:00:00Z", "day"), "error: chunk 'day' is not a number and "),
        (("2016-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "1m"), "error: chunk '1m' cuts this window into "),
    ],
)
def test_windows_and_chunks_are_refused(refused, window, message):
    start, end, chunk = window
    assert refused(SOURCE, "--from", start, "--to", end, "--chunk", chunk).startswith(message)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("refusals:no_cursor", "error: refused: resource 'no_cursor': it has no incremental cursor"),
        ("refusals.py:replaced", "error: refused: resource 'replaced': its write disposition is 'replace'"),
        ("refusals:shop", "error: source 'refusals:shop' cannot be called: missing a required argument"),
        (
            "refusals:secretive",
            "error: source 'refusals:secretive' cannot be called: dlt finds no value for",
        ),
        ("refusals:number", "error: source 'refusals:number' was not found: it is a int"),
        ("refusals:missing", "error: source 'refusals:missing' was not found: "),
        ("nowhere:missing", "error: source 'nowhere:missing' was not found: no module named 'nowhere'"),
        ("refusals", "error: source 'refusals' was not found: it names no attribute"),
    ],
)
def test_sources_are_refused(refused, source, message):
    assert refused(source).startswith(message)


def test_an_argument_that_the_source_does_not_take_is_refused_without_its_value(refused):
    message = refused("refusals:shop", *WINDOW, "--set", "region=eu", "--set", "token=hunter2")
    assert message.startswith("error: source 'refusals:shop' cannot be called: got an unexpected keyword")
    assert message.endswith("'token'; it takes: region, limit (see docs/refusals.md#sourceargumentserror)")


@pytest.mark.parametrize(
    "url", ["snowflake://loader:hunter2@host/db", "web.duckdb", "duckdb://", "duckdb:///:memory:"]
)
def test_destinations_that_cannot_carry_the_ledger_are_refused(refused, url):
    message = refused(SOURCE, place=("--destination", url, "--dataset", "web_raw"))
    assert message.startswith("error: destination ")
    assert "hunter2" not in message
