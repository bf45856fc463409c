"""Airflow's own backfills: ``airflow backfill create`` (3.x) and ``airflow dags backfill`` (2.11).

On 3.x a DAG has one backfill at a time, and the scheduler looks twice a minute whether it is over. So the
tests stand in an order in which others run meanwhile.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from tenacity import Retrying, retry_if_exception_message, stop_after_attempt

from airflow_provider_backfill.engine.records import ChunkRow, ChunkStatus
from tests.support.airflow import MODERN, ROOT
from tests.support.airflow_api import FINAL, DagRun
from tests.support.ledgers import wait_until
from tests.support.tasks import rows_of
from tests.system.conftest import PATIENCE, World

pytestmark = [pytest.mark.airflow2, pytest.mark.timeout(400)]

DAILY, MONTHLY = "example_daily", "example_monthly"
OVER, CRON = "backfill_taken_over", "backfill_cron_string"
#: The departures of January and of February 2013, by New York's days.
FLIGHTS = [(1, 27_004), (2, 24_951)]

_DAILY = {
    True: "airflow backfill create --dag-id example_daily --from-date 2026-01-01 --to-date 2026-01-04",
    False: "airflow dags backfill example_daily --start-date 2026-01-01 --end-date 2026-01-04",
}[MODERN]
_OVER = {
    True: "airflow backfill create --dag-id backfill_taken_over --from-date 2026-01-01 --to-date 2026-01-03"
    " --max-active-runs 1",
    False: "airflow dags backfill backfill_taken_over --start-date 2026-01-01 --end-date 2026-01-03"
    " --delay-on-limit 0.1",
}[MODERN]
#: The commands of the page, on the line of Airflow that runs.
COMMANDS = {
    True: {
        "first": f"{_DAILY} --max-active-runs 2",
        "failed": f"{_DAILY} --reprocess-behavior failed",
        "completed": f"{_DAILY} --reprocess-behavior completed",
        "months": "airflow backfill create --dag-id example_monthly --from-date 2013-01-01"
        ' --to-date 2013-02-28 --max-active-runs 2 --dag-run-conf \'{"chunk": "15d"}\'',
    },
    False: {
        "first": f"{_DAILY} --continue-on-failures",
        "failed": f"{_DAILY} --rerun-failed-tasks",
        "completed": f"{_DAILY} --reset-dagruns --yes",
        "months": "airflow dags backfill example_monthly --start-date 2013-01-01"
        ' --end-date 2013-02-28 --conf \'{"chunk": "15d"}\'',
    },
}[MODERN]
#: What the page has the commands run with.
SETTINGS = {
    True: {},
    False: {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_POOL_ENABLED": "False",
        "AIRFLOW__SCHEDULER__SCHEDULE_AFTER_TASK_EXECUTION": "False",
    },
}[MODERN]


@dataclass(frozen=True, kw_only=True)
class Days:
    """What there is of a daily DAG's runs, of one task each, and of what they loaded."""

    runs: list[DagRun]
    tries: list[int]
    ledger: list[ChunkRow]
    ids: list[int]

    @classmethod
    def of(cls, world: World, dag_id: str, dataset_name: str, count: int) -> Days:
        """When so many days, from the first of January on, have come and ended."""
        runs = ended(world, dag_id, days(count))
        tasks = [world.airflow.api.tasks(dag_id, run.run_id) for run in runs]
        found = world.query("duckdb", f"SELECT id FROM {dataset_name}.page_views ORDER BY id")
        return cls(
            runs=runs,
            tries=[task.try_number for [task] in tasks],
            ledger=chunks_of(world, dataset_name),
            ids=[number for (number,) in found],
        )

    @property
    def states(self) -> list[str]:
        return [run.state for run in self.runs]


def days(count: int) -> list[datetime]:
    return [datetime(2026, 1, 1 + day, tzinfo=UTC) for day in range(count)]


def backfill(world: World, command: str) -> None:
    """Run the command, on 3.x once the backfill before it is over, on 2.11 as often as the page says."""
    _, *words = shlex.split(command)
    if MODERN:
        dag_id = words[words.index("--dag-id") + 1]
        wait_until(lambda: not unfinished(world, dag_id), PATIENCE, every=1)
    deadlocked = retry_if_exception_message(match=r"(?s).*BackfillJob is deadlocked")
    for attempt in Retrying(retry=deadlocked, stop=stop_after_attempt(5), reraise=True):
        with attempt:
            world.airflow.command(*words, timeout=PATIENCE, environment=SETTINGS)


