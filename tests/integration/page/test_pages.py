"""The pages as the server makes them, without a browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from airflow_provider_backfill.engine.controls import BackfillControls, ControlState
from airflow_provider_backfill.engine.overview import BackfillState, Condition
from airflow_provider_backfill.engine.plan import make_plan
from airflow_provider_backfill.engine.window import Window
from tests.integration.page.conftest import API, on_both
from tests.support.ledgers import end_leases, opened, plan, seeded, sql, take
from tests.support.pages import DOCS

HTML = {"accept": "text/html"}
VOID = {"meta", "link", "input", "br"}


class Outline(HTMLParser):
    """Every element of a page with its attributes; an element that is not closed is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def page(site, place: str, user: str = "editor", code: int = 200, **query) -> str:
    answer = site.client(user).get(place, params=query, headers=HTML)
    assert answer.status_code == code, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    text: str = answer.text
    # Nothing comes from elsewhere, and nothing runs or is styled but what the policy lets in.
    assert not re.search(r'(src|href)="(https?:)?//', text)
    assert not re.search(r"<script>|<style|\bstyle=|\bon\w+=", text)
    return text


def page_of(site, backfill, **options) -> str:
    return page(site, site.place(backfill).replace("/api/v1", ""), **options)


def many_conditions(target):
    """A backfill with a chunk of each kind."""
    backfill = plan(days=8)
    hours = make_plan("web_events", Window.parse("2026-01-01", "2026-01-02"), "12h")
    seeded(target, backfill)
    with opened(target) as ledger:
        take(ledger, backfill, 3)
    end_leases(target)
    with opened(target) as ledger:
        ledger.complete(take(ledger, backfill, 0), 1_234, ["1.0"])
        ledger.complete(take(ledger, backfill, 1), 10, ["2.0"])
        ledger.fail(take(ledger, backfill, 4), 'ValueError: <b>not</b> & "bold"')
        take(ledger, backfill, 5)
        ledger.seed(hours)
        ledger.cover(hours.backfill_id, ledger.coverage(hours))
    return backfill


@on_both
def test_the_page_of_a_backfill(site, warehouse):
    backfill = many_conditions(warehouse)
    text = page_of(site, backfill)
    outline = Outline(text)
    cells = [each for each in outline.all("a") if each.get("role") == "gridcell"]
    assert [each["class"] for each in cells] == [
        "k-completed",
        "k-completed",
        "k-pending",
        "k-lapsed",
        "k-failed",
        "k-held",
        "k-pending",
        "k-pending",
    ]
    assert cells[4]["aria-label"] == "Chunk 5, 2026-01-05 → 2026-01-06: failed"
    assert cells[4]["href"] == "?chunk=000004#detail"
    assert "2 of 8 chunks done" in text
    assert "1,244 rows" in text
    # What a source says in its errors is text.
    assert "ValueError: &lt;b&gt;not&lt;/b&gt; &amp;" in text
    assert {each["data-act"] for each in outline.all("button") if "data-act" in each} == {
        "pause",
        "cancel",
        "restate",
        "mark",
    }
    assert len(outline.all("figure")) == 2
    assert "2 gaps" not in text
    assert "1 gap" in text


def test_every_condition_and_state_has_a_sign_of_its_own():
    from airflow_provider_backfill.plugins.wording import GLYPHS

    assert set(GLYPHS) == {str(word) for kind in (Condition, BackfillState) for word in kind}
    for kind in (Condition, BackfillState):
        assert len({GLYPHS[word] for word in kind}) == len(kind)
    told = (DOCS / "howto" / "backfill-page.md").read_text(encoding="utf-8")
    for condition in Condition:
        assert f"| `{condition}` | {GLYPHS[condition]} |" in told


def test_who_may_only_look_is_offered_nothing(site, warehouse):
    backfill = many_conditions(warehouse)
    assert "data-act" in page_of(site, backfill, chunk="000005")
    assert "data-act" not in page_of(site, backfill, user="viewer", chunk="000005")


@pytest.mark.parametrize(
    ("chunk", "acts", "told"),
    [
        ("000000", {"restate", "mark"}, "1,234"),
        ("000002", {"mark"}, "Attempts"),
        ("000003", {"release"}, "the lease ran out"),
        ("000004", {"mark"}, "ValueError"),
        ("000005", {"release"}, "the lease runs out in"),
    ],
)
def test_a_chunk_with_what_can_be_done_with_it(site, warehouse, chunk, acts, told):
    text = page_of(site, many_conditions(warehouse), chunk=chunk)
    detail = text[text.index('<section id="detail"') :]
    detail = detail[: detail.index("</section>")]
    assert set(re.findall(r'data-act="(\w+)"', detail)) == acts
    assert told in detail


