"""The exception for each outcome of the machines and of the metadata store.

For every outcome of an append, a caller may conclude the following:

    outcome of an append          exception                  definite
    acknowledged                  none                       -
    refused before it was sent    error that stopped writer  yes
    pending when fenced           LedgerFencedError          no
    pending when closed by others LedgerClosedError          no
    pending, no ack quorum        AddTimeoutError            no
    pending, too few bookies      NotEnoughBookiesError      no
    pending, bookies stay BUSY    QuorumError                no
    pending, none may be replaced QuorumError                no
    pending, no ZooKeeper         MetadataUnavailableError   no

After each of these exceptions the handle accepts no more appends, so the caller needs a new ledger.
"Not definite" means that the entry may be in the ledger after a client has recovered and closed the
ledger. The caller should look for the entry in the closed ledger before it sends the entry again.
Reads change nothing, so their errors are definite unless stated otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ledgerlog_spark import errors
from ledgerlog_spark.model import Code
from ledgerlog_spark.protocol.ledger.messages import (
    Failure,
    LedgerFailed,
    MetadataOutcome,
    ReadFailed,
)


class _Entry(NamedTuple):
    error: type[errors.LedgerLogError]
    advice: str


FAILURES: dict[Failure, _Entry] = {
    Failure.FENCED: _Entry(
        errors.LedgerFencedError,
        "create a new ledger to go on writing; seal this ledger to learn which entries it has",
    ),
    Failure.CLOSED: _Entry(errors.LedgerClosedError, "create a new ledger to go on writing"),
    Failure.UNAUTHORIZED: _Entry(
        errors.UnauthorizedError, "use the password that the ledger was created with"
    ),
    Failure.NOT_FOUND: _Entry(
        errors.LedgerNotFoundError, "the ledger was deleted or never created"
    ),
    Failure.BAD_REQUEST: _Entry(
        errors.RemoteProtocolError, "check that the bookies' version fits this client's version"
    ),
    Failure.NOT_ENOUGH_BOOKIES: _Entry(
        errors.NotEnoughBookiesError,
        "start another bookie, or use a smaller ensemble: to replace a failed bookie, the cluster "
        "needs more bookies than the ensemble has",
    ),
    Failure.TOO_MANY_CHANGES: _Entry(
        errors.QuorumError, "check the bookies before you write to a new ledger"
    ),
    Failure.BOOKIE_FAILED: _Entry(errors.QuorumError, "create a new ledger to go on writing"),
    Failure.ADD_TIMEOUT: _Entry(
        errors.AddTimeoutError,
        "seal the ledger to learn which entries it has, and write to a new ledger",
    ),
    Failure.OVERLOADED: _Entry(
        errors.QuorumError, "append less at a time, or add bookies, and write to a new ledger"
    ),
    Failure.METADATA_UNAVAILABLE: _Entry(
        errors.MetadataUnavailableError, "check that ZooKeeper runs and can be reached"
    ),
    Failure.METADATA_UNREADABLE: _Entry(
        errors.MetadataFormatError, "a newer release may have written it: upgrade this client"
    ),
    Failure.METADATA_CHANGED: _Entry(
        errors.MetadataVersionError, "read the ledger's metadata again and decide again"
    ),
    Failure.BOOKIE_CHANGED: _Entry(
        errors.LedgerRecoveryError, "the ledger was not closed: try again"
    ),
    Failure.RECOVERY: _Entry(
        errors.LedgerRecoveryError, "try again when more bookies of the ledger answer"
    ),
    Failure.NEEDS_OPERATOR: _Entry(
        errors.NeedsOperatorError,
        "start the bookies that have these entries, or decide how to continue without the entries",
    ),
    Failure.ENTRY_ABSENT: _Entry(
        errors.EntryNotFoundError, "no bookie of the write set has the entry"
    ),
    Failure.ENTRY_UNKNOWN: _Entry(
        errors.EntryUnknownError, "try again when more of its bookies answer"
    ),
    Failure.LAC_UNKNOWN: _Entry(
        errors.EntryUnknownError, "try again when a bookie of the last ensemble answers"
    ),
    Failure.DIGEST_MISMATCH: _Entry(
        errors.DigestMismatchError, "check the password, the digest type and the bookies' disks"
    ),
}
"""The exception for each `Failure`. A test checks that the table is complete."""

OUTCOMES: dict[type[errors.LedgerLogError], MetadataOutcome] = {
    errors.MetadataVersionError: MetadataOutcome.CONFLICT,
    errors.LedgerNotFoundError: MetadataOutcome.GONE,
    errors.MetadataFormatError: MetadataOutcome.UNREADABLE,
    errors.MetadataUnavailableError: MetadataOutcome.UNAVAILABLE,
    errors.MetadataUnknownError: MetadataOutcome.UNKNOWN,
}
"""The outcome that a machine gets for each exception of the metadata port.

