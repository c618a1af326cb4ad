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


@contextlib.contextmanager
def ends_with_its_reader() -> Iterator[None]:
    """Interrupt the block when standard output is a pipe that nobody reads any more.

    In the main thread only.

    Raises:
        BrokenPipeError: It is.
    """
    output = _pipe_of_output()
    if output is None:
        yield
        return
    is_closed = threading.Event()
    told, over = os.pipe()

    def watch() -> None:
        poll = select.poll()
        poll.register(output, 0)  # its errors alone
        poll.register(told, select.POLLIN)
        if any(fd == output for fd, _ in poll.poll()):
            is_closed.set()
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGINT)  # wakes it, wherever it waits

    watcher = threading.Thread(target=watch, name="reader of the output", daemon=True)
    watcher.start()
    try:
        yield
    except KeyboardInterrupt:
        if is_closed.is_set():
            raise BrokenPipeError from None
        raise
    finally:
        os.close(over)
        watcher.join()
        os.close(told)


def _pipe_of_output() -> int | None:
    """The descriptor of standard output where that is a pipe or a socket."""
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):  # replaced by something in memory
        return None
    mode = os.fstat(output).st_mode
    return output if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None
