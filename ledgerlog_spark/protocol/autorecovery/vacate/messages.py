"""Events and effects of the machine of a vacation. The host answers each request once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from ledgerlog_spark.model import LedgerMetadata, Version, Versioned
from ledgerlog_spark.protocol.autorecovery.vacate.departure import Departure


class BookieSight(Enum):
    """The state of the registration of a bookie."""

    WRITABLE = "writable"
    READ_ONLY = "read-only"
    ABSENT = "absent"


class VacationOutcome(Enum):
    """The outcome of a write of the vacation's node."""

    OK = "ok"
    CONFLICT = "conflict"  # another process wrote or deleted a node of the transaction
    UNKNOWN = "unknown"  # the store is unavailable; the write may have happened


class VacationEnd(Enum):
    """The reason why the machine has ended."""

    VACATED = "vacated"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class LoadVacation:
    """Read the vacation after a sync. The reply is `VacationLoaded` or `VacateFailed`."""

    request: int


@dataclass(frozen=True, slots=True)
class LookAtBookie:
    """Read the registration of the bookie after a sync. The reply is `BookieSeen`."""

    request: int


@dataclass(frozen=True, slots=True)
class WalkLedgers:
    """Read the metadata of the next ledgers, with ascending ids. The reply is `LedgersWalked`.

    The host reads at most one page of ledgers. Deleted ledgers are omitted.
    """

    request: int
    after: int  # the last ledger id that was read; -1 begins a walk
    sync_first: bool  # whether the answer must be at least as new as this request


@dataclass(frozen=True, slots=True)
class QueueMoves:
    """Add a move to the note `moves/<ledger>` of each ledger. The reply is `MovesQueued`."""

    request: int
    ledger_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CountMoves:
    """Count the ledgers whose move from the bookie is pending. The reply is `MovesCounted`.

    The number in the reply may be old, because only the time of the next walk depends on it.
    """

    request: int


@dataclass(frozen=True, slots=True)
class WriteVacation:
    """Write the vacation if its node still has the version `version`. Reply: `VacationWritten`."""

    request: int
    departure: Departure
    version: Version


@dataclass(frozen=True, slots=True)
class Retire:
    """Write the vacation if its version is unchanged, and delete the cookie, in one transaction.

    The transaction also marks the record of the bookie as retired. The reply is `VacationWritten`.
    """

    request: int
    departure: Departure
    version: Version


@dataclass(frozen=True, slots=True)
class VacationPause:
    """Wait at least `delay_ms` by a monotonic clock. The reply is `PauseOver`."""

    request: int
    delay_ms: int


Request = (
    LoadVacation
    | LookAtBookie
    | WalkLedgers
    | QueueMoves
    | CountMoves
    | WriteVacation
    | Retire
    | VacationPause
)


@dataclass(frozen=True, slots=True)
class VacationBegun:
    """The first event, which starts the machine."""


@dataclass(frozen=True, slots=True)
class VacationLoaded:
    """Answer to `LoadVacation`. `found` is None if the vacation was cancelled."""

    request: int
    found: Versioned[Departure] | None


@dataclass(frozen=True, slots=True)
class BookieSeen:
    """Answer to `LookAtBookie`."""

    request: int
    sight: BookieSight
    registration: int | None  # id of the transaction that created the node; None without a node


@dataclass(frozen=True, slots=True)
class LedgersWalked:
    """Answer to `WalkLedgers`."""

    request: int
    ledgers: Sequence[tuple[int, LedgerMetadata]]
    is_last: bool  # whether no ledger follows the ledgers of this page
    unreadable: Sequence[int] = ()  # ledgers in this range whose metadata cannot be read


@dataclass(frozen=True, slots=True)
class MovesQueued:
    """Answer to `QueueMoves`."""

    request: int


@dataclass(frozen=True, slots=True)
class MovesCounted:
    """Answer to `CountMoves`."""

    request: int
    count: int


@dataclass(frozen=True, slots=True)
class VacationWritten:
    """Answer to `WriteVacation` or `Retire`. If the outcome is OK, `version` is the new version."""

    request: int
    outcome: VacationOutcome
    version: Version | None = None


@dataclass(frozen=True, slots=True)
class PauseOver:
    """Answer to `VacationPause`."""

    request: int


@dataclass(frozen=True, slots=True)
class VacateFailed:
    """A request failed: the store is unavailable, or a node cannot be read."""

    request: int


Event = (
    VacationBegun
    | VacationLoaded
    | BookieSeen
    | LedgersWalked
    | MovesQueued
    | MovesCounted
    | VacationWritten
    | PauseOver
    | VacateFailed
)


@dataclass(frozen=True, slots=True)
class VacationEnded:
    """The last indication.

    If the vacation was cancelled, the host deletes the moves of the bookie.
    """

    end: VacationEnd


Effect = Request | VacationEnded
