"""What people do with a backfill through the API: the ledger, the answer, and Airflow's audit log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_backfill.engine.controls import BackfillControls
from airflow_provider_backfill.engine.plan import make_plan
from airflow_provider_backfill.engine.window import Window
from tests.integration.page.conftest import API, on_both
from tests.support.ledgers import end_leases, opened, plan, seeded, take


@pytest.fixture(autouse=True)
def _empty_audit_log(airflow_site):
    from airflow.models.log import Log
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    with create_session() as session:
        session.execute(delete(Log))


def audit() -> list[tuple[str, str, str, dict[str, Any]]]:
    """Event, DAG, person and details of each line of the audit log."""
    from airflow.models.log import Log
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        return [
            (log.event, log.dag_id, log.owner, json.loads(log.extra))
            for log in session.scalars(select(Log).order_by(Log.id))
        ]


def act(site, backfill, action: str, code: int = 200, **body) -> dict[str, Any]:
    answer = site.client().post(f"{site.place(backfill)}/{action}", json=body)
    assert answer.status_code == code, answer.text
    return answer.json()


def states(target, backfill=None) -> list[str]:
    with opened(target) as ledger:
        return [str(row.status) for row in ledger.chunks((backfill or plan()).backfill_id)]


@on_both
def test_pause_resume_cancel(site, warehouse):
    seeded(warehouse, plan())
    with opened(warehouse) as ledger:
        take(ledger, plan(), 0)

    def control():
        with warehouse.connect(10) as session:
            found = BackfillControls(session, warehouse).read().get(plan().backfill_id)
            return found and (str(found.state), found.who, found.why)

    assert act(site, plan(), "pause", reason=" the API \n is slow ")["message"] == (
        "paused; 1 chunk in flight finishes"
    )
    assert control() == ("paused", "editor in Airflow", "the API is slow")
    assert act(site, plan(), "cancel")["message"] == "cancelled; 1 chunk in flight finishes"
    assert control() == ("cancelled", "editor in Airflow", None)
    assert act(site, plan(), "resume")["message"].startswith("it goes on; it was cancelled by editor")
    assert control() is None
    assert act(site, plan(), "resume")["message"] == "it is neither paused nor cancelled"
    assert [(event, dag_id, who) for event, dag_id, who, _ in audit()] == [
        ("backfill.pause", "events", "editor"),
        ("backfill.cancel", "events", "editor"),
        ("backfill.resume", "events", "editor"),
        ("backfill.resume", "events", "editor"),
    ]
    assert audit()[0][3] == {
        "connection": "warehouse",
        "dataset": "web_raw",
        "source": "web_events",
        "backfill_id": plan().backfill_id,
        "reason": "the API is slow",
    }


@on_both
def test_release_takes_the_claim_that_was_shown_and_no_other(site, warehouse):
    seeded(warehouse, plan())
    with opened(warehouse) as ledger:
        take(ledger, plan(), 2)
    refused = act(site, plan(), "release", 409, chunk_id="000002", attempt=7)
    assert refused["detail"] == "chunk 3 has been claimed anew since it was shown"
    assert act(site, plan(), "release", chunk_id="000002", attempt=1)["changed"] == ["000002"]
    with opened(warehouse) as ledger:
        row = ledger.chunk(plan().backfill_id, "000002")
    assert (row.status, row.error) == ("failed", "released by editor in Airflow")
    assert (
        act(site, plan(), "release", 409, chunk_id="000002")["detail"] == "nobody holds chunk 3: it is failed"
    )
    act(site, plan(), "release", 404, chunk_id="000009")


def test_a_lapsed_lease_is_released_too(site, warehouse):
    seeded(warehouse, plan())
    with opened(warehouse) as ledger:
        take(ledger, plan(), 0)
    end_leases(warehouse)
    act(site, plan(), "release", chunk_id="000000")
    assert states(warehouse)[0] == "failed"


@on_both
def test_restate_chunks_and_ranges(site, warehouse):
    seeded(warehouse, plan())
    with opened(warehouse) as ledger:
        for chunk in range(4):
            ledger.complete(take(ledger, plan(), chunk), 1, [f"{chunk}.0"])
    answer = act(site, plan(), "restate", chunk_ids=["000000", "000004"])
    assert answer["message"] == ("1 chunk to be loaded again by the next run or clear; 1 left as it is")
    assert answer["changed"] == ["000000"]
    assert answer["left"] == [{"chunk_id": "000004", "why": "it is pending"}]
    assert states(warehouse) == ["pending", "completed", "completed", "completed", "pending"]
    assert act(site, plan(), "restate", start="2026-01-02", end="2026-01-04")["changed"] == [
        "000001",
        "000002",
    ]
    assert states(warehouse) == ["pending", "pending", "pending", "completed", "pending"]
    # The next version replaces these rows.
    with opened(warehouse) as ledger:
        assert ledger.chunk(plan().backfill_id, "000001").load_ids == "1.0"
    event, _, _, details = audit()[-1]
    assert (event, details["start"], details["end"]) == ("backfill.restate", "2026-01-02", "2026-01-04")


def test_what_others_loaded_and_what_nobody_knows_is_not_restated(site, warehouse):
    hours = make_plan("web_events", Window.parse("2026-01-01", "2026-01-02"), "12h")
    seeded(warehouse, plan(), hours)
    with opened(warehouse) as ledger:
        ledger.complete(take(ledger, plan(), 0), 3, ["1.0"])
        ledger.cover(hours.backfill_id, ledger.coverage(hours))
    answer = act(site, hours, "restate", chunk_ids=["000000"])
    assert (answer["message"], answer["changed"]) == (
        "0 chunks to be loaded again by the next run or clear; 1 left as it is",
        [],
    )
    assert answer["left"][0]["why"] == f"backfill {plan().backfill_id} has loaded it; return it there"
    act(site, plan(), "mark", mark="done", reason="by hand", chunk_ids=["000001"])
    unknown = act(site, plan(), "restate", chunk_ids=["000001"])["left"][0]["why"]
    assert unknown == "the ledger does not say which rows it loaded; see chunked-backfill mark --forget"
    assert states(warehouse) == ["completed", "completed", "pending", "pending", "pending"]


@on_both
def test_mark_done_and_pending(site, warehouse):
    seeded(warehouse, plan())
    with opened(warehouse) as ledger:
        ledger.complete(take(ledger, plan(), 0), 1, ["1.0"])
        take(ledger, plan(), 1)
    answer = act(site, plan(), "mark", mark="done", reason="loaded by hand", end="2026-01-04")
    assert answer["changed"] == ["000002"]
    assert {left["chunk_id"]: left["why"] for left in answer["left"]} == {
        "000000": "it is completed",
        "000001": "it is held; release it first",
    }
    answer = act(site, plan(), "mark", mark="pending", reason="was wrong", chunk_ids=["000000"])
    assert answer["message"] == "1 chunk marked as pending"
    assert states(warehouse) == ["pending", "running", "completed", "pending", "pending"]
    assert [event for event, *_ in audit()] == ["backfill.mark_done", "backfill.mark_pending"]
    assert audit()[0][3]["reason"] == "loaded by hand"


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("restate", {}),
        ("restate", {"chunk_ids": []}),
        ("restate", {"chunk_ids": ["000000"], "start": "2026-01-01"}),
        ("restate", {"chunk_ids": ["0"]}),
        ("restate", {"chunk_ids": ["000000"], "extra": 1}),
        ("restate", {"start": 7}),
        ("restate", {"start": "2026-01-01T00:00:00"}),
        ("mark", {"mark": "done", "chunk_ids": ["000000"]}),
        ("mark", {"mark": "done", "chunk_ids": ["000000"], "reason": " \n "}),
        ("mark", {"mark": "gone", "chunk_ids": ["000000"], "reason": "x"}),
        ("pause", {"reason": "x" * 501}),
        ("release", {}),
        ("release", {"chunk_id": "000000' OR 1=1"}),
    ],
)
def test_bodies_that_say_too_little_or_too_much_change_nothing(site, warehouse, action, body):
    seeded(warehouse, plan())
    answer = site.client().post(f"{site.place(plan())}/{action}", json=body)
    assert answer.status_code in (400, 422), answer.text
    assert states(warehouse) == ["pending"] * 5


def test_what_cannot_be_written_down_is_not_done(site, warehouse, monkeypatch):
    from airflow_provider_backfill.plugins import actions

    def broken(*_, **__):
        raise RuntimeError("the database is down")

    seeded(warehouse, plan())
    monkeypatch.setattr(actions, "record", broken)
    with pytest.raises(RuntimeError, match="is down"):
        site.client().post(f"{site.place(plan())}/pause", json={})
    with warehouse.connect(10) as session:
        assert BackfillControls(session, warehouse).read() == {}


def test_a_file_in_use_is_an_answer_and_no_error(site, warehouse, monkeypatch):
    from airflow_provider_backfill.engine.peek import turn

    seeded(warehouse, plan())
    place = site.place(plan())
    monkeypatch.setattr("airflow_provider_backfill.plugins.actions.PATIENCE_SECONDS", 0.1)
    with turn(warehouse, 10):
        answer = site.client().post(f"{place}/pause", json={})
    assert answer.status_code == 503
    assert "another request has it open" in answer.json()["detail"]


# A new backfill

WINDOW = {"start": "2026-01-01", "end": "2026-01-06"}


@pytest.fixture(autouse=True)
def _no_dag_runs(airflow_site):
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    yield
    with create_session() as session:
        session.execute(delete(DagRun))


def create(site, dag_id="on_demand", code=201, **body):
    answer = site.client().post(f"{API}/dags/{dag_id}/backfills", json=body)
    assert answer.status_code == code, answer.text
    return answer.json()


def test_a_new_backfill_is_a_dag_run_and_the_same_again_joins_it(site):
    first = create(site, params=WINDOW)
    assert (first["dag_id"], first["state"], first["joined"]) == ("on_demand", "queued", False)
    assert first["run"] == f"/dags/on_demand/runs/{first['dag_run_id']}"
    again = create(site, code=200, params=dict(reversed(WINDOW.items())))
    assert (again["dag_run_id"], again["joined"]) == (first["dag_run_id"], True)
    others = [
        create(site, params={**WINDOW, "end": "2026-01-07"}),
        create(site, params=WINDOW, request="once more"),
    ]
    assert len({first["dag_run_id"], *(other["dag_run_id"] for other in others)}) == 3
    run = conf_of(first["dag_run_id"])
    assert run == (WINDOW, "editor")
    assert [event for event, *_ in audit()] == ["backfill.create"] * 3


def conf_of(run_id: str):
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        run = session.scalar(select(DagRun).where(DagRun.run_id == run_id))
        return run.conf, run.triggering_user_name


def test_params_that_the_dag_does_not_take_start_nothing(site):
    refused = create(site, code=400, params={"start": "yesterday", "end": "2026-01-06"})
    assert "yesterday" in refused["detail"]
    create(site, code=400)
    create(site, dag_id="plain", code=404)
    create(site, dag_id="there_is_none", code=404)
    create(site, code=422, params=[])


def test_two_that_ask_the_same_at_the_same_time_get_one_run(site, monkeypatch):
    """Both have seen that there is none."""
    from airflow_provider_backfill.plugins import trigger as module

    answer, seen = module._answer, []

    def blind(*arguments, joined):
        seen.append(joined)
        return None if len(seen) in (1, 3) else answer(*arguments, joined=joined)

    monkeypatch.setattr(module, "_answer", blind)
    first = create(site, params=WINDOW)
    again = create(site, code=200, params=WINDOW)
    assert (first["dag_run_id"], first["joined"], again["joined"]) == (again["dag_run_id"], False, True)
