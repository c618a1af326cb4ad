"""The number of schedules of a test: fewer in `make test`, which runs the simulators after it."""

from __future__ import annotations

import os

IS_FOLLOWED = bool(os.environ.get("LEDGERLOG_SIM_FOLLOWS"))
"""The Makefile sets this if `make sim` follows."""


def played(schedules: int) -> int:
    """Return `schedules`, or a third of them if `make sim` follows."""
    return -(-schedules // 3) if IS_FOLLOWED else schedules
