"""Debian's Chromium without a screen, for tests that look at pages as people do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: It asks for nothing from elsewhere. As root it runs without its sandbox only.
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; skips the test where there is none, but not in CI."""
    path = shutil.which("chromium")
    if path is None:
        remedy = "no chromium on the path; on Debian: apt-get install chromium"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(remedy)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()
