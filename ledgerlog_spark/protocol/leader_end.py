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
    """The error of a leader that may append no more.

    Args:
        log: Name.
        reason: How that was noticed. Its message is for who writes a single ledger.
        end_offset: Behind the last acknowledged record.
        pending_end_offset: Behind the last appended one.
    """
    others, then = "no others of this leader are", ""
    if end_offset < pending_end_offset:
        others = f"those appended from there to {pending_end_offset} may be"
        then = f", and read it from {end_offset} before you append them again"
    return LeaderDeposedError(
        f"log {log!r} has another leader, or one of its ledgers was sealed ({_happened(reason)}): "
        f"records below offset {end_offset} are in the log for good, and {others}: open it with "
        f"lead=True again to go on{then}",
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


def not_opened(
    log: str, waited_for: str, ledger_id: int | None, *, timeout_ms: int, may_lead: bool
) -> LeaderTimeoutError:
    """The error of a log that was not taken over in time.

    Args:
        log: Name.
        waited_for: What was under way.
        ledger_id: Which it was done with, None for none.
        timeout_ms: What the opening had.
        may_lead: Whether the list may name a ledger of this client, now or later.
    """
    ledger: dict[str, Any] = {} if ledger_id is None else {"ledger_id": ledger_id}
    named = "" if ledger_id is None else f" ({ledger_id})"
    then = "may have taken it over all the same" if may_lead else "does not lead it"
    return LeaderTimeoutError(
        f"log {log!r} was not taken over within {timeout_ms / 1e3:g} s: {waited_for}{named} did "
        f"not end, and this client {then}. Check that ZooKeeper and the bookies run (`ledgerlog "
        "doctor`), then open the log again; open_timeout_ms is the time that it may take",
        definite=not may_lead,
        log=log,
        waited_for=waited_for,
        timeout_ms=timeout_ms,
        **ledger,
    )


def cancelled(log: str, *, may_lead: bool) -> LocalProtocolError:
    """The error of an opening whose caller did not wait for its end; `may_lead` as there."""
    then = "may have taken it over all the same" if may_lead else "does not lead it"
    return LocalProtocolError(
        f"the opening of log {log!r} was cancelled, and this client {then}: open it again",
        definite=not may_lead,
        log=log,
    )


def left(log: str, *, end_offset: int) -> LocalProtocolError:
    """The error of a leader that its client gave up; `end_offset` as of `deposed`."""
    return LocalProtocolError(
        f"the client that led log {log!r} was closed: read the log from {end_offset} on to learn "
        "what it holds",
        log=log,
        end_offset=end_offset,
    )


def not_rolled(
    log: str, ledger_id: int, waited_for: str, error: LedgerLogError | None, *, timeout_ms: int
) -> LeaderTimeoutError:
    """The error of a roll that did not end in time.

    Args:
        log: Name.
        ledger_id: Still listed as an open one.
        waited_for: What was under way.
        error: Why the newest attempt at that failed, None if it has not; the cause.
        timeout_ms: What it had.
    """
    failed = "" if error is None else f" ({error.message})"
    late = LeaderTimeoutError(
        f"ledger {ledger_id} of log {log!r} was not closed and listed within {timeout_ms / 1e3:g} "
        f"s: {waited_for} did not end{failed}. The roll goes on, and appends are taken. Check that "
        "ZooKeeper and the bookies run (`ledgerlog doctor`), then roll again",
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
