from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from airflow_provider_backfill.engine.signals import Stopped, blocked, check, held_back, stoppable, unblock

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def before():
    """Whatever a test does, the handlers are as before, and nothing is held back."""
    handlers = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    assert {number: signal.getsignal(number) for number in NUMBERS} == handlers
    with held_back():
        pass


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_raises_its_name(number):
    with pytest.raises(Stopped) as caught, stoppable():
        signal.raise_signal(number)
    assert caught.value.signal_name == number.name
    assert not isinstance(caught.value, Exception)


def test_a_second_signal_does_not_cut_the_clean_up_short():
    steps = []

    def work() -> None:
        with stoppable():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                signal.raise_signal(signal.SIGTERM)
                signal.raise_signal(signal.SIGINT)
                steps.append("cleaned")

    with pytest.raises(Stopped):
        work()
    assert steps == ["cleaned"]


def test_blocks_nest():
    with stoppable():
        with stoppable():
            pass
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGTERM)


def test_a_signal_that_is_held_back_raises_at_the_end_of_the_outermost_block():
    steps = []

    def work() -> None:
        with stoppable(), held_back():
            with held_back():
                signal.raise_signal(signal.SIGHUP)
                steps.append("inner")
            steps.append("outer")

    with pytest.raises(Stopped, match="SIGHUP"):
        work()
    assert steps == ["inner", "outer"]


def test_an_error_in_a_block_is_not_replaced_by_the_signal():
    def work() -> None:
        with stoppable(), held_back():
            signal.raise_signal(signal.SIGTERM)
            raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        work()


def test_an_ignored_signal_stays_ignored():
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stoppable():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, previous)


def test_other_threads_are_left_alone():
    seen: list[object] = []

    def work() -> None:
        with stoppable(), held_back():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


def test_a_process_begins_with_signals_blocked_until_it_can_handle_them():
    code = (
        "import os, signal, sys\n"
        "from airflow_provider_backfill.engine.signals import Stopped, stoppable, unblock\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "try:\n"
        "    with stoppable(): unblock()\n"
        "except Stopped as stopped: sys.exit(stopped.signal_name)\n"
    )
    with blocked():
        process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()).isdisjoint(NUMBERS)
    assert process.communicate()[1] == "SIGTERM\n"


def test_unblocking_what_is_not_blocked_does_nothing():
    unblock()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()).isdisjoint(NUMBERS)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_stop_that_a_finaliser_swallows_is_raised_again():
    """Python drops what is raised within __del__; the handler ran, and would not run again."""

    class Last:
        def __del__(self):
            signal.raise_signal(signal.SIGTERM)

    def go_on():
        with stoppable():
            last = Last()
            del last
            check()

    with pytest.raises(Stopped, match="SIGTERM"):
        go_on()
    # The next block begins anew.
    with stoppable():
        check()
