"""Processes forked from a lane, which has imported everything, runs one thread and never opens a database."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.support.processes import die_with_parent

T = TypeVar("T")
SECONDS = 90.0


class HarnessError(RuntimeError):
    """The harness itself did not do what it should; no word on the product."""


@dataclass(slots=True)
class Actor:
    """A process of ours.

    Args:
        pid: Its id.
        log: Where its stdout and stderr go.
        status: How it ended: an exit code, or minus a signal's number; None while it lives.
    """

    pid: int
    log: Path
    status: int | None = None

    def wait(self, seconds: float = SECONDS) -> int:
        """Wait for the end; the exit code, or minus the number of the signal.

        Raises:
            HarnessError: It goes on for longer.
        """
        if self.status is None:
            handle = os.pidfd_open(self.pid)
            try:
                ready, _, _ = select.select([handle], [], [], seconds)
            finally:
                os.close(handle)
            if not ready:
                raise HarnessError(f"process {self.pid} did not end within {seconds:g} s:\n{self.tail()}")
            _, status = os.waitpid(self.pid, 0)
            self.status = os.waitstatus_to_exitcode(status)
        return self.status

    @property
    def ended(self) -> bool:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def kill(self) -> None:
        """End it and what it has started, if it still runs."""
        if self.status is None:
            for target in (
                lambda: os.killpg(self.pid, signal.SIGKILL),
                lambda: os.kill(self.pid, signal.SIGKILL),
            ):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    target()
            self.wait(10)

    def tail(self, size: int = 3_000) -> str:
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""


def fork(work: Callable[[], int], log: Path, group: int | None = None) -> Actor:
    """Run ``work`` in a process, whose exit code it returns.

    Args:
        work: What to do.
        log: Where its output goes.
        group: The process group to join; default one of its own.
    """
    pid = os.fork()
    if pid:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(pid, group or pid)
        return Actor(pid, log)
    code = 70
    try:
        _settle(log, group)
        code = work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _settle(log: Path, group: int | None) -> None:
    die = die_with_parent(signal.SIGKILL)
    if die:
        die()
    with contextlib.suppress(PermissionError):
        os.setpgid(0, group or 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # What the lane had not yet written is the lane's.
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)


def in_child(work: Callable[[], T], log: Path, seconds: float = SECONDS) -> T:
    """What ``work`` returns, worked out in a process of its own: it may open databases.

    Raises:
        HarnessError: It failed, or took too long.
    """
    reading, writing = os.pipe()

    def child() -> int:
        os.close(reading)
        with open(writing, "wb") as pipe:
            pickle.dump(work(), pipe)
        return 0

    actor = fork(child, log)
    os.close(writing)
    data = bytearray()
    deadline = time.monotonic() + seconds
    try:
        while True:
            ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise HarnessError(f"no answer within {seconds:g} s:\n{actor.tail()}")
            block = os.read(reading, 1 << 16)
            if not block:
                break
            data += block
        if actor.wait(10) != 0:
            raise HarnessError(f"a process of the harness failed:\n{actor.tail()}")
    finally:
        os.close(reading)
        actor.kill()
    result: Any = pickle.loads(bytes(data))
    return result  # type: ignore[no-any-return]
