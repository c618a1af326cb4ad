"""Ctrl-C, SIGTERM and a closed terminal all end a command after its clean-up."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """In its block the first such signal raises KeyboardInterrupt; further ones are ignored.

    A second Ctrl-C therefore does not interrupt the stop of processes. A signal that was ignored
    before (`nohup`) stays ignored. For the main thread only.
    """

    def __init__(self) -> None:
        """Create the object; signal handlers change at the start of the block."""
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
        """Set the handlers again, after a library set its own."""
        for number, handler in self._before.items():
            if handler is not signal.SIG_IGN or number is signal.SIGINT:
                signal.signal(number, self._stop)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            raise KeyboardInterrupt
