from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from ledgerlog_spark.cli.stop_signals import SIGNALS, StopSignals


@pytest.fixture(autouse=True)
def nothing_ignored() -> Iterator[None]:
    """Tests that run under `nohup` begin with a signal ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", SIGNALS)
def test_first_signal_interrupts_and_further_ones_do_not_cut_off_the_cleaning_up(
    number: signal.Signals,
) -> None:
    cleaned_up = False
    with StopSignals():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        for further in SIGNALS:
            os.kill(os.getpid(), further)
        cleaned_up = True
    assert cleaned_up


def test_handlers_are_as_before_afterwards() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with StopSignals():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_arming_takes_the_signal_back_from_a_library() -> None:
    with StopSignals() as signals:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signals.arm()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_hang_up_that_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as signals:
            for _ in range(2):
                assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
                os.kill(os.getpid(), signal.SIGHUP)
                signals.arm()
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
