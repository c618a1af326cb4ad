"""A command ends when its output is no longer read (ledgerlog_spark.cli.stop_signals)."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledgerlog_spark.cli.stop_signals import ends_with_its_reader


class Output:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor


def wait_for_ever() -> None:
    """Wait as a thread waits for a record. Only a signal ends this."""
    assert threading.Event().wait(20), "nothing ended the wait"


def watchers() -> list[threading.Thread]:
    """The watching threads, without those of earlier tests."""
    return [thread for thread in threading.enumerate() if thread.name == "reader of the output"]


@pytest.fixture
def pipe() -> tuple[int, int]:
    return os.pipe()


def wait_after(happens: Callable[[], None]) -> None:
    with ends_with_its_reader():
        happens()
        wait_for_ever()


def test_who_waits_is_interrupted_when_the_reader_ends(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = pipe
    monkeypatch.setattr(sys, "stdout", Output(write))
    with pytest.raises(BrokenPipeError):
        wait_after(lambda: os.close(read))
    os.close(write)


def test_ctrl_c_stays_ctrl_c(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Output(pipe[1]))
    with pytest.raises(KeyboardInterrupt):
        wait_after(lambda: os.kill(os.getpid(), signal.SIGINT))
    for descriptor in pipe:
        os.close(descriptor)


@pytest.fixture
def _ignored() -> Iterator[None]:
    """Ignore signals, as in jobs that a shell starts in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.SIG_IGN


@pytest.mark.usefixtures("_ignored")
def test_a_job_of_the_background_ends_with_its_reader_too(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = pipe
    monkeypatch.setattr(sys, "stdout", Output(write))

    def happens() -> None:
        os.kill(os.getpid(), signal.SIGINT)  # ignored still
        os.close(read)

    with pytest.raises(BrokenPipeError):
        wait_after(happens)
    os.close(write)


def test_a_reader_that_ends_while_the_block_is_left_interrupts_nothing(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = pipe
    monkeypatch.setattr(sys, "stdout", Output(write))
    before, close = signal.getsignal(signal.SIGINT), os.close
    is_left = False

    def close_after_the_signal(descriptor: int) -> None:
        nonlocal is_left
        if not is_left:
            is_left = True
            close(read)
            for watcher in watchers():
                watcher.join()
        closed.append(descriptor)
        close(descriptor)

    closed: list[int] = []
    opened: list[int] = []
    make_pipe = os.pipe

    def noted_pipe() -> tuple[int, int]:
        opened.extend(ends := make_pipe())
        return ends

    monkeypatch.setattr(os, "pipe", noted_pipe)
    try:
        with ends_with_its_reader():
            monkeypatch.setattr(os, "close", close_after_the_signal)
    except KeyboardInterrupt:
        pytest.fail("it is told that it was interrupted")
    assert is_left
    assert signal.getsignal(signal.SIGINT) is before
    assert len(opened) == 2
    assert set(opened) <= set(closed)
    close(write)


def test_a_block_that_ends_before_its_reader_leaves_nothing_behind(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", Output(pipe[1]))
    with ends_with_its_reader():
        assert len(watchers()) == 1
    assert not watchers()
    for descriptor in pipe:
        os.close(descriptor)


def test_a_file_is_not_watched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        monkeypatch.setattr(sys, "stdout", file)
        with ends_with_its_reader():
            assert not watchers()
