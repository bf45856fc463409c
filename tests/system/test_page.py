"""The page inside Airflow, in a real browser: watch a backfill, open what failed, load a chunk again."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.browser import chromium
from tests.system.conftest import World
from tests.system.test_steering import CHUNK, REPORT, Steered

pytest.importorskip("playwright", reason="the page is not there on Airflow 2.11")
from playwright.sync_api import Browser, FrameLocator, Page, expect

pytestmark = pytest.mark.timeout(600)

DAG = "steered_page"
#: Where pictures of the page are kept, if any are to be: ``make screenshots`` says.
PICTURES = os.environ.get("BACKFILL_SCREENSHOTS")
#: How long the page may take to show what has happened, milliseconds.
SOON = 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def steered(world: World, tmp_path: Path) -> Steered:
    return Steered(world, DAG, tmp_path)


class Visitor:
    """Somebody at the browser.

    Args:
        browser: The browser.
        world: Whose Airflow.
        session: What an earlier visit has left in the browser, the login among it; None: nothing.
    """

    def __init__(self, browser: Browser, world: World, session: Any = None) -> None:
        self.airflow = world.airflow
        self.context = browser.new_context(
            viewport={"width": 1280, "height": 900}, color_scheme="light", storage_state=session
        )
        self.page: Page = self.context.new_page()
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))

    def log_in(self) -> None:
        self.page.goto(self.airflow.address)
        self.page.get_by_label(re.compile("username", re.IGNORECASE)).fill(self.airflow.user)
        self.page.locator("input[type=password]").fill(self.airflow.password)
        self.page.get_by_role("button", name=re.compile("sign in|log in", re.IGNORECASE)).click()
        self.page.wait_for_url(lambda address: "/auth/" not in address, timeout=SOON)

    def choose(self, theme: str, width: int) -> None:
        """Airflow's theme, from the next page on, and the width of the window."""
        self.page.evaluate("theme => localStorage.setItem('theme', theme)", theme)
        self.page.set_viewport_size({"width": width, "height": 900 if width > 600 else 844})

    def frame(self) -> FrameLocator:
        return self.page.frame_locator("iframe[title^=Backfill]")

    def open_backfill(self) -> FrameLocator:
        """The DAG's page in Airflow, in it the tab, and in that the backfill."""
        self.page.goto(f"{self.airflow.address}/dags/{DAG}")
        self.page.get_by_role("link", name="Backfill", exact=True).click(timeout=SOON)
        self.frame().get_by_role("link", name="steered", exact=True).click(timeout=SOON)
        return self.frame()

    def picture(self, name: str) -> None:
        if PICTURES:
            self.page.screenshot(path=Path(PICTURES) / f"{name}.png")

    def close(self) -> None:
        self.context.close()
        assert self.faults == []


@pytest.fixture(scope="module")
def session(browser: Browser, world: World) -> Any:
    """What a login leaves in the browser."""
    visitor = Visitor(browser, world)
    visitor.log_in()
    left = visitor.context.storage_state()
    visitor.close()
    return left


@pytest.fixture
def visitor(browser: Browser, world: World, session: Any) -> Iterator[Visitor]:
    made = Visitor(browser, world, session)
    yield made
    made.close()


def expect_chunks(frame: FrameLocator | Page, *conditions: str) -> None:
    """Wait until the calendar shows the chunks so."""
    cells = frame.get_by_role("gridcell")
    expect(cells).to_have_class([re.compile(rf"\bk-{condition}\b") for condition in conditions], timeout=SOON)


