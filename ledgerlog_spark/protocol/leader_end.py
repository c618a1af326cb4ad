"""The errors that end a leader: another one took over, or the log is gone (docs/LOGS.md J12)."""

from __future__ import annotations

from ledgerlog_spark.errors import (
    LeaderDeposedError,
    LedgerClosedError,
    LedgerFencedError,
    LedgerLogError,
    LedgerNotFoundError,
    LogNotFoundError,
)

_HAPPENED: tuple[tuple[type[LedgerLogError], str], ...] = (
    (LedgerFencedError, "another client recovers {ledger}"),
    (LedgerClosedError, "another client closed {ledger}"),
    (LedgerNotFoundError, "another client deleted {ledger}"),
    (LeaderDeposedError, "the list names ledgers of another leader"),
)


def deposed(
    log: str, reason: LedgerLogError, *, end_offset: int, pending_end_offset: int
) -> LeaderDeposedError:
    """The error of a leader that may append no more.

    Args:
        log: Name.
        reason: How that was noticed. Its message is for who writes a single ledger.
        end_offset: Behind the last acknowledged record.
        pending_end_offset: Behind the last appended one.
    """
    return LeaderDeposedError(
        f"log {log!r} has another leader, or one of its ledgers was sealed ({_happened(reason)}): "
        f"records below offset {end_offset} are in the log for good, and those appended from "
        f"there to {pending_end_offset} may be: open it with lead=True again to go on, and read "
        f"it from {end_offset} before you append them again",
        log=log,
        end_offset=end_offset,
        pending_end_offset=pending_end_offset,
    )


def deleted(log: str, *, end_offset: int, pending_end_offset: int) -> LogNotFoundError:
    """The error of a leader whose log was deleted; arguments as of `deposed`."""
    return LogNotFoundError(
        f"log {log!r} was deleted while it was led, and its records up to offset {end_offset} "
        "with it: open it with lead=True again to make a new one",
        definite=False,
        log=log,
        end_offset=end_offset,
        pending_end_offset=pending_end_offset,
    )


def _happened(reason: LedgerLogError) -> str:
    ledger_id = reason.fields.get("ledger_id")
    ledger = "one of its ledgers" if ledger_id is None else f"ledger {ledger_id}"
    for kind, what in _HAPPENED:
        if isinstance(reason, kind):
            return what.format(ledger=ledger)
    return reason.message
