"""Ends a command that waits for more to print after the reader of its output has ended.

`ledgerlog logs tail orders | head -n 4` would wait for a fifth record to learn that nobody reads.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


@contextlib.contextmanager
def ends_with_its_reader() -> Iterator[None]:
    """End the block when standard output is a pipe that nobody reads any more.

    The watching thread wakes the main one with SIGINT, whose handler in the block is ours: a
    shell's background job ignores that signal, and a block that is over is not interrupted. Does
    nothing outside the main thread.

    Raises:
        BrokenPipeError: It is.
    """
    output = _pipe_of_output()
    main = threading.main_thread()
    if output is None or threading.current_thread() is not main:
        yield
        return
    is_closed, is_over = threading.Event(), False
    told, over = os.pipe()
    before = signal.getsignal(signal.SIGINT)

    def watch() -> None:
        poll = select.poll()
        poll.register(output, 0)  # its errors alone
        poll.register(told, select.POLLIN)
        if any(fd == output for fd, _ in poll.poll()):
            is_closed.set()
            assert main.ident is not None
            signal.pthread_kill(main.ident, signal.SIGINT)  # wakes it, wherever it waits

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
            is_over = True  # a signal just before this still gets to the outer `finally`
    finally:
        os.close(over)
        watcher.join()
        os.close(told)
        signal.signal(signal.SIGINT, before)


def _pipe_of_output() -> int | None:
    """The descriptor of standard output where that is a pipe or a socket."""
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):  # replaced by something in memory
        return None
    mode = os.fstat(output).st_mode
    return output if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None
