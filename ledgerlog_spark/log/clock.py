"""The wall clock of commits; they rise even when it goes back (docs/LOGS.md G4)."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Wall time, ms since the epoch."""
    return time.time_ns() // 1_000_000
