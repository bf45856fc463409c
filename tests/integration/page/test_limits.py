"""What the page does not wait for, and what it does not tell."""

from __future__ import annotations

import pytest

from airflow_provider_backfill.plugins import actions
from tests.integration.page.conftest import API
from tests.support.ledgers import opened, plan, seeded, sql, take

on_postgres = pytest.mark.parametrize("warehouse", ["postgres"], indirect=True)


@pytest.mark.parametrize("path", ["/backfills/dags/events/", f"{API}/dags/", "/backfills/openapi.json/"])
def test_an_address_with_a_slash_too_many_is_no_answer_without_a_login(site, path):
    answer = site.client(None).get(path, follow_redirects=False)
    assert answer.status_code == 401
    assert site.client().get(path, follow_redirects=False).status_code == 404


@on_postgres
def test_an_action_does_not_wait_for_a_lock_of_somebody_else(site, warehouse, monkeypatch):
    monkeypatch.setattr(actions, "PATIENCE_SECONDS", 0.5)
    seeded(warehouse, plan())
    with opened(warehouse) as ledger:
        take(ledger, plan())
    place = site.place(plan())
    with warehouse.connect(10) as other, other.transaction():
        other.execute(f"SELECT 1 FROM {warehouse.ledger} FOR UPDATE")
        answer = site.client().post(f"{place}/release", json={"chunk_id": "000000"})
    assert answer.status_code == 503
    assert "kept it locked" in answer.json()["detail"]
    with opened(warehouse) as ledger:
        assert ledger.chunk(plan().backfill_id, "000000").held


@on_postgres
def test_what_the_database_refuses_is_an_answer(site, warehouse):
    seeded(warehouse, plan())
    place = site.place(plan())
    database = warehouse.credentials.rpartition("/")[2]
    sql(warehouse, f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    answer = site.client().post(f"{place}/pause", json={})
    assert answer.status_code == 409
    assert "read-only transaction" in answer.json()["detail"]


def test_why_a_chunk_failed_is_told_to_whom_the_tasks_log_is_open(site, warehouse):
    seeded(warehouse, plan())
    with opened(warehouse) as ledger:
        ledger.fail(take(ledger, plan()), "Key (email)=(alice@example.com) already exists")
    place = site.place(plan())
    paths = (
        place,
        f"{place}/chunks",
        f"{place}/chunks/000000",
        f"{API}/dags",
        f"{API}/dags/events/backfills",
    )
    page = place.replace(API, "/backfills")
    for path in (*paths, page):
        assert "alice" in site.client("viewer").get(path).text
        quiet = site.client("outsider").get(path)
        assert quiet.status_code == 200, path
        assert "alice" not in quiet.text
        assert "you may not read the task" in quiet.text
