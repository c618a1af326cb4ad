from __future__ import annotations

import os
import signal
import threading

import pytest

from ledgerlog_spark.local.interrupts import interrupts_deferred


def test_interrupt_in_the_block_is_raised_at_its_end() -> None:
    made = []

    def make() -> None:
        with interrupts_deferred():
            os.kill(os.getpid(), signal.SIGINT)
            made.append("process")

    with pytest.raises(KeyboardInterrupt):
        make()
    assert made == ["process"]


def test_handlers_are_as_before_and_an_error_in_the_block_comes_through() -> None:
    before = signal.getsignal(signal.SIGINT)

    def make() -> None:
        with interrupts_deferred():
            assert signal.getsignal(signal.SIGINT) is not before
            raise OSError("no fork")

    with pytest.raises(OSError, match="no fork"):
        make()
    assert signal.getsignal(signal.SIGINT) is before


def test_ignored_and_default_signals_stay_so_for_a_child_to_inherit() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts_deferred():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_change_no_handlers() -> None:
    seen = []

    def in_thread() -> None:
        with interrupts_deferred():
            seen.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    assert seen == [before]
