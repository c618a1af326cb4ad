"""Which CPUs threads of this process run on: the event loop's stays on one while that pays."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final

LONE_ADDS_MIN: Final = 16
"""So many lone adds in a row, and the event loop stays where it is told."""

_before: set[int] = set()
"""The CPUs that the process could use when a thread was first told to stay on one."""


def usable_cpus() -> tuple[int, ...]:
    """Numbers of the CPUs that a thread can be kept on; empty where the system has no way to."""
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_setaffinity") else ()


def stay_on(cpu: int) -> None:
    """Keep the calling thread, and those that it starts from now on, on one CPU.

    Args:
        cpu: One of `usable_cpus`.

    Raises:
        OSError: The CPU was taken away meanwhile, or the process may not choose.
    """
    usable = usable_cpus()
    os.sched_setaffinity(0, (cpu,))
    if not _before:
        _before.update(usable)


def leave_cpu() -> None:
    """Let the calling thread run anywhere, if the one that started it was told to stay.

    Never fails: a thread that may not choose works where it is.
    """
    if _before:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, _before)


class LoneStay:
    """Keeps the event loop's thread on a CPU as long as adds come one at a time, and no longer.

    A thread that is woken a thousand times a second is moved between CPUs nearly as often, and
    finds its caches cold each time: three local bookies on two CPUs, two of which stay on one of
    their own, take 0.9 of the time for a lone append. With much to do it is the other way round,
    for a thread that may not move waits for whoever came to its CPU (reads of 1 KiB were 8 %
    slower).

    Args:
        cpu: To stay on; None for never.
        on_refused: Told once when the system refuses; nothing is tried again.
    """

    __slots__ = ("_cpu", "_lone_adds", "_on_refused")

    def __init__(self, cpu: int | None, on_refused: Callable[[OSError], None]) -> None:
        self._cpu = cpu
        self._on_refused = on_refused
        self._lone_adds = 0

    def lone(self) -> None:
        """One more add came alone."""
        self._lone_adds += 1
        if self._lone_adds == LONE_ADDS_MIN and self._cpu is not None:
            try:
                stay_on(self._cpu)
            except OSError as error:
                self._cpu = None
                self._on_refused(error)

    def busy(self) -> None:
        """Anything else came."""
        if self._lone_adds >= LONE_ADDS_MIN and self._cpu is not None:
            leave_cpu()
        self._lone_adds = 0
