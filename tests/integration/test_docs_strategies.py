"""The worked examples of docs/howto/strategies.md: each command is run, and says what the page shows."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dlt
import pytest

from airflow_provider_backfill.engine.destinations import Target, dialect_for
from tests.support.commands import Done, Site, untouched
from tests.support.ledgers import slowed, sql
from tests.support.pages import DOCS, fences

PAGE = DOCS / "howto" / "strategies.md"
PLACE = ("--destination", "duckdb:///shop.duckdb", "--dataset", "shop_raw")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    home = tmp_path / "home"
    target = Target(
        dialect=dialect_for("duckdb"), credentials=str(home / "shop.duckdb"), dataset_name="shop_raw"
    )
    site = Site(home=home, target=target)
    [(_, source)] = [block for block in fences(PAGE, "Five examples") if block[0] == "python"]
    shop(site).write_text(source)
    return site


def shop(site: Site) -> Path:
    return site.home / "sources" / "shop.py"


def edit(site: Site, old: str, new: str) -> None:
    text = shop(site).read_text()
    assert old in text
    shop(site).write_text(text.replace(old, new))


def load(site: Site, start: str, end: str, chunk: str) -> None:
    site.invoke("run", "sources.shop:orders", "--from", start, "--to", end, "--chunk", chunk, *PLACE)


@dataclass(kw_only=True)
class Example:
    """What the page has under a heading, a step each command.

    Args:
        site: Where they run.
        heading: The heading.
        codes: The exit code of each command.
    """

    site: Site
    heading: str
    codes: Sequence[int]

    def follow(self, between: Callable[[int], object] = lambda step: None) -> None:
        """Run the commands, and compare what they say with the block behind each.

        Args:
            between: Called after each step, with its number from 1.
        """
        blocks = [block for block in fences(PAGE, self.heading) if block[0] in ("sh", "text")]
        assert [language for language, _ in blocks] == ["sh", "text"] * len(self.codes)
        for step, code in enumerate(self.codes):
            done = self._run(blocks[2 * step][1], code)
            assert "\n".join([*done.out, *done.err]) == blocks[2 * step + 1][1].rstrip("\n")
            between(step + 1)

    def _run(self, block: str, code: int) -> Done:
        *settings, command = block.replace("\\\n", " ").splitlines()
        for setting in settings:
            name, _, value = setting.removeprefix("export ").partition("=")
            self.site.environment[name] = value
        program, *arguments = shlex.split(command)
        assert program == "chunked-backfill"
        return self.site.invoke(*arguments, code=code)


def test_a_bug_fix_in_one_week(site: Site) -> None:
    right = '"amount": 10}'
    edit(site, right, '"amount": 1000 if 529 <= day < 536 else 10}')
    load(site, "2026-01-05", "2026-02-02", "1w")
    amounts = (
        "SELECT amount, count(*), count(DISTINCT _dlt_load_id) FROM shop_raw.orders GROUP BY 1 ORDER BY 1"
    )
    assert sql(site.target, amounts) == [(10, 21, 3), (1000, 7, 1)]
    edit(site, '"amount": 1000 if 529 <= day < 536 else 10}', right)
    Example(site=site, heading="A bug fix in one week", codes=[0]).follow()
    assert sql(site.target, amounts) == [(10, 28, 4)]


def test_a_new_column_from_now_on(site: Site) -> None:
    with untouched():
        sys.path.insert(0, str(site.home))
        from sources import shop as module

        rows: Any = module.orders()
        rows.add_filter(lambda row: row["at"] < datetime(2026, 2, 2, tzinfo=UTC))
        dlt.pipeline(
            "shop_before",
            pipelines_dir=str(site.home / "pipelines"),
            destination=dlt.destinations.duckdb(str(site.target.credentials)),
            dataset_name="shop_raw",
        ).run(rows)
    before = sql(site.target, "SELECT count(*) FROM shop_raw.orders")
    edit(site, '"amount": 10}', '"amount": 10, "channel": "web"}')
    Example(site=site, heading="A new column from now on", codes=[0, 0, 0]).follow()
    assert sql(site.target, "SELECT count(*) FROM shop_raw.orders WHERE channel IS NULL") == before
    channels = "SELECT count(*), count(DISTINCT id), min(\"at\") FROM shop_raw.orders WHERE channel = 'web'"
    assert sql(site.target, channels) == [(21, 21, datetime(2026, 2, 2, 9, tzinfo=UTC))]


def test_a_source_added_late(site: Site) -> None:
    load(site, "2026-01-05", "2026-02-02", "1w")
    Example(site=site, heading="A source added late", codes=[0]).follow()
    assert sql(site.target, "SELECT count(*), count(DISTINCT id) FROM shop_raw.refunds") == [(13, 13)]


def test_an_outage_with_gaps(site: Site) -> None:
    for start, end in (
        ("2026-01-01", "2026-01-14"),
        ("2026-01-17", "2026-01-20"),
        ("2026-01-21", "2026-02-01"),
    ):
        load(site, start, end, "20d")
    Example(site=site, heading="An outage with gaps", codes=[1, 0, 0]).follow()
    assert sql(site.target, "SELECT count(*), count(DISTINCT id) FROM shop_raw.orders") == [(31, 31)]


def test_18_months_behind_a_rate_limit(site: Site) -> None:
    def wait(step: int) -> None:
        # As long as the API of the story would have taken.
        slowed(site.target, 3 * 3_600)

    Example(site=site, heading="18 months behind a rate limit", codes=[0, 0, 2, 0, 0]).follow(wait)
    assert sql(site.target, "SELECT count(*), count(DISTINCT id) FROM shop_raw.orders") == [(549, 549)]
