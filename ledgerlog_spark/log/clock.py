"""The wall clock of this process. It is used for display, never for decisions (LOGS.md#G12)."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return the wall time in milliseconds since 1970-01-01 00:00 UTC."""
    return time.time_ns() // 1_000_000
