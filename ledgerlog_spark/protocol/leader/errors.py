"""The errors that end a leader, or one of its calls (LOGS.md#J1, LOGS.md#J12, LOGS.md#H6)."""

from __future__ import annotations

from typing import Any

from ledgerlog_spark.errors import (
    LeaderDeposedError,
    LeaderTimeoutError,
    LedgerClosedError,
    LedgerFencedError,
    LedgerLogError,
    LedgerNotFoundError,
    LocalProtocolError,
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
    """The error of a leader that may not append any more.

    `reason` is the error that showed this to the leader. The message of `reason` is for the writer
    of a single ledger. Records below `end_offset` are acknowledged. Records from `end_offset` to
    `pending_end_offset` were appended, but are not acknowledged.
    """
    others, then = "No other record of this leader is in it", ""
    if end_offset < pending_end_offset:
        others = f"The records from there to offset {pending_end_offset} may be in it"
        then = f". Before you append these records again, read the log from offset {end_offset}"
    return LeaderDeposedError(
        f"log {log!r} has another leader, or one of its ledgers was sealed ({_happened(reason)}). "
        f"The records below offset {end_offset} are in the log. {others}. To continue, open the "
        f"log with lead=True again{then}",
        log=log,
        end_offset=end_offset,
        pending_end_offset=pending_end_offset,
    )


def deleted(log: str, *, end_offset: int, pending_end_offset: int) -> LogNotFoundError:
    """The error of a leader after its log was deleted. `deposed` explains the offsets."""
    return LogNotFoundError(
        f"log {log!r} was deleted while this process led it, with its records up to offset "
        f"{end_offset}: open it with lead=True again to create a new log",
        definite=False,
        log=log,
        end_offset=end_offset,
        pending_end_offset=pending_end_offset,
    )


def not_opened(
    log: str, waited_for: str, ledger_id: int | None, *, timeout_ms: int, may_lead: bool
) -> LeaderTimeoutError:
    """The error of an opening that did not end in time.

    `may_lead` means that the list may contain a ledger of this client, now or later.
    """
    ledger: dict[str, Any] = {} if ledger_id is None else {"ledger_id": ledger_id}
    named = "" if ledger_id is None else f" ({ledger_id})"
    then = "may lead the log nevertheless" if may_lead else "does not lead the log"
    return LeaderTimeoutError(
        f"log {log!r} was not taken over within {timeout_ms / 1e3:g} s, because "
        f"{waited_for}{named} did not end. This client {then}. Check that ZooKeeper and the "
        "bookies run (`ledgerlog doctor`), then open the log again, with a longer "
        "open_timeout_ms if necessary",
        definite=not may_lead,
        log=log,
        waited_for=waited_for,
        timeout_ms=timeout_ms,
        **ledger,
    )


def cancelled(log: str, *, may_lead: bool) -> LocalProtocolError:
    """The error of an opening that its caller cancelled. `not_opened` explains `may_lead`."""
    then = "may have taken it over nevertheless" if may_lead else "does not lead it"
    return LocalProtocolError(
        f"the opening of log {log!r} was cancelled, and this client {then}: open it again",
        definite=not may_lead,
        log=log,
    )


def left(log: str, *, end_offset: int) -> LocalProtocolError:
    """The error of a leader after its client was closed; `deposed` explains `end_offset`."""
    return LocalProtocolError(
        f"the client that led log {log!r} was closed: to find out which records are in the log, "
        f"read it from offset {end_offset}",
        log=log,
        end_offset=end_offset,
    )


def not_rolled(
    log: str, ledger_id: int, waited_for: str, error: LedgerLogError | None, *, timeout_ms: int
) -> LeaderTimeoutError:
    """The error of a roll that did not end in time, caused by `error` unless that is None."""
    failed = "" if error is None else f" ({error.message})"
    late = LeaderTimeoutError(
        f"ledger {ledger_id} of log {log!r} was not closed and listed within {timeout_ms / 1e3:g} "
        f"s: {waited_for} did not end{failed}. The roll continues, and appends are "
        "accepted. Check that ZooKeeper and the bookies run (`ledgerlog doctor`), then roll again",
        definite=False,
        log=log,
        ledger_id=ledger_id,
        waited_for=waited_for,
        timeout_ms=timeout_ms,
    )
    late.__cause__ = error
    return late


def _happened(reason: LedgerLogError) -> str:
    ledger_id = reason.fields.get("ledger_id")
    ledger = "one of its ledgers" if ledger_id is None else f"ledger {ledger_id}"
    for kind, what in _HAPPENED:
        if isinstance(reason, kind):
            return what.format(ledger=ledger)
    return reason.message
