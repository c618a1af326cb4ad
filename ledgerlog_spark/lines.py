"""Writes the log lines of a service on a separate thread, so no caller waits for the output."""

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
"""Maximum bytes of a line. Of a longer line, only the first bytes are written."""
LINE_COST_BYTES: Final = 100
"""Bytes that are counted for each waiting line in addition to the bytes of its text."""
DRAIN_SECONDS: Final = 1.0
"""Maximum time in seconds for which a process waits at its end until its lines are written."""


class LogLines(io.TextIOBase):
    """A text stream whose `write` never waits, so code on the event loop may call `write`.

    A pipe that is not read, a terminal that is stopped and a slow disk block only the thread of
    this object. At most `WAITING_BYTES_MAX` bytes of lines wait for the thread. Further lines are
    dropped. When lines were dropped, the thread writes a line with their number before the next
    line. A line is also dropped if the pipe has no reader or the disk is full.

    Args:
        descriptor: The file descriptor to which lines are written. It may be blocking or
            non-blocking. `LogLines` never closes this descriptor.
        report: A function that returns the line about a number of dropped lines.

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
        """Return the file descriptor to which the lines are written."""
        return self._descriptor

    def drain(self, timeout_seconds: float | None = DRAIN_SECONDS) -> bool:
        """Wait until all lines are written. Return whether they were written before the time-out.

        If `timeout_seconds` is None, there is no time-out.
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
                # The descriptor is non-blocking. Perhaps another process that shares it has set
                # this mode. Wait until the descriptor is writable.
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll()
            except OSError as error:
                self.has_no_reader |= isinstance(error, BrokenPipeError)
                return False
        return True