def test_a_choice_is_kept_in_the_address_and_another_begins_anew(site, warehouse):
    backfill = plan(days=120)
    seeded(warehouse, backfill)
    text = page_of(site, backfill, condition="pending", offset=50)
    assert "51 to 100 of 120" in text
    links = {each["href"] for each in Outline(text).all("a")}
    assert {"?condition=pending", "?condition=pending&offset=100"} <= links
    assert "?condition=failed#h-list" in links
    assert "?condition=pending&group=month" in links
    assert "None" not in text


def test_paused(site, warehouse):
    seeded(warehouse, plan())
    with warehouse.connect(10) as session:
        BackfillControls(session, warehouse).put(
            "web_events", plan().backfill_id, ControlState.PAUSED, "alice", "the API is slow"
        )
    text = page_of(site, plan())
    assert "Paused by alice at " in text
    assert set(re.findall(r'data-act="(\w+)"', text)) == {"resume", "cancel", "restate", "mark"}


def test_the_lists(site, warehouse):
    seeded(warehouse, *(plan(source=f"source_{number:02}") for number in range(60)))
    text = page(site, "/backfills/dags/events")
    assert "1 to 50 of 60" in text
    Outline(text)
    everything = page(site, "/backfills/")
    assert [dag for dag in ("events", "many", "neighbours", "on_demand") if f">{dag}</a>" in everything]
    assert "cannot be looked into" in everything
    assert "s3cret" not in everything
    assert "This run has planned none yet." in page(site, "/backfills/dags/events", run_id="manual__1")


def test_errors_are_pages_too(site, warehouse):
    assert "Log in" in page(site, "/backfills/dags/events", user=None, code=401)
    assert "Forbidden" in page(site, "/backfills/dags/events", user="stranger", code=403)
    assert "no task that backfills" in page(site, "/backfills/dags/plain", code=404)
    assert "offset" in page(site, "/backfills/dags/events", code=422, offset="x")
    seeded(warehouse, plan())
    assert "start" in page_of(site, plan(), code=400, start="yesterday")
    # The API answers scripts, whatever they say they take.
    answer = site.client().get(f"{API}/dags/plain/backfills", headers=HTML)
    assert answer.json()["detail"]


def test_the_script_gets_what_is_inside_and_nothing_if_nothing_has_changed(site, warehouse):
    seeded(warehouse, plan())
    place = site.place(plan()).replace("/api/v1", "")
    client = site.client()
    first = client.get(place, headers={"x-backfill-fragment": "1"})
    assert "<html" not in first.text
    assert first.text.strip() in client.get(place).text
    assert first.headers["x-backfill-next"] == "10"
    same = {"x-backfill-fragment": "1", "if-none-match": first.headers["etag"]}
    assert client.get(place, headers=same).status_code == 304
    with opened(warehouse) as ledger:
        take(ledger, plan())
    site.forget()
    changed = client.get(place, headers=same)
    assert (changed.status_code, changed.headers["x-backfill-next"]) == (200, "2")
    sql(warehouse, "UPDATE {ledger} SET status = 'completed', completed_at = now()")
    site.forget()
    # Nothing more will happen by itself.
    assert client.get(place, headers=same).headers["x-backfill-next"] == "0"


def test_scripts_and_styles_come_from_the_package(site, warehouse):
    client = site.client()
    outline = Outline(client.get("/backfills/").text)
    places = [each["src"] for each in outline.all("script")] + [each["href"] for each in outline.all("link")]
    assert len(places) == 3
    for place in places:
        answer = client.get(place)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(("text/javascript", "text/css"))
        assert "http:" not in answer.text.replace("http://www.w3.org", "")
    for name in ("page.html", "..%2Fapp.py", "app.py"):
        assert client.get(f"/backfills/static/{name}").status_code == 404


@on_both
def test_ten_thousand_chunks_stay_a_small_page(site, warehouse):
    backfill = make_plan("web_events", Window.parse("2000-01-01", "2027-05-19"), "1d", warn_chunks=10_000)
    assert len(backfill.chunks) == 10_000
    seeded(warehouse, backfill)
    sql(
        warehouse,
        "UPDATE {ledger} SET status = 'completed', records_loaded = 5, load_ids = '1.0',"
        " started_at = now() - INTERVAL '30 second', completed_at = now() WHERE chunk_id >= '000500'",
    )
    text = page_of(site, backfill)
    assert len(text.encode()) < 500_000
    assert "9,500" in text
    assert len(page_of(site, backfill, group="week").encode()) < 500_000