Any other exception, such as a denied access or a bug, ends the machine."""


BECAUSE_OF_BOOKIES = {
    Failure.ADD_TIMEOUT,
    Failure.BOOKIE_FAILED,
    Failure.LAC_UNKNOWN,
    Failure.NOT_ENOUGH_BOOKIES,
    Failure.OVERLOADED,
    Failure.RECOVERY,
    Failure.TOO_MANY_CHANGES,
}
"""Failures whose messages contain the answers of bookies."""

BOOKIES_SHOWN_MAX = 7
"""Maximum number of bookies in a message. The field `codes` of the error contains all bookies."""


def error_from_failure(ledger_id: int, failed: LedgerFailed) -> errors.LedgerLogError:
    """Return the exception for the failure of a machine."""
    return _build_failed(
        f"ledger {ledger_id}",
        ledger_id,
        failed,
        definite=failed.is_definite,
        retriable=failed.is_retriable,
        entry_id=failed.entry_id,
        first_unknown_entry_id=failed.first_unknown_entry_id,
    )


def error_from_read(ledger_id: int, failed: ReadFailed) -> errors.LedgerLogError:
    """Return the exception for a failed read, with the last answer of each bookie in `codes`."""
    codes = {bookie: code.value if code else "no answer" for bookie, code in failed.codes}
    return _build(
        failed.failure,
        f"entry {failed.entry_id} of ledger {ledger_id}{_answers_of(codes)}",
        ledger_id=ledger_id,
        entry_id=failed.entry_id,
        bookie_ids=tuple(codes),
        codes=codes,
    )


def error_for_unsent(ledger_id: int, failed: LedgerFailed) -> errors.LedgerLogError:
    """Return the exception for an append that was not sent because the writer had stopped."""
    subject = f"nothing was sent: ledger {ledger_id}"
    return _build_failed(subject, ledger_id, failed, definite=True, retriable=False)


def outcome_of(error: errors.LedgerLogError) -> MetadataOutcome | None:
    """Return the outcome that a machine gets for an error of the metadata port.

    None means that the machine ends.
    """
    if isinstance(error, errors.MetadataVersionError) and "bookie_id" in error.fields:
        return MetadataOutcome.BOOKIE_CHANGED
    for kind, outcome in OUTCOMES.items():
        if isinstance(error, kind):
            return outcome
    return None


def _answers_of(codes: Mapping[str, str]) -> str:
    """Return the answers of bookies as text for a message.

    If there are more than `BOOKIES_SHOWN_MAX` answers, the text contains only the last answers.
    """
    shown = [f"{bookie_id}: {code}" for bookie_id, code in codes.items()]
    more = ["..."] if len(shown) > BOOKIES_SHOWN_MAX else []
    return f" ({', '.join([*more, *shown[-BOOKIES_SHOWN_MAX:]])})" if shown else ""


def _build_failed(
    subject: str, ledger_id: int, failed: LedgerFailed, **about: Any
) -> errors.LedgerLogError:
    """Return an exception with the reason of a failure and the answers of the bookies."""
    codes: dict[str, str] = {}
    if failed.failure in BECAUSE_OF_BOOKIES:
        codes = {bookie_id: code.value for bookie_id, code in failed.codes}
    if failed.failure is Failure.OVERLOADED:
        codes |= dict.fromkeys(failed.bookie_ids, Code.BUSY.value)
    return _build(
        failed.failure,
        subject,
        answers=_answers_of(codes),
        codes=codes or None,
        ledger_id=ledger_id,
        bookie_ids=failed.bookie_ids,
        wanted=failed.wanted,
        available=failed.available,
        last_add_confirmed=failed.last_add_confirmed,
        **about,
    )


def _build(
    failure: Failure,
    subject: str,
    *,
    answers: str = "",
    definite: bool | None = None,
    retriable: bool | None = None,
    **fields: Any,
) -> errors.LedgerLogError:
    kind, advice = FAILURES[failure]
    counts = ""
    if fields.get("wanted") is not None:
        counts = f" (needed {fields['wanted']}, found {fields['available']})"
    return kind(
        f"{subject}: {failure.value}{counts}{answers}; {advice}",
        definite=definite,
        retriable=retriable,
        **{name: value for name, value in fields.items() if value not in (None, ())},
    )
