"""How many schedules a test plays: fewer in `make test`, whose simulators play more behind it."""

from __future__ import annotations

import os

IS_FOLLOWED = bool(os.environ.get("LEDGERLOG_SIM_FOLLOWS"))
"""Set by the Makefile where `make sim` follows."""


def played(schedules: int) -> int:
    """So many, or a third of them."""
    return -(-schedules // 3) if IS_FOLLOWED else schedules