def unfinished(world: World, dag_id: str) -> list[int]:
    """The DAG's backfills that Airflow 3 has not marked as complete."""
    answer = world.airflow.api.call("GET", "/backfills", params={"dag_id": dag_id})
    return [item["id"] for item in answer["backfills"] if item["completed_at"] is None]


def ended(world: World, dag_id: str, starts: list[datetime]) -> list[DagRun]:
    """The DAG's runs whose data intervals start so, when all have come and ended."""
    found: list[DagRun] = []

    def look() -> bool:
        world.airflow.check()
        found[:] = [run for run in world.airflow.api.runs(dag_id) if run.start in starts]
        return len(found) == len(starts) and FINAL.issuperset(run.state for run in found)

    wait_until(look, PATIENCE, every=1)
    return found


def chunks_of(world: World, dataset_name: str) -> list[ChunkRow]:
    """The ledger by time."""
    return sorted(world.ledger("duckdb", dataset_name), key=lambda row: row.chunk_from)


def gapless(ledger: list[ChunkRow]) -> bool:
    """Each chunk starts where the one before it ends."""
    return all(before.chunk_to == after.chunk_from for before, after in pairwise(ledger))


@pytest.fixture(scope="module", autouse=True)
def _dags(world: World) -> None:
    world.airflow.wait_for_dags(DAILY, MONTHLY, OVER, CRON)


@pytest.fixture(scope="module")
def first(world: World) -> Days:
    """After a backfill during which the source of the third day was down."""
    world.outage.write_text("2026-01-03")
    backfill(world, COMMANDS["first"])
    return Days.of(world, DAILY, "web_daily", 4)


@pytest.fixture(scope="module")
def recovered(world: World, first: Days) -> Days:
    """After another that repeats what failed."""
    backfill(world, COMMANDS["failed"])
    return Days.of(world, DAILY, "web_daily", 4)


@pytest.fixture(scope="module")
def repeated(world: World, recovered: Days) -> Days:
    """After another that repeats everything."""
    backfill(world, COMMANDS["completed"])
    return Days.of(world, DAILY, "web_daily", 4)


@pytest.fixture(scope="module")
def backwards(world: World) -> Days:
    """After a backfill of three days, last day first, in a DAG that was paused until then."""
    backfill(world, f"{_OVER} --run-backwards")
    world.airflow.api.unpause(OVER)
    return Days.of(world, OVER, "web_taken_over", 3)


@pytest.fixture(scope="module")
def taken_over(world: World, backwards: Days) -> Days:
    """After the schedule's run of the fourth day."""
    return Days.of(world, OVER, "web_taken_over", 4)


def test_the_page_has_the_commands() -> None:
    page = (ROOT / "docs" / "howto" / "airflow-backfill.md").read_text(encoding="utf-8")
    lines = re.sub(r" \\\n +", " ", page).splitlines()
    exports = [f"export {name}={value}" for name, value in SETTINGS.items()]
    assert set(lines) >= {*COMMANDS.values(), *exports}


def test_every_day_is_a_chunk_and_one_that_fails_leaves_nothing(first: Days) -> None:
    assert first.states == ["success", "success", "failed", "success"]
    assert first.tries == [1, 1, 1, 1]
    assert first.ids == [1, 2, 4]
    assert [row.chunk_from for row in first.ledger] == days(4)
    assert gapless(first.ledger)
    assert {row.chunk_size for row in first.ledger} == {"1d"}
    assert [row.status for row in first.ledger] == [
        ChunkStatus.FAILED if day == 3 else ChunkStatus.COMPLETED for day in (1, 2, 3, 4)
    ]
    assert "2026-01-03 did not answer" in first.ledger[2].error


