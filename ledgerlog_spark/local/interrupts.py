"""Defers Ctrl-C while a child process is made.

KeyboardInterrupt is raised in the main thread at any point: inside `Popen`, between the fork and
the assignment, it would leave a process that this program has no reference to.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Defer signal handlers until the end of the block.

    Keep the block short. Only the main thread is ever interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[tuple[int, FrameType | None]] = []

    def defer(number: int, frame: FrameType | None) -> None:
        arrived.append((number, frame))

    before: dict[int, Any] = {}
    try:
        for number in SIGNALS:
            if callable(handler := signal.getsignal(number)):
                before[number] = handler
                signal.signal(number, defer)
        yield
    finally:
        for changed, handler in before.items():
            signal.signal(changed, handler)
    for each, frame in arrived:
        before[each](each, frame)
