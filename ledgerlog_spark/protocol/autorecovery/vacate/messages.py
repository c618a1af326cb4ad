"""Events and effects of the machine of a vacation. The host answers each request once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from ledgerlog_spark.model import LedgerMetadata, Version, Versioned
from ledgerlog_spark.protocol.autorecovery.vacate.departure import Departure


class BookieSight(Enum):
    """How a bookie is registered."""

    WRITABLE = "writable"
    READ_ONLY = "read-only"
    ABSENT = "absent"


class VacationOutcome(Enum):
    """The outcome of a write of the vacation."""

    OK = "ok"
    CONFLICT = "conflict"  # another process wrote or deleted a node of the transaction
    UNKNOWN = "unknown"  # the store is unavailable; the write may have happened


class VacationEnd(Enum):
    """Why the machine has ended."""

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
    """Read the next metadata of ledgers, ascending. The reply is `LedgersWalked`.

    The host reads at most a page. A ledger that was deleted is omitted.
    """

    request: int
    after: int  # -1 begins a walk
    sync_first: bool  # if True, the answer is at least as new as this request


@dataclass(frozen=True, slots=True)
class QueueMoves:
    """Create or extend the note `moves/<ledger>` of each ledger. The reply is `MovesQueued`."""

    request: int
    ledger_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CountMoves:
    """Count the ledgers whose move from the bookie is pending. The reply is `MovesCounted`.

    The count may be stale, because only the time of the next walk depends on it.
    """

    request: int


@dataclass(frozen=True, slots=True)
class WriteVacation:
    """Replace the vacation if its version is still `version`. The reply is `VacationWritten`."""

    request: int
    departure: Departure
    version: Version


@dataclass(frozen=True, slots=True)
class Retire:
    """In one transaction: replace the vacation at its version, and delete the cookie.

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
    """The first event."""


@dataclass(frozen=True, slots=True)
class VacationLoaded:
    """Answer to `LoadVacation`. The vacation is None if it was cancelled."""

    request: int
    found: Versioned[Departure] | None


@dataclass(frozen=True, slots=True)
class BookieSeen:
    """Answer to `LookAtBookie`."""

    request: int
    sight: BookieSight
    registration: int | None  # the transaction that created its node; None if it is absent


@dataclass(frozen=True, slots=True)
class LedgersWalked:
    """Answer to `WalkLedgers`."""

    request: int
    ledgers: Sequence[tuple[int, LedgerMetadata]]
    is_last: bool  # whether there is no ledger after these
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
    """Answer to `WriteVacation` and `Retire`. After OK, `version` is the new version."""

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
    """The last indication. After a cancellation, the host removes the bookie from the moves."""

    end: VacationEnd


Effect = Request | VacationEnded
