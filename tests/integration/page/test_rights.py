"""Who may: every route and method of the API, with and without a login, and which backfills one sees."""

from __future__ import annotations

import re

import pytest

from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.records import Claimant
from tests.integration.page.conftest import API
from tests.support.ledgers import opened, plan, seeded
from tests.support.pages import DOCS

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
FILLED = {"dag_id": "events", "ledger": "0" * 12, "backfill_id": "d7a7c6e21e0d8ecb", "chunk_id": "000000"}


def operations(site) -> list[tuple[str, str]]:
    """Method and address of everything that the OpenAPI document describes."""
    document = site.client().get("/backfills/openapi.json").json()
    found = [
        (method.upper(), f"/backfills{path.format(**FILLED)}")
        for path, item in document["paths"].items()
        for method in item
    ]
    assert len(found) >= 14
    return found


def every_route(site) -> list[tuple[str, str]]:
    """What the application itself has, described or not."""
    return [
        (method, f"/backfills{route.path.format(**FILLED, name='page.css')}")
        for route in site.plugin.routes
        for method in route.methods
    ]


def test_the_document_has_every_route_of_the_api(site):
    described = set(operations(site))
    assert {route for route in every_route(site) if route[1].startswith(API)} == described


def test_the_docs_have_every_operation(site):
    told = (DOCS / "howto" / "backfill-page.md").read_text(encoding="utf-8")
    names = {FILLED["backfill_id"]: "{backfill_id}", FILLED["chunk_id"]: "{chunk_id}"}
    for method, address in operations(site):
        last = address.rpartition("/")[2]
        assert re.search(rf"[`/]{re.escape(names.get(last, last))}`", told), (method, address)


def test_without_a_login_every_route_and_method_is_401(site):
    client = site.client(None)
    places = {address for _, address in [*operations(site), *every_route(site)]}
    places |= {"/backfills/", "/backfills/nothing", "/backfills/dags", "/backfills/static/../app.py"}
    answers = {
        (method, place): client.request(method, place, content=b"{no json").status_code
        for place in places
        for method in METHODS
    }
    assert {answer for answer, status in answers.items() if status != 401} == set()


@pytest.mark.parametrize("garbage", ["", "x", "a.b.c"])
def test_a_token_that_is_none_lets_nobody_in(site, garbage):
    client = site.client(None)
    client.headers["authorization"] = f"Bearer {garbage}"
    assert client.get(f"{API}/dags/events/backfills").status_code in (401, 403)
    client = site.client(None)
    client.cookies["_token"] = garbage
    assert client.get(f"{API}/dags/events/backfills").status_code in (401, 403)


def test_without_any_right_every_route_is_403(site):
    client = site.client("stranger")
    answers = {
        (method, place): client.request(method, place, content=b"{no json").status_code
        for method, place in [*operations(site), *every_route(site)]
    }
    assert {answer for answer, status in answers.items() if status != 403} == set()


def test_who_may_only_look_may_not_act(site):
    client = site.client("viewer")
    for method, place in operations(site):
        status = client.request(method, place, content=b"{no json").status_code
        assert (status == 403) == (method == "POST"), (method, place, status)


def test_the_right_is_asked_for_the_dag_in_the_address_and_no_other(site):
    client = site.client("neighbour")
    assert client.get(f"{API}/dags/neighbours/backfills").status_code == 200
    for dag_id in ("events", "plain", "there_is_none"):
        for suffix in ("", "?dag_id=neighbours"):
            assert client.get(f"{API}/dags/{dag_id}/backfills{suffix}").status_code == 403


def test_the_list_of_dags_has_those_that_one_may_look_at(site):
    def shown(user):
        return [each["dag_id"] for each in site.client(user).get(f"{API}/dags").json()["dags"]]

    assert shown("neighbour") == ["neighbours"]
    assert shown("viewer") == ["events", "many", "neighbours", "on_demand"]


def test_what_another_dag_runs_is_not_seen_through_this_one(site, warehouse):
    mine, theirs, nobodys = plan(), plan(source="their_source"), plan(source="by_command")
    seeded(warehouse, mine, theirs, nobodys)
    with opened(warehouse) as ledger:
        claim_for(ledger, mine, "events")
        claim_for(ledger, theirs, "neighbours")
    client = site.client("editor")

    def seen(dag_id):
        listed = client.get(f"{API}/dags/{dag_id}/backfills").json()
        return listed["ledgers"][0]["ledger"], {each["source"] for each in listed["backfills"]}

    ledger, sources = seen("events")
    assert sources == {"web_events", "by_command"}
    assert seen("neighbours")[1] == {"their_source", "by_command"}
    place = f"{API}/dags/events/ledgers/{ledger}/backfills/{theirs.backfill_id}"
    for suffix in ("", "/chunks", "/grid", "/coverage", "/chunks/000000"):
        assert client.get(place + suffix).status_code == 404
    for action in ("pause", "resume", "cancel"):
        assert client.post(f"{place}/{action}", json={}).status_code == 404
    assert client.post(f"{place}/release", json={"chunk_id": "000000"}).status_code == 404
    with opened(warehouse) as ledger:
        assert ledger.chunk(theirs.backfill_id, "000000").status == "running"


def claim_for(ledger: Ledger, backfill, dag_id: str) -> None:
    row = ledger.chunk(backfill.backfill_id, "000000")
    me = Claimant(claimed_by="w:1", dag_id=dag_id, dag_run_id="r", task_id="t.chunk", map_index=0)
    assert ledger.claim(row, me, 3_600)


# What a browser is made to do by another site


def test_with_the_cookie_alone_one_looks_and_does_not_act(site, warehouse):
    seeded(warehouse, plan())
    browser = site.browser()
    place = site.place(plan())
    for headers in ({}, {"X-Backfill-Token": "x"}, {"origin": "http://testserver"}):
        assert browser.post(f"{place}/pause", json={}, headers=headers).status_code == 403
    assert browser.post(f"{API}/dags/events/backfills", json={}).status_code == 403
    with opened(warehouse) as ledger:
        ledger.claim(ledger.chunk(plan().backfill_id, "000000"), Claimant(claimed_by="w:1"), 60)


def test_the_pages_own_token_lets_it_act_unless_another_site_asks(site, warehouse):
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    from airflow_provider_backfill.plugins.rights import TOKEN_HEADER, page_token

    seeded(warehouse, plan())
    browser = site.browser()
    place = site.place(plan())
    mine, theirs = (
        {TOKEN_HEADER: page_token(SimpleAuthManagerUser(username=name, role="viewer"))}
        for name in ("editor", "viewer")
    )
    assert browser.post(f"{place}/pause", json={}, headers=theirs).status_code == 403
    crossing = {**mine, "sec-fetch-site": "cross-site"}
    assert browser.post(f"{place}/pause", json={}, headers=crossing).status_code == 403
    assert browser.post(f"{place}/pause", json={}, headers=mine).status_code == 200


def test_what_is_answered_brings_no_script_and_no_frame_from_elsewhere(site):
    for place in ("/backfills/openapi.json", f"{API}/dags", "/backfills/nothing"):
        policy = site.client().get(place).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'self'" in policy
