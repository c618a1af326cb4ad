"""Log lines of a service. A separate thread writes them, so no caller waits for the output."""

from __future__ import annotations

import io
import os
import select
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

WAITING_BYTES_MAX: Final = 1 << 20
LINE_BYTES_MAX: Final = 1 << 16
"""Maximum size of a line; a longer line is cut."""
LINE_COST_BYTES: Final = 100
"""Memory that is counted for each waiting line in addition to its bytes."""
DRAIN_SECONDS: Final = 1.0
"""Maximum time that a process waits at its end until its lines are written."""


class LogLines(io.TextIOBase):
    """A text stream whose `write` never waits. So code on the event loop may call `write`.

    A pipe that is not read, a terminal that is stopped and a slow disk block only the thread of
    this object. At most `WAITING_BYTES_MAX` bytes of lines wait for the thread. Further lines are
    dropped. After dropped lines, the thread first writes a line with their number. A line is also
    dropped if the pipe has no reader or the disk is full.

    Args:
        descriptor: The file descriptor that lines are written to, blocking or non-blocking.
            `LogLines` never closes this descriptor.
        report: Creates the line with the number of dropped lines.

    Attributes:
        dropped: Number of lines that were dropped.
        has_no_reader: Whether the other end of the pipe was closed.
    """

    def __init__(self, descriptor: int, report: Callable[[int], str]) -> None:
        self._descriptor = descriptor
        self._report = report
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._is_writing = False
        self._reported = 0
        # The lock is reentrant, because a finalizer that runs during `write` may also write a line.
        self._changed = threading.Condition(threading.RLock())
        self.dropped = 0
        self.has_no_reader = False
        threading.Thread(target=self._run, name="log lines", daemon=True).start()

    def write(self, text: str) -> int:
        """Queue a line for the thread, or drop the line if too many bytes wait."""
        line = text.encode(errors="backslashreplace")
        if len(line) > LINE_BYTES_MAX:
            line = line[: LINE_BYTES_MAX - 1] + b"\n"
        cost_bytes = len(line) + LINE_COST_BYTES
        with self._changed:
            if self._waiting_bytes + cost_bytes > WAITING_BYTES_MAX:
                self.dropped += 1
            else:
                self._waiting.append(line)
                self._waiting_bytes += cost_bytes
                self._changed.notify_all()
        return len(text)

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the file descriptor that the lines are written to."""
        return self._descriptor

    def drain(self, timeout_seconds: float | None = DRAIN_SECONDS) -> bool:
        """Wait until all lines are written, and return True.

        If the time-out ends the wait, return False. If it is None, there is no time-out.
        """
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._waiting and not self._is_writing, timeout_seconds
            )

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting)
                self._is_writing = True
                line = self._waiting.popleft()
                self._waiting_bytes -= len(line) + LINE_COST_BYTES
                dropped = self.dropped
            if dropped > self._reported:
                report = self._report(dropped - self._reported)
                if self._is_written(f"{report}\n".encode()):
                    self._reported = dropped
            if not self._is_written(line):
                with self._changed:
                    self.dropped += 1

    def _is_written(self, line: bytes) -> bool:
        left = memoryview(line)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                # The descriptor is non-blocking, perhaps because a process that shares it has made
                # it so. So wait until it is writable.
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll()
            except OSError as error:
                self.has_no_reader |= isinstance(error, BrokenPipeError)
                return False
        return True
