from __future__ import annotations

import logging

import pytest

from airflow_provider_backfill.engine.progress import PERIOD_SECONDS, Progress


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="airflow_provider_backfill")
    return caplog


def test_a_step_ends_with_the_rows_of_its_tables(said: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    progress = Progress(chunk=3, clock=clock)
    progress.start("extract")
    for table, rows in (("orders", 2), ("orders__lines", 5), ("orders", 1), ("_dlt_pipeline_state", 1)):
        progress.add(table, rows)
    clock.now += 0.25
    progress.end()
    progress.start("load")
    progress.end()
    assert said.messages == [
        "chunk 3 extract: orders 3 rows, orders__lines 5 rows in 0.2 s",
        "chunk 3 load: no rows in 0.0 s",
    ]


def test_a_long_step_speaks_now_and_then(said: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    progress = Progress(chunk=1, clock=clock)
    progress.start("extract")
    for _ in range(50):
        clock.now += PERIOD_SECONDS / 20
        progress.add("orders", 10)
    assert said.messages == [
        "chunk 1 extract: orders 200 rows in 10.0 s so far",
        "chunk 1 extract: orders 400 rows in 20.0 s so far",
    ]


def test_many_tables_do_not_make_a_long_line(said: pytest.LogCaptureFixture) -> None:
    progress = Progress(chunk=1, clock=Clock())
    progress.start("load")
    for number in range(13):
        progress.add(f"t{number:02d}", 1)
    progress.end()
    assert said.messages[0].endswith("t09 1 rows, 3 more tables in 0.0 s")
