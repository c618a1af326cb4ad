"""The wall clock of this process, only for display and never for decisions (LOGS.md#G12)."""

from __future__ import annotations

import time


def now_ms() -> int:
    """The wall time in ms since the epoch."""
    return time.time_ns() // 1_000_000
