"""Stops a command on Ctrl-C, SIGTERM, a closed terminal or a closed output.

The command cleans up before it ends. Without this module, the command `ledgerlog logs tail orders |
head -n 4` would end only at the fifth record, because it would notice the end of `head` only at the
next write.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Raises KeyboardInterrupt in a `with` block when the first signal of SIGNALS arrives.

    Later signals are ignored, so a second Ctrl-C does not interrupt code that stops processes. If
    SIGTERM or SIGHUP was ignored before, for example because of `nohup`, it stays ignored. Only the
    main thread can use this class.
    """

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._is_stopping = False

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        self.arm()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def arm(self) -> None:
        """Set the signal handlers. Call this method again after a library has replaced them."""
        for number, handler in self._before.items():
            if handler is not signal.SIG_IGN or number is signal.SIGINT:
                signal.signal(number, self._stop)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            raise KeyboardInterrupt


@contextlib.contextmanager
def ends_with_its_reader() -> Iterator[None]:
    """End the block when standard output is a pipe whose reader has ended.

    A thread watches the pipe, and sends SIGINT to the main thread. In the block, SIGINT has its own
    handler, for two reasons: a background job of a shell ignores SIGINT by default, and no signal
    may interrupt the code after the block. In other threads than the main thread, this function
    changes nothing.
    """
    output = _pipe_of_output()
    main = threading.main_thread()
    if output is None or threading.current_thread() is not main:
        yield
        return
    is_closed, is_over = threading.Event(), False
    ended, over = os.pipe()
    before = signal.getsignal(signal.SIGINT)

    def watch() -> None:
        poll = select.poll()
        poll.register(output, 0)  # `poll` then reports only errors of the pipe
        poll.register(ended, select.POLLIN)
        if any(fd == output for fd, _ in poll.poll()):
            is_closed.set()
            assert main.ident is not None
            signal.pthread_kill(main.ident, signal.SIGINT)  # ends any wait of the main thread

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal is_over
        if not is_closed.is_set():
            if callable(before):
                before(number, frame)
        elif not is_over:
            is_over = True
            raise BrokenPipeError

    watcher = threading.Thread(target=watch, name="reader of the output", daemon=True)
    signal.signal(signal.SIGINT, on_signal)
    try:
        try:
            watcher.start()
            yield
        finally:
            is_over = True  # if a signal raises an error before this, the outer `finally` runs
    finally:
        os.close(over)
        watcher.join()
        os.close(ended)
        signal.signal(signal.SIGINT, before)


def _pipe_of_output() -> int | None:
    """Return standard output's descriptor if the output is a pipe or a socket, otherwise None."""
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):  # standard output was replaced by an object in memory
        return None
    mode = os.fstat(output).st_mode
    return output if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None
