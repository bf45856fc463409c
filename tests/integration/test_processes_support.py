"""What the throw-away Airflow is ended with leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.support.processes import end_sessions

# One child in the session, one that left it, one that lost its parent; none listens to SIGTERM.
STUBBORN = """
trap '' TERM
sleep 300 &
setsid sleep 300 &
(sleep 300 &)
echo started
wait
"""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a session of its own, gone at the end of the test also when that fails."""
    started: list[subprocess.Popen[str]] = []

    def make(*command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        started.append(process)
        return process

    yield make
    for process in started:
        process.kill()
        process.communicate()


def members(session: int) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):
            if os.getsid(process.pid) == session:
                yield process


def test_ends_what_left_the_session_or_lost_its_parent(start: Callable[..., subprocess.Popen[str]]) -> None:
    leader, bystander = start("bash", "-c", STUBBORN), start("sleep", "300")
    assert leader.stdout is not None
    assert leader.stdout.readline() == "started\n"
    family = {*psutil.Process(leader.pid).children(recursive=True), *members(leader.pid)}
    assert len(family) == 4

    began = time.monotonic()
    end_sessions([leader.pid], patience=1)

    assert time.monotonic() - began < 10
    _, alive = psutil.wait_procs(family, timeout=5)
    assert alive == []
    assert bystander.poll() is None


def test_what_ends_when_it_is_told_to_is_not_waited_for(start: Callable[..., subprocess.Popen[str]]) -> None:
    leader = start("sleep", "300")
    began = time.monotonic()
    end_sessions([leader.pid], patience=60)
    assert time.monotonic() - began < 10
    assert leader.poll() is not None
