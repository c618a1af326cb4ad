"""The last check of a recovery, for the simulated ledgers of logs."""

from __future__ import annotations

from ledgerlog_spark.errors import NeedsOperatorError


def check_close(ledger_id: int, *, last_entry_id: int, floor_entry_id: int) -> None:
    """Raise unless a ledger may be closed at `last_entry_id`, inclusive (LOGS.md#S2).

    `RecoveryMachine` of the ledger protocol refuses the same closes, as its own simulator checks.
    """
    if last_entry_id < floor_entry_id:
        raise NeedsOperatorError(
            f"ledger {ledger_id} would be closed below entry {floor_entry_id}",
            ledger_id=ledger_id,
            last_entry_id=last_entry_id,
            floor_entry_id=floor_entry_id,
        )
