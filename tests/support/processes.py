"""Small things about ports and processes that the helpers of this package share."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable

import psutil

_PR_SET_PDEATHSIG = 1


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def die_with_parent(how: signal.Signals) -> Callable[[], None] | None:
    """A ``preexec_fn``: Linux sends ``how`` when this process dies without a chance to clean up (kill -9)."""
    # The kernel watches the thread that forked, not the process, so only the main thread may ask.
    if not sys.platform.startswith("linux") or threading.current_thread() is not threading.main_thread():
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, how)


def end_sessions(leaders: Iterable[int], *, patience: float = 5.0) -> None:
    """End processes that were started with ``start_new_session``, and everything they started.

    The leaders are asked first, so that they can end what they started in their own order. Children are
    found by session as well as by descent: one may have left the session, another may have lost its parent.

    Args:
        leaders: Process ids.
        patience: Seconds until what is left is killed.
    """
    leaders = set(leaders)
    deadline = time.monotonic() + patience
    family = _family(leaders)
    _signal((process for process in family if process.pid in leaders), signal.SIGTERM)
    alive = family
    while alive and time.monotonic() < deadline:
        _, alive_now = psutil.wait_procs(alive, timeout=0.2)
        alive = set(alive_now) | _family(leaders)
    _signal(alive, signal.SIGKILL)
    psutil.wait_procs(alive, timeout=5)


def _family(leaders: set[int]) -> set[psutil.Process]:
    found: set[psutil.Process] = set()
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and os.getsid(process.pid) in leaders:
                found |= {process, *process.children(recursive=True)}
    return found


def _signal(processes: Iterable[psutil.Process], how: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(how)
