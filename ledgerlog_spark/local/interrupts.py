"""Makes child processes, and defers Ctrl-C meanwhile.

KeyboardInterrupt is raised in the main thread at any point: inside `Popen`, between the fork and
the assignment, it would leave a process without a reference in this program.
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
    """A process in a session of its own, which Ctrl-C in a terminal does not reach.

    Call it and assign its result where interrupts are deferred. `environment` is added to that of
    this process; `options` are those of `Popen`.
    """
    options = {"stdin": subprocess.DEVNULL, "text": True, "start_new_session": True, **options}
    variables = os.environ | {"PYTHONUNBUFFERED": "1", **environment}
    return subprocess.Popen(command, env=variables, **options)  # noqa: S603 (our own programs)


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
