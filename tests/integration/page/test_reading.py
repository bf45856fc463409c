"""What the API tells of backfills, and what it says where nothing can be read."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from airflow_provider_backfill.engine.plan import make_plan
from airflow_provider_backfill.engine.records import Claimant
from airflow_provider_backfill.engine.window import Window
from tests.integration.page.conftest import API, on_both
from tests.support.ledgers import end_leases, opened, plan, seeded, take

TASK = Claimant(
    claimed_by="worker-1:7",
    dag_id="events",
    dag_run_id="manual__2026",
    task_id="web_events.chunk",
    map_index=2,
)


def get(site, place: str, user: str = "editor", **query) -> dict[str, Any]:
    answer = site.client(user).get(place, params=query)
    assert answer.status_code == httpx.codes.OK, answer.text
    return answer.json()


@on_both
def test_a_backfill_from_the_list_to_its_chunks(site, warehouse):
    backfill = plan()
    seeded(warehouse, backfill)
    with opened(warehouse) as ledger:
        ledger.complete(take(ledger, backfill, 0), 12, ["1.0"])
        ledger.fail(take(ledger, backfill, 1), "ConnectionError: it hung up")
        ledger.claim(ledger.chunk(backfill.backfill_id, "000002"), TASK, 60)
    listed = get(site, f"{API}/dags/events/backfills")
    [ledger_document], [mine] = listed["ledgers"], listed["backfills"]
    assert ledger_document["state"] == "read"
    assert (ledger_document["connection"], ledger_document["dataset"]) == ("warehouse", "web_raw")
    assert ledger_document["tasks"] == ["web_events"]
    assert (mine["state"], mine["chunks"], mine["done"], mine["rows"]) == ("running", 5, 1, 12)
    assert (mine["start"], mine["end"]) == ("2026-01-01T00:00:00+00:00", "2026-01-06T00:00:00+00:00")
    assert mine["last_error"]["error"] == "ConnectionError: it hung up"
    place = site.place(backfill)
    assert get(site, place)["backfill"] == mine
    chunks = get(site, f"{place}/chunks", limit=2, offset=1)
    assert chunks["total"] == 5
    failed, held = chunks["chunks"]
    assert (failed["number"], failed["condition"], failed["error"]) == (
        2,
        "failed",
        "ConnectionError: it hung up",
    )
    assert failed["task"] is failed["holder"] is None
    assert (held["condition"], held["holder"]["name"], held["attempt"]) == ("held", "worker-1:7", 1)
    assert 0 < held["holder"]["seconds_left"] <= 60
    assert held["task"]["log"] == "/dags/events/runs/manual__2026/tasks/web_events.chunk/mapped/2"
    assert held["task"]["run"] == "/dags/events/runs/manual__2026"
    one = get(site, f"{place}/chunks/000002")
    assert (one["chunk"]["chunk_id"], one["attempts"]) == ("000002", [])
    grid = get(site, f"{place}/grid")
    assert grid["group"] == "chunk"
    assert [cell["condition"] for cell in grid["rows"][0]["cells"]] == [
        "completed",
        "failed",
        "held",
        "pending",
        "pending",
    ]


@on_both
def test_coverage_and_its_gaps_by_page(site, warehouse):
    backfill = plan(days=9)
    seeded(warehouse, backfill)
    with opened(warehouse) as ledger:
        for chunk in (0, 2, 3, 8):
            ledger.complete(take(ledger, backfill, chunk), 1, ["1.0"])
    found = get(site, f"{site.place(backfill)}/coverage", limit=1, offset=1)
    assert (found["covered_total"], found["gaps_total"]) == (3, 2)
    assert found["covered"] == [{"start": "2026-01-03T00:00:00+00:00", "end": "2026-01-05T00:00:00+00:00"}]
    assert found["gaps"] == [{"start": "2026-01-05T00:00:00+00:00", "end": "2026-01-09T00:00:00+00:00"}]


def test_chunks_are_chosen_by_how_they_stand_and_by_range(site, warehouse):
    backfill = plan(days=9)
    seeded(warehouse, backfill)
    with opened(warehouse) as ledger:
        take(ledger, backfill, 4)
    end_leases(warehouse)
    place = f"{site.place(backfill)}/chunks"

    def numbers(**query):
        return [chunk["number"] for chunk in get(site, place, **query)["chunks"]]

    assert numbers(condition="lapsed") == [5]
    assert numbers(start="2026-01-08") == [8, 9]
    assert numbers(start="2026-01-02T12:00:00+00:00", end="2026-01-03") == [2]
    client = site.client()
    for query in ({"start": "2026-01-08T00:00:00"}, {"end": "8"}, {"condition": "x"}, {"limit": 1_001}):
        assert client.get(place, params=query).status_code in (400, 422), query
    assert client.get(f"{place}/000009").status_code == 404


def test_whole_numbers_stay_such(site, warehouse):
    backfill = make_plan("orders", Window.parse(0, 1_000), 250)
    seeded(warehouse, backfill)
    place = site.place(backfill)
    found = get(site, place)["backfill"]
    assert (found["start"], found["end"], found["chunk_size"]) == (0, 1_000, "250")
    chunks = get(site, f"{place}/chunks", start="300")["chunks"]
    assert [(chunk["start"], chunk["end"]) for chunk in chunks] == [(250, 500), (500, 750), (750, 1_000)]
    assert site.client().get(f"{place}/chunks", params={"start": str(2**62)}).status_code == 400


def test_the_backfills_of_one_dag_run(site, warehouse):
    here, before = plan(), plan(source="another")
    seeded(warehouse, here, before)
    with opened(warehouse) as ledger:
        ledger.claim(ledger.chunk(here.backfill_id, "000000"), TASK, 60)
    listed = get(site, f"{API}/dags/events/backfills", run_id="manual__2026")
    assert [each["source"] for each in listed["backfills"]] == ["web_events"]
    assert get(site, f"{API}/dags/events/backfills", run_id="other")["backfills"] == []
    assert len(get(site, f"{API}/dags/events/backfills")["backfills"]) == 2


def test_the_task_of_a_dag_that_one_may_not_look_at_is_not_told(site, warehouse):
    seeded(warehouse, plan())
    with opened(warehouse) as ledger:
        for chunk, dag_id in ((0, "events"), (1, "neighbours")):
            row = ledger.chunk(plan().backfill_id, f"{chunk:06d}")
            ledger.claim(row, Claimant(claimed_by="w:1", dag_id=dag_id, dag_run_id="r", task_id="t"), 60)
    place = f"{site.place(plan(), 'neighbours')}/chunks"
    tasks = {
        user: [chunk["task"] and chunk["task"]["dag_id"] for chunk in get(site, place, user)["chunks"][:2]]
        for user in ("viewer", "neighbour")
    }
    assert tasks == {"viewer": ["events", "neighbours"], "neighbour": [None, "neighbours"]}


def test_ledgers_that_cannot_be_read_say_why_and_tell_no_secret(site, warehouse):
    listed = get(site, f"{API}/dags/many/backfills")
    assert "s3cret" not in str(listed)
    states = {ledger["tasks"][0]: (ledger["state"], ledger["reason"]) for ledger in listed["ledgers"]}
    assert states == {
        "look": ("absent", "the database does not exist"),
        "templated": ("unreadable", "its conn_id is a template, which only a task can fill in; write it out"),
        "inline": (
            "unreadable",
            "its destination is written in the DAG's code, which the page does not run; name a conn_id",
        ),
        "unknown": ("unreachable", "The conn_id `nowhere` isn't defined"),
    }
    for ledger in listed["ledgers"]:
        place = f"{API}/dags/many/ledgers/{ledger['ledger']}/backfills/{plan().backfill_id}"
        status = site.client().get(place).status_code
        assert status == (503 if ledger["state"] == "unreachable" else 404)


def test_a_dag_that_backfills_nothing_has_no_page(site):
    for dag_id in ("plain", "there_is_none", "events/../plain"):
        assert site.client().get(f"{API}/dags/{dag_id}/backfills").status_code == 404


def test_no_ledger_but_those_that_the_dag_names(site, warehouse):
    """The same connection has another dataset, which no task of the DAG loads into."""
    from dataclasses import replace

    from airflow_provider_backfill.plugins.ledgers import NamedLedger

    seeded(replace(warehouse, dataset_name="payroll"), plan())
    other = NamedLedger(conn_id="warehouse", dataset_name="payroll", into=None, tasks=())
    place = f"{API}/dags/events/ledgers/{other.key}/backfills/{plan().backfill_id}"
    assert site.client().get(place).status_code == 404


def test_while_a_load_has_the_file_the_last_look_is_shown(site, warehouse):
    from airflow_provider_backfill.engine.peek import turn

    seeded(warehouse, plan())
    before = get(site, f"{API}/dags/events/backfills")
    assert before["ledgers"][0]["reason"] is None
    inside, done = threading.Event(), threading.Event()

    def load():
        with turn(warehouse, 10):
            inside.set()
            done.wait(30)

    worker = threading.Thread(target=load)
    worker.start()
    try:
        assert inside.wait(30)
        # Within a second the same look answers again.
        for key, (_, look) in site.plugin.state.looks._kept.items():
            site.plugin.state.looks._kept[key] = 0.0, look
        listed = get(site, f"{API}/dags/events/backfills")
        place = f"{before['backfills'][0]['page'].replace('/backfills/', '/backfills/api/v1/', 1)}/grid"
        unseen = site.client().get(place)
    finally:
        done.set()
        worker.join()
    [ledger] = listed["ledgers"]
    assert (ledger["state"], ledger["reason"]) == ("busy", "another request has it open")
    assert ledger["as_of"] == before["ledgers"][0]["as_of"]
    assert listed["backfills"] == before["backfills"]
    # What was never looked at cannot be shown.
    assert (unseen.status_code, unseen.headers["retry-after"]) == (503, "2")


def test_who_looks_at_the_same_time_looks_once(site, warehouse, monkeypatch):
    from airflow_provider_backfill.engine.peek import peek

    seeded(warehouse, plan())
    opened_files = []

    def counted(target, ask):
        opened_files.append(target)
        return peek(target, ask)

    monkeypatch.setattr("airflow_provider_backfill.plugins.looks.peek", counted)
    client = site.client()
    threads = [threading.Thread(target=client.get, args=(f"{API}/dags/events/backfills",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened_files) == 1


@on_both
def test_what_was_marked_by_people_and_loaded_by_others(site, warehouse):
    hours = make_plan("web_events", Window.parse("2026-01-01", "2026-01-02"), "12h")
    seeded(warehouse, plan(), hours)
    with opened(warehouse) as ledger:
        ledger.complete(take(ledger, plan(), 0), 3, ["1.0"])
        ledger.cover(hours.backfill_id, ledger.coverage(hours))
    first = get(site, f"{site.place(hours)}/chunks")["chunks"][0]
    assert (first["status"], first["condition"]) == ("completed", "covered")
    assert first["covered_by"] == [plan().backfill_id]


@on_both
def test_the_list_of_all_dags(site, warehouse):
    backfills = [plan(source=f"source_{number}") for number in range(12)]
    seeded(warehouse, *backfills)
    listed = get(site, f"{API}/dags", limit=2)
    assert listed["total"] == 4
    assert [each["dag_id"] for each in listed["dags"]] == ["events", "many"]
    # Those of no DAG are everybody's, and ten are enough for a list.
    assert len(listed["dags"][0]["backfills"]) == 10
    assert [each["dag_id"] for each in get(site, f"{API}/dags", limit=2, offset=3)["dags"]] == ["on_demand"]


def test_the_address_follows_the_path_that_airflow_is_served_under(site, warehouse):
    from fastapi.testclient import TestClient

    seeded(warehouse, plan())
    client = TestClient(site.app, root_path="/air/flow")
    client.headers["authorization"] = f"Bearer {site.tokens['editor']}"
    [found] = client.get(f"/air/flow{API}/dags/events/backfills").json()["backfills"]
    assert found["page"].startswith("/air/flow/backfills/dags/events/ledgers/")


@pytest.mark.parametrize("dag_id", ["events' OR '1'='1", "events;--", "événements", "a" * 250])
def test_what_stands_in_an_address_is_never_sql(site, warehouse, dag_id):
    seeded(warehouse, plan())
    assert site.client().get(f"{API}/dags/{dag_id}/backfills").status_code == 404
    listed = get(site, f"{API}/dags/events/backfills", run_id=dag_id)
    assert listed["backfills"] == []
