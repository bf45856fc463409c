"""SIGINT, SIGTERM and SIGHUP as exceptions that give a chunk back, raised where they cannot lose one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal arrived that asks to stop. No handler for errors may swallow it.

    dlt takes KeyboardInterrupt for an error of the source, so SIGINT raises this too.

    Args:
        signal_name: ``SIGTERM``, ``SIGINT`` or ``SIGHUP``.
    """

    def __init__(self, signal_name: str) -> None:
        super().__init__(signal_name)
        self.signal_name = signal_name


class _State:
    """What the process's handlers know; signals are handled in the main thread alone."""

    holding = 0
    kept: int | None = None
    #: The signal that asked to stop. What the handler raises may get lost: Python drops an exception within
    #: ``__del__``, and DuckDB makes one of its own of it.
    asked: int | None = None


def _raise(signum: int, frame: FrameType | None) -> None:
    _State.asked = signum
    # A second signal must not cut the clean-up of the first short.
    for number in _STOPPING:
        if signal.getsignal(number) is _raise:
            signal.signal(number, signal.SIG_IGN)
    if _State.holding:
        _State.kept = signum
    else:
        _stop(signum)


def _stop(signum: int) -> None:
    raise Stopped(signal.Signals(signum).name)


def asked_to_stop() -> Stopped | None:
    """What a signal has asked for since `stoppable` began, whether it was heard or not."""
    return None if _State.asked is None else Stopped(signal.Signals(_State.asked).name)


def check() -> None:
    """Raise again what may have got lost on its way from the handler."""
    stopped = asked_to_stop()
    if stopped and not _State.holding and _in_main_thread():
        raise stopped


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def stoppable() -> Iterator[None]:
    """The signals raise :class:`Stopped` in the main thread.

    A signal that is ignored, as ``nohup`` does, stays so. Blocks may be nested.
    """
    changed: dict[signal.Signals, Any] = {}
    if _in_main_thread():
        for number in _STOPPING:
            previous = signal.getsignal(number)
            if previous not in (signal.SIG_IGN, _raise):
                changed[number] = signal.signal(number, _raise)
    try:
        yield
    finally:
        for number, previous in changed.items():
            signal.signal(number, previous)
        if changed:
            _State.kept = _State.asked = None


@contextmanager
def held_back() -> Iterator[None]:
    """A signal that arrives within the block raises at its end."""
    if not _in_main_thread():
        yield
        return
    _State.holding += 1
    try:
        yield
    finally:
        _State.holding -= 1
    kept = _State.kept
    if kept is not None and not _State.holding:
        _State.kept = None
        _stop(kept)


@contextmanager
def blocked() -> Iterator[None]:
    """The signals wait in the kernel; a process started within the block begins its life so.

    It calls :func:`unblock` once it has handlers.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