def test_watch_open_what_failed_and_load_a_chunk_again(visitor: Visitor, steered: Steered) -> None:
    steered.put("hold-2")
    steered.put("down-4")
    run_id = steered.trigger()
    steered.until_running(1, run_id)
    frame = visitor.open_backfill()
    expect_chunks(frame, "completed", "held", "pending", "pending", "pending")
    visitor.picture("backfill-running")

    # It goes on by itself, and so does the page.
    steered.take("hold-2")
    expect_chunks(frame, "completed", "completed", "completed", "failed", "pending")
    assert steered.world.wait(DAG, run_id).state == "failed"

    frame.get_by_role("gridcell", name=re.compile("Chunk 4, .*: failed")).click()
    detail = frame.locator("#detail")
    expect(detail).to_contain_text("the source of day 4 is down", timeout=SOON)
    visitor.picture("backfill-failed")
    detail.get_by_role("link", name="Log in Airflow").click()
    visitor.page.wait_for_url(
        re.compile(rf"/dags/{DAG}/runs/.+/tasks/{re.escape(CHUNK)}/mapped/3"), timeout=SOON
    )
    expect(visitor.page.get_by_text("the source of day 4 is down").first).to_be_visible(timeout=SOON)

    frame = visitor.open_backfill()
    frame.get_by_role("gridcell", name=re.compile("Chunk 2, ")).click()
    frame.locator("#detail").get_by_role("button", name="Restate").click()
    frame.get_by_role("dialog").get_by_role("button", name="No").click()
    expect(frame.get_by_role("dialog")).to_be_hidden()
    assert steered.statuses()[1] == "completed"
    frame.locator("#detail").get_by_role("button", name="Restate").click()
    expect(frame.get_by_role("dialog")).to_contain_text("Load chunk 2 again?")
    visitor.picture("backfill-restate")
    frame.get_by_role("dialog").get_by_role("button", name="Yes").click()
    expect_chunks(frame, "completed", "pending", "completed", "failed", "pending")
    expect(frame.get_by_role("status")).to_contain_text("1 chunk to be loaded again")
    assert audited(steered.world, "backfill.restate") == [[1]]

    # The chunks that are not done, as somebody who follows the link would.
    steered.take("down-4")
    before = dict(steered.rows())
    tasks = [(CHUNK, 1), (CHUNK, 3), (CHUNK, 4), (REPORT, -1)]
    steered.world.airflow.clear_tasks(DAG, run_id, tasks)
    expect_chunks(frame, *["completed"] * 5)
    after = dict(steered.rows())
    assert sorted(after) == [1, 2, 3, 4, 5]
    assert after[2] != before[2]
    assert [after[day] for day in (1, 3)] == [before[day] for day in (1, 3)]
    assert steered.world.wait(DAG, run_id).state == "success"


def audited(world: World, event: str) -> list[list[int]]:
    """The chunks that lines of Airflow's audit log are about, counted from 0."""
    found = world.airflow.api.call("GET", "/eventLogs", params={"event": event, "dag_id": DAG})
    lines = [line for line in found["event_logs"] if line["owner"] == world.airflow.user]
    return [[int(chunk) for chunk in json.loads(line["extra"])["chunk_ids"]] for line in lines]


@pytest.fixture
def loaded(world: World, steered: Steered) -> str:
    """A DAG run that has loaded all of it, or found it loaded; a test before may have made it."""
    runs = world.airflow.api.run_ids(DAG)
    done = [run_id for run_id in runs if world.airflow.api.run_state(DAG, run_id) == "success"]
    return done[0] if done else steered.run().run_id


def test_light_and_dark_wide_and_narrow(visitor: Visitor, loaded: str) -> None:
    frame: FrameLocator | Page = visitor.open_backfill()
    expect_chunks(frame, *["completed"] * 5)
    # Nothing more will happen: the page asks no more.
    expect(frame.locator("#live")).to_have_attribute("data-next", "0")
    alone = frame.locator("html").evaluate("each => each.baseURI")
    for theme, width in (("light", 1280), ("dark", 1280), ("dark", 390), ("light", 390)):
        visitor.choose(theme, width)
        if width < 600:
            # What is around it is wider than that by itself.
            visitor.page.goto(alone)
            frame = visitor.page
        else:
            frame = visitor.open_backfill()
        expect_chunks(frame, *["completed"] * 5)
        expect(frame.locator("html")).to_have_attribute("data-theme", theme)
        ink = frame.locator("body").evaluate("each => getComputedStyle(each).color")
        brightness = sum(map(int, re.findall(r"\d+", ink)[:3]))
        assert (brightness > 400) == (theme == "dark")
        # Nothing has to be moved sideways.
        assert frame.locator("html").evaluate("each => each.scrollWidth <= each.clientWidth")
        visitor.picture(f"backfill-{theme}-{width}")


def test_the_tab_of_a_run_the_entry_in_the_navigation_and_the_keyboard(visitor: Visitor, loaded: str) -> None:
    page = visitor.page
    page.goto(f"{visitor.airflow.address}/dags/{DAG}/runs/{loaded}")
    page.get_by_role("link", name="Backfill", exact=True).click(timeout=SOON)
    expect(visitor.frame().get_by_role("heading", name="Backfills of this run")).to_be_visible(timeout=SOON)
    page.goto(f"{visitor.airflow.address}/plugin/backfills")
    frame = visitor.frame()
    expect(frame.get_by_role("heading", name="Backfills", exact=True)).to_be_visible(timeout=SOON)
    frame.get_by_role("link", name="steered", exact=True).click()
    expect_chunks(frame, *["completed"] * 5)
    frame.get_by_role("gridcell").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(frame.locator("#detail")).to_contain_text("Chunk 3 of 5", timeout=SOON)


def test_without_a_login_the_page_says_so(browser: Browser, world: World) -> None:
    context = browser.new_context()
    page = context.new_page()
    answer = page.goto(f"{world.airflow.address}/backfills/dags/{DAG}")
    assert answer is not None
    assert answer.status == httpx.codes.UNAUTHORIZED
    page.get_by_role("link", name="Log in").click()
    page.wait_for_url(re.compile("/auth/login"))
    context.close()
