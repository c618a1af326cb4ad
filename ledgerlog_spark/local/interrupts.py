"""Starts child processes, and defers Ctrl-C during the start.

Python can raise KeyboardInterrupt in the main thread at any point. If Python raised it in `Popen`
after the fork, the program would have no reference to the new process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def spawn(
    command: Sequence[str], environment: Mapping[str, str], **options: Any
) -> subprocess.Popen[str]:
    """Start a process in its own session, so that Ctrl-C in a terminal does not end it.

    The call of this function and the assignment of its result must be in a block of
    `interrupts_deferred`. The new process gets the environment of this Python process, and the
    variables in `environment`. `options` are passed to `Popen`.
    """
    options = {"stdin": subprocess.DEVNULL, "text": True, "start_new_session": True, **options}
    variables = os.environ | {"PYTHONUNBUFFERED": "1", **environment}
    return subprocess.Popen(command, env=variables, **options)  # noqa: S603 (our own programs)


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Defer the handlers of signals until the end of the block. The block should be short.

    In other threads than the main thread, nothing is deferred, because Python interrupts only the
    main thread.
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
