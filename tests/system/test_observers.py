"""What a real Airflow tells others of a backfill: notes and statistics."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from tests.support.ledgers import wait_until
from tests.system.conftest import PATIENCE, Run, World

pytestmark = [pytest.mark.airflow2, pytest.mark.timeout(600)]

DAG_ID = "example_notifications"
GROUP = "web_events"
WHAT = "web_events into web_notifications"


@dataclass(frozen=True, kw_only=True)
class Story:
    """A DAG run whose second chunk fails for good, and the one that resumes it."""

    failed: Run
    resumed: Run


@pytest.fixture(scope="module")
def story(world: World) -> Story:
    world.airflow.wait_for_dags(DAG_ID)
    world.outage.write_text("2026-01-02")
    failed = world.run(DAG_ID)
    assert failed.state == "failed"
    resumed = world.run(DAG_ID)
    assert resumed.state == "success"
    return Story(failed=failed, resumed=resumed)


def notes(world: World, run: Run) -> list[str]:
    """The first line of each note in the logs of a run, behind the last part of the log's directory."""
    return [
        f"{path.parent.name}: {note}"
        for path, text in world.airflow.task_logs(DAG_ID).items()
        if run.run_id in str(path)
        # Airflow 3 writes JSON.
        for note in re.findall(r"note: (.+?)(?:\\n|\n)", text.replace("\\u2192", "→"))
    ]


def test_whoever_fails_says_so_and_the_report_says_when_all_is_there(world: World, story: Story) -> None:
    chunk, report = sorted(notes(world, story.failed))
    reason = "ConnectionError: the source of 2026-01-02 did not answer (rehearsed)"
    assert chunk.startswith(
        f"map_index=1: {WHAT}, 2026-01-02 → 2026-01-03: chunk failed (chunk 2 failed: {reason}; "
    )
    window = f"task_id={GROUP}.report: {WHAT}, 2026-01-01 → 2026-01-04"
    counts = "{} completed, {} skipped, 0 claimed elsewhere, {} failed, {} pending (3 chunks)"
    assert report == f"{window}: {counts.format(1, 0, 1, 1)}"
    assert notes(world, story.resumed) == [f"{window}: {counts.format(2, 1, 0, 0)}"]


def test_airflows_statistics_have_the_chunks(world: World, story: Story) -> None:
    tags = f"dag_id={DAG_ID},task_id={GROUP}.chunk,source=web_events,dataset=web_notifications"

    def told(name: str) -> list[str]:
        prefix = f"airflow.chunked_backfill.{name},"
        return [
            line.removeprefix(prefix)
            for line in world.statsd.lines
            if line.startswith(prefix) and "web_notifications" in line
        ]

    wait_until(lambda: len(told("chunks.completed")) >= 3, PATIENCE)
    assert told("chunks.completed") == [f"{tags}:1|c"] * 3
    assert told("chunks.failed") == [f"{tags}:1|c"]
    assert told("rows.loaded") == [f"{tags}:1|c"] * 3
    assert len(told("chunk.duration")) == 4
    assert all(
        re.search(r"outcome=(completed|failed):\d+\.\d+\|ms$", line) for line in told("chunk.duration")
    )
    backfill_id = world.report(DAG_ID, story.resumed, GROUP)["backfill_id"]
    ratios = told("progress.ratio")
    assert all(f",backfill_id={backfill_id}:" in line for line in ratios)
    # plan, a chunk, report; then plan, two chunks, report.
    values = [float(re.search(r":([\d.]+)\|g$", line)[1]) for line in ratios]
    assert values == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3, 2 / 3, 1, 1])
