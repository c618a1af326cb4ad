"""The floor below which no ledger of a log may be closed (LOGS.md#S1-S3).

A listed range lies on its ack quorum. A recovery that finds less of a ledger than the log lists has
not looked at enough bookies, and closing there would cut off committed rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgerlog_spark.errors import NeedsOperatorError

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG_ID_KEY = "ledgerlog.log"
"""Custom metadata of every ledger of a log: the id of the log that may list it."""

APP_KEY = "ledgerlog.app"
"""Custom metadata: the producer under which the ledger was registered."""


SINCE_KEY = "ledgerlog.since"
"""Custom metadata: the first offset at which the log may list the ledger, decimal."""


def since_offset(custom: Mapping[str, bytes]) -> int:
    """What a ledger's custom metadata says under `SINCE_KEY`; 0 when it says nothing."""
    text = custom.get(SINCE_KEY, b"").decode("ascii", errors="replace")
    return int(text) if text.isdecimal() else 0


def check_close(ledger_id: int, *, last_entry_id: int, floor_entry_id: int) -> None:
    """Whether a ledger may be closed at `last_entry_id`, inclusive (LOGS.md#S2).

    Args:
        ledger_id: The ledger.
        last_entry_id: Where recovery wants to close it.
        floor_entry_id: As `FloorMachine` gave it before the recovery began or later.

    Raises:
        NeedsOperatorError: Committed entries lie above. The ledger was not closed.
    """
    if last_entry_id < floor_entry_id:
        raise NeedsOperatorError(
            f"ledger {ledger_id} would be closed at entry {last_entry_id}, and its log lists "
            f"entries up to {floor_entry_id}: bring back the bookies that hold them, then seal it "
            "again",
            ledger_id=ledger_id,
            last_entry_id=last_entry_id,
            floor_entry_id=floor_entry_id,
        )