def test_a_cron_string_has_intervals_of_no_length_on_airflow_3(world: World) -> None:
    backfill(
        world,
        f"airflow backfill create --dag-id {CRON} --from-date 2026-01-01 --to-date 2026-01-01"
        if MODERN
        else f"airflow dags backfill {CRON} --start-date 2026-01-01 --end-date 2026-01-01",
    )
    [run] = ended(world, CRON, days(1))
    [task] = world.airflow.api.tasks(CRON, run.run_id)
    # Refused, so that no retry was spent.
    assert task.try_number == 1
    if not MODERN:
        assert run.state == "success"
        assert world.query("duckdb", "SELECT count(*) FROM web_cron_string.page_views") == [(6,)]
        return
    assert run.start == run.end
    assert run.state == "failed"
    said = "".join(world.airflow.task_logs(CRON).values())
    assert "empty window: the data interval starts at" in said
    assert "use schedule=CronDataIntervalTimetable(...)" in said
    assert rows_of(world.target("duckdb", "web_cron_string")) == []


def test_backwards_is_the_last_day_first(backwards: Days) -> None:
    assert backwards.states == ["success"] * 3
    third, second, first = backwards.ledger[2::-1]
    assert third.completed_at <= second.started_at
    assert second.completed_at <= first.started_at


def test_what_failed_alone_is_repeated(first: Days, recovered: Days) -> None:
    assert recovered.states == ["success"] * 4
    assert recovered.tries == [1, 1, 2, 1]
    assert recovered.ids == [1, 2, 3, 4]
    assert [row.attempt for row in recovered.ledger] == [1, 1, 2, 1]
    untouched = [0, 1, 3]
    assert [recovered.ledger[day] for day in untouched] == [first.ledger[day] for day in untouched]


def test_two_months_at_once_in_chunks_of_days(world: World) -> None:
    backfill(world, COMMANDS["months"])
    # Midnight of New York's winter.
    months = [datetime(2013, month, 1, 5, tzinfo=UTC) for month in (1, 2)]
    assert [run.state for run in ended(world, MONTHLY, months)] == ["success", "success"]
    ledger = chunks_of(world, "nyc_months")
    assert [row.chunk_to - row.chunk_from for row in ledger] == [
        timedelta(days=length) for length in (15, 15, 1, 15, 13)
    ]
    assert gapless(ledger)
    assert [ledger[0].chunk_from, ledger[-1].chunk_to] == [months[0], datetime(2013, 3, 1, 5, tzinfo=UTC)]
    january, february = ledger[:3], ledger[3:]
    assert len({row.backfill_id for row in january}) == len({row.backfill_id for row in february}) == 1
    if MODERN:
        # 2.11 may have had to be asked again for one of them.
        assert february[0].started_at < january[-1].completed_at
        assert january[0].started_at < february[-1].completed_at
    counted = world.query(
        "duckdb",
        "SELECT month, count(*), count(DISTINCT (time_hour, carrier, flight, origin))"
        " FROM nyc_months.flights GROUP BY month ORDER BY month",
    )
    assert counted == [(month, rows, rows) for month, rows in FLIGHTS]


def test_the_schedule_goes_on_where_the_backfill_ended(world: World, taken_over: Days) -> None:
    runs, ledger = taken_over.runs, taken_over.ledger
    assert [run.kind for run in runs] == ["backfill"] * 3 + ["scheduled"]
    assert taken_over.states == ["success"] * 4
    assert len(world.airflow.api.runs(OVER)) == 4
    assert [(row.chunk_from, row.chunk_to) for row in ledger] == [(run.start, run.end) for run in runs]
    assert [row.dag_run_id for row in ledger] == [run.run_id for run in runs]
    assert gapless(ledger)
    assert taken_over.ids == [1, 2, 3, 4]


def test_the_same_again_does_nothing(world: World, taken_over: Days) -> None:
    backfill(world, _OVER)
    again = Days.of(world, OVER, "web_taken_over", 4)
    assert again.states == ["success"] * 4
    assert (again.tries, again.ledger, again.ids) == (taken_over.tries, taken_over.ledger, taken_over.ids)


def test_what_is_repeated_is_loaded_again_and_each_row_is_there_once(recovered: Days, repeated: Days) -> None:
    assert repeated.states == ["success"] * 4
    assert repeated.tries == [2, 2, 3, 2]
    assert repeated.ids == [1, 2, 3, 4]
    assert {row.status for row in repeated.ledger} == {ChunkStatus.COMPLETED}
    pairs = list(zip(recovered.ledger, repeated.ledger, strict=True))
    assert all(new.started_at > old.completed_at for old, new in pairs)
    assert all(new.load_ids != old.load_ids for old, new in pairs)
