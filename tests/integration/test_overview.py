"""What a ledger says at a glance, on each database, and that nobody waits for whoever looks."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from airflow_provider_backfill.engine.controls import BackfillControls, ControlState
from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.maps import Mapped, TaskMaps
from airflow_provider_backfill.engine.overview import BackfillState, BackfillSummary, Condition
from airflow_provider_backfill.engine.peek import Peek, PeekState, peek
from airflow_provider_backfill.engine.plan import make_plan
from airflow_provider_backfill.engine.records import Claimant
from airflow_provider_backfill.engine.runs import Runs
from airflow_provider_backfill.engine.window import Window
from tests.support.ledgers import end_leases, foreign_table, opened, plan, seeded, sql, take

DAY = 86_400


def summaries(target) -> dict[str, BackfillSummary]:
    found = peek(target, lambda _, overview: overview.backfills())
    assert found.state is PeekState.READ, found.reason
    return {each.source: each for each in found.seen}


def look(target, ask):
    found = peek(target, lambda _, overview: ask(overview))
    assert found.state is PeekState.READ, found.reason
    return found.seen


def complete(target, backfill, chunk, rows=10, seconds=30):
    """One chunk, as if its attempt had taken so long."""
    with opened(target) as ledger:
        ledger.complete(take(ledger, backfill, chunk), rows, [f"{chunk}.0"])
    sql(
        target,
        "UPDATE {ledger} SET started_at = completed_at - :seconds * INTERVAL '1 second'"
        " WHERE backfill_id = :backfill_id AND chunk_id = :chunk_id",
        seconds=seconds,
        backfill_id=backfill.backfill_id,
        chunk_id=f"{chunk:06d}",
    )


def day(number: int) -> datetime:
    return datetime(2026, 1, number, tzinfo=UTC)


def test_a_backfill_at_a_glance(target):
    backfill, other = plan(), plan(source="web_hours:clicks,views", days=2)
    seeded(target, other, backfill)
    complete(target, backfill, 0)
    with opened(target) as ledger:
        ledger.fail(take(ledger, backfill, 1), "ConnectionError: it hung up")
        take(ledger, backfill, 2)
        take(ledger, backfill, 3)
    found = summaries(target)
    assert list(found) == ["web_events", "web_hours"]
    mine = found["web_events"]
    assert (mine.backfill_id, mine.chunk_size, mine.resources) == (backfill.backfill_id, "1d", ())
    assert mine.window == backfill.window.interval
    assert mine.counts == {
        Condition.PENDING: 1,
        Condition.HELD: 2,
        Condition.LAPSED: 0,
        Condition.FAILED: 1,
        Condition.COMPLETED: 1,
        Condition.COVERED: 0,
    }
    assert (mine.chunks, mine.done, mine.rows, mine.state) == (5, 1, 10, BackfillState.RUNNING)
    assert (mine.last_error.number, mine.last_error.error) == (2, "ConnectionError: it hung up")
    # A day in half a minute, and four are left.
    assert mine.pace.seconds_left == pytest.approx(120, rel=0.05)
    assert (found["web_hours"].resources, found["web_hours"].pace) == (("clicks", "views"), None)
    assert found["web_hours"].state is BackfillState.PENDING


def test_leases_that_ran_out_are_told_from_those_that_live(target):
    seeded(target, plan())
    with opened(target) as ledger:
        take(ledger, plan())
    end_leases(target)
    found = summaries(target)["web_events"]
    assert (found.counts[Condition.LAPSED], found.counts[Condition.HELD]) == (1, 0)
    assert found.state is BackfillState.FAILED


def test_what_others_have_loaded_is_done_and_no_work_of_this_one(target):
    hours = make_plan("web_events", Window.parse("2026-01-01", "2026-01-02"), "12h")
    seeded(target, plan(), hours)
    complete(target, plan(), 0)
    with opened(target) as ledger:
        assert ledger.cover(hours.backfill_id, ledger.coverage(hours)) == 2
    [covered] = [each for each in look(target, lambda overview: overview.backfills()) if each.chunks == 2]
    assert (covered.state, covered.counts[Condition.COVERED], covered.done) == (BackfillState.COMPLETED, 2, 2)
    assert (covered.rows, covered.pace) == (0, None)


@pytest.mark.parametrize("state", ControlState)
def test_paused_and_cancelled(target, state):
    seeded(target, plan())
    with target.connect(10) as session:
        BackfillControls(session, target).put(
            "web_events", plan().backfill_id, state, "alice@laptop", "the API is slow"
        )
    found = summaries(target)["web_events"]
    assert (found.state, found.control.who, found.control.why) == (state, "alice@laptop", "the API is slow")


def test_which_dags_have_to_do_with_a_backfill(target):
    first, second, third = plan(), plan(source="web_hours"), plan(source="by_hand")
    seeded(target, first, second, third)
    with target.connect(10) as session:
        ledger, maps = Ledger(session, target), TaskMaps(session, target)
        ledger.prepare(maps)
        planner = Claimant(claimed_by="w:1", dag_id="planner", dag_run_id="r", task_id="g.plan")
        maps.first(
            planner, "request", Mapped(backfill_ids=(first.backfill_id, second.backfill_id), groups=())
        )
        row = ledger.chunk(first.backfill_id, "000000")
        ledger.claim(row, Claimant(claimed_by="w:2", dag_id="loader"), 60)
    assert look(target, lambda overview: overview.dags()) == {
        first.backfill_id: {"planner", "loader"},
        second.backfill_id: {"planner"},
    }


def test_chunks_in_few_words(target):
    seeded(target, plan())
    complete(target, plan(), 1, rows=7, seconds=40)
    strip = look(target, lambda overview: overview.strip(plan().backfill_id, "1d"))
    assert [(piece.number, piece.condition) for piece in strip[:3]] == [
        (1, Condition.PENDING),
        (2, Condition.COMPLETED),
        (3, Condition.PENDING),
    ]
    assert (strip[1].rows, strip[1].seconds) == (7, pytest.approx(40))
    assert strip[1].interval == Interval(day(2), day(3))


def test_chunks_by_page(target):
    backfill = plan(days=30)
    seeded(target, backfill)
    complete(target, backfill, 4)

    def page(**options):
        rows, total = look(target, lambda overview: overview.page(backfill.backfill_id, **options))
        return [row.number for row in rows], total

    assert page(limit=3, offset=6) == ([7, 8, 9], 30)
    assert page(condition=Condition.COMPLETED) == ([5], 1)
    # Half-open, as everywhere: the chunk that only touches is left out.
    assert page(start=day(3), end=day(5)) == ([3, 4], 2)
    assert page(start=day(29), limit=1) == ([29], 2)
    assert page(condition=Condition.FAILED) == ([], 0)


def test_attempts_of_a_chunk(target):
    backfill = plan()
    seeded(target, backfill)
    assert (
        look(target, lambda overview: overview.attempts(backfill.backfill_id, backfill.chunks[0].run_id))
        == []
    )
    with target.connect(10) as session:
        ledger, runs = Ledger(session, target), Runs(session, target)
        ledger.prepare(runs)
        session.execute(
            f"INSERT INTO {target.table('_dlt_ops_runs')} (pipeline_name, source_section, destination,"
            " dataset, run_id, backfill_id, trigger_source, started_at, status, error_summary) VALUES"
            " ('w', 'w', 'd', 'd', :run_id, :backfill_id, 'backfill', :early, 'failed', 'it hung up'),"
            " ('w', 'w', 'd', 'd', :run_id, :backfill_id, 'backfill', :late, 'running', NULL)",
            {
                "run_id": backfill.chunks[0].run_id,
                "backfill_id": backfill.backfill_id,
                "early": day(1),
                "late": day(2),
            },
        )
    found = look(target, lambda overview: overview.attempts(backfill.backfill_id, backfill.chunks[0].run_id))
    assert [(each.started_at, each.status, each.error) for each in found] == [
        (day(2), "running", None),
        (day(1), "failed", "it hung up"),
    ]


def test_coverage_of_a_source_over_all_its_backfills(target):
    first, later, some = plan(), plan(start="2026-01-09", days=3), plan(source="web_events:clicks", days=8)
    seeded(target, first, later, some)
    for backfill, chunk in ((first, 0), (first, 1), (first, 4), (later, 0), (later, 2), (some, 6)):
        complete(target, backfill, chunk)
    with opened(target) as ledger:
        # Until the next version takes its place, this one stands.
        ledger.restate(first.backfill_id, "000001")

    def coverage(*resources):
        return look(target, lambda overview: overview.coverage("web_events", resources, whole=False))

    found = coverage()
    assert found.extent == Interval(day(1), day(12))
    assert found.covered == (
        Interval(day(1), day(3)),
        Interval(day(5), day(6)),
        Interval(day(9), day(10)),
        Interval(day(11), day(12)),
    )
    assert found.gaps == (Interval(day(3), day(5)), Interval(day(6), day(9)), Interval(day(10), day(11)))
    # One who loaded everything has loaded these; one who loaded them counts for them alone.
    assert coverage("clicks").gaps == (
        Interval(day(3), day(5)),
        Interval(day(6), day(7)),
        Interval(day(8), day(9)),
        Interval(day(10), day(11)),
    )
    assert coverage("views").covered == found.covered
    assert look(target, lambda overview: overview.coverage("unknown", (), whole=False)) is None


def test_whole_numbers(target):
    backfill = make_plan("orders", Window.parse(0, 1_000), 100)
    seeded(target, backfill)
    complete(target, backfill, 2)
    [found] = look(target, lambda overview: overview.backfills())
    assert (found.window, found.chunk_size) == (Interval(0, 1_000), "100")
    assert found.pace.seconds_left == pytest.approx(270, rel=0.05)
    coverage = look(target, lambda overview: overview.coverage("orders", (), whole=True))
    assert coverage.covered == (Interval(200, 300),)
    rows, total = look(target, lambda overview: overview.page(found.backfill_id, start=250, end=301))
    assert ([row.interval for row in rows], total) == ([Interval(200, 300), Interval(300, 400)], 2)


def test_the_table_of_another_tool_lacks_columns(target):
    row = {
        "pipeline_name": "web_events",
        "source_section": "web_events",
        "backfill_id": "d7a7c6e21e0d8ecb",
        "chunk_id": "000000",
        "chunk_from": day(1),
        "chunk_to": day(2),
        "backfill_from": day(1),
        "backfill_to": day(2),
        "chunk_size": "1d",
        "status": "running",
        "run_id": "2fe712c1ca2c99a0",
    }
    foreign_table(target, [row])
    [found] = look(target, lambda overview: overview.backfills())
    # Held without a lease, until somebody releases it.
    assert (found.state, found.changed_at) == (BackfillState.RUNNING, None)
    assert look(target, lambda overview: overview.dags()) == {}
    assert look(target, lambda overview: overview.page(found.backfill_id))[1] == 1
    assert look(target, lambda overview: overview.coverage("web_events", (), whole=False)).covered == ()


def test_absence_has_a_reason_and_nothing_is_made(target):
    assert peek(target, lambda *_: 1) == Peek(
        state=PeekState.ABSENT,
        reason="the database does not exist"
        if target.dialect.single_process
        else "dataset web_raw has no ledger",
    )
    with target.connect(10) as session:
        assert target.dialect.schemas(session, target.dataset_name) == []


def test_nothing_can_be_written_by_whoever_looks(target):
    seeded(target, plan())
    found = peek(target, lambda session, _: session.execute(f"DELETE FROM {target.ledger}"))
    assert found.state is PeekState.UNREACHABLE
    assert "read" in found.reason.lower()


def test_a_file_in_use_is_busy(duck_target):
    seeded(duck_target, plan())
    inside, done = threading.Event(), threading.Event()

    def hold(*_):
        inside.set()
        done.wait(30)

    other = threading.Thread(target=peek, args=(duck_target, hold))
    other.start()
    try:
        assert inside.wait(30)
        found = peek(duck_target, lambda *_: 1)
    finally:
        done.set()
        other.join()
    assert (found.state, found.reason) == (PeekState.BUSY, "another request has it open")
    assert peek(duck_target, lambda *_: 1).seen == 1


def test_a_table_that_somebody_has_locked_is_busy(pg_target, monkeypatch):
    monkeypatch.setattr("airflow_provider_backfill.engine.peek.PATIENCE_SECONDS", 0.2)
    seeded(pg_target, plan())
    with pg_target.connect(10) as session, session.transaction():
        session.execute(f"LOCK TABLE {pg_target.ledger} IN ACCESS EXCLUSIVE MODE")
        found = peek(pg_target, lambda _, overview: overview.backfills())
    assert (found.state, found.reason) == (PeekState.BUSY, "it did not answer within 0.2 s")


def test_a_database_that_refuses_is_unreachable_without_its_password(pg_target):
    from dataclasses import replace

    from airflow_provider_backfill.engine.destinations.libpq import libpq_uri

    uri = libpq_uri(user="nobody", password="p@ss/w", host="127.0.0.1", port=1, database="x")
    found = peek(replace(pg_target, credentials=uri), lambda *_: 1)
    assert found.state is PeekState.UNREACHABLE
    assert "p@ss/w" not in found.reason
    assert "refused" in found.reason.lower()
