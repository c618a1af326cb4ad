"""The wall clock of this process, for what people are shown; it decides nothing (LOGS.md#G12)."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Wall time, ms since the epoch."""
    return time.time_ns() // 1_000_000
