"""Events and effects of the machines of a ledger.

Effects are of two kinds. A *request* has a number in `request` that its machine chose, and the host
answers it with exactly one reply event that repeats the number. An *indication* notifies the
application and has no reply. Replies of the hot path are named tuples: a frozen dataclass costs
twice as much to build. The host's duties are in `ledgerlog_spark.protocol`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.ledger.read_room import RoomMade

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.model import Code, LedgerMetadata, Version, Versioned

Payload = bytes | bytearray | memoryview


@dataclass(slots=True, eq=False)
class Run:
    """Entries with consecutive ids and fixed bytes: sent, resent and confirmed together."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int  # inclusive
    payloads: Sequence[Payload]  # at least one; by reference, never read
    last_add_confirmed: int  # in every header; smaller than the first id
    length_before: int  # payload bytes of the ledger before the run
    entries: int
    size_bytes: int  # payload
    attachment: Any = None  # for the host, which keeps the encoded entries here

    def __repr__(self) -> str:
        return f"Run({self.ledger_id}: {self.first_entry_id}..{self.last_entry_id})"


class StoredEntry(NamedTuple):
    """An entry that a bookie returned, its digest and ids verified by the host."""

    entry_id: int
    last_add_confirmed: int
    length: int
    payload: Payload


class MetadataOutcome(Enum):
    """Outcome of a request to the metadata store.

    `UNAVAILABLE` is definite: nothing was sent. `UNKNOWN` is not: a write may have happened.
    `CONFLICT` shows that the node is at another version, but not which write changed it.
    """

    OK = "ok"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"
    GONE = "gone"
    UNAVAILABLE = "unavailable"
    UNREADABLE = "unreadable"


class Failure(Enum):
    """Why a machine gave up. The host has one table from these to exceptions."""

    FENCED = "another client is recovering the ledger"
    CLOSED = "the ledger is closed"
    UNAUTHORIZED = "wrong password"
    NOT_FOUND = "no such ledger"
    BAD_REQUEST = "a bookie rejected the request as malformed"
    NOT_ENOUGH_BOOKIES = "too few bookies"
    TOO_MANY_CHANGES = "too many ensemble changes"
    BOOKIE_FAILED = "a bookie failed, and the bookies of this ledger are not replaced"
    ADD_TIMEOUT = "no ack quorum in time"
    OVERLOADED = "its bookies have too many requests"
    METADATA_UNAVAILABLE = "the metadata store cannot be reached"
    METADATA_UNREADABLE = "a metadata record that cannot be read"
    METADATA_CHANGED = "another client changed the record"
    RECOVERY = "an entry is neither certainly present nor certainly absent"
    NEEDS_OPERATOR = "closing would lose entries that are listed or were confirmed"
    ENTRY_ABSENT = "no replica has the entry"
    ENTRY_UNKNOWN = "not all replicas answered, and none of those that did has the entry"
    LAC_UNKNOWN = "no bookie could report the last confirmed entry"
    DIGEST_MISMATCH = "every replica that answered had a bad digest"


@dataclass(frozen=True, slots=True)
class SendAdd:
    """Store a run on one bookie. Answered by `AddReplied`."""

    request: int
    bookie_id: str
    index: int  # in the ensemble, for logs
    run: Run
    # those of the run that this bookie owns, rising; None for all
    entry_ids: tuple[int, ...] | None
    is_recovery: bool  # send with the RECOVERY_ADD flag


@dataclass(frozen=True, slots=True)
class SendRead:
    """Read one entry from one bookie. Answered by `ReadReplied`."""

    request: int
    bookie_id: str
    index: int
    entry_id: int  # NO_ENTRY: the last one that the bookie has
    fence: bool  # with the master key, before the read
    is_recovery: bool  # on the control connection, with high priority


@dataclass(frozen=True, slots=True)
class SendReadBatch:
    """Read consecutive entries from one bookie, without fencing. Answered by `BatchReplied`."""

    request: int
    bookie_id: str
    index: int
    first_entry_id: int
    count_max: int
    size_bytes_max: int
    is_recovery: bool = False  # on the control connection, with high priority


@dataclass(frozen=True, slots=True)
class SendReadLac:
    """Read the largest LAC of one bookie, without fencing. Answered by `LacReplied`.

    The host takes the larger of the explicit LAC, where the transport has one, and the LAC in the
    header of the last entry.
    """

    request: int
    bookie_id: str
    index: int


@dataclass(frozen=True, slots=True)
class LoadMetadata:
    """Read the ledger metadata. Answered by `MetadataLoaded`."""

    request: int
    sync_first: bool  # the answer is at least as new as this moment


@dataclass(frozen=True, slots=True)
class CasMetadata:
    """Replace the metadata if it is still at `version`. Answered by `MetadataWritten`."""

    request: int
    metadata: LedgerMetadata
    version: Version


@dataclass(frozen=True, slots=True)
class ListBookies:
    """List the bookies that accept writes. Answered by `BookiesListed`."""

    request: int


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Wait at least `delay_ms`; the host may add jitter. Answered by `TimerFired`."""

    request: int
    delay_ms: int


Request = (
    SendAdd
    | SendRead
    | SendReadBatch
    | SendReadLac
    | LoadMetadata
    | CasMetadata
    | ListBookies
    | StartTimer
)


class AddReplied(NamedTuple):
    """One bookie's answer to a `SendAdd`; a deadline or a lost connection is an answer too."""

    request: int
    code: Code


class ReadReplied(NamedTuple):
    """One bookie's answer to a `SendRead`."""

    request: int
    code: Code  # DIGEST_MISMATCH when the host could not verify the bytes
    entry: StoredEntry | None  # present exactly when the code is OK


class BatchReplied(NamedTuple):
    """One bookie's answer to a `SendReadBatch`: verified entries, consecutive from the first.

    A short answer implies nothing about the rest.
    """

    request: int
    code: Code
    entries: Sequence[StoredEntry]


@dataclass(frozen=True, slots=True)
class LacReplied:
    """One bookie's answer to a `SendReadLac`; NO_ENTRY unless the code is OK."""

    request: int
    code: Code
    last_add_confirmed: int = NO_ENTRY


@dataclass(frozen=True, slots=True)
class MetadataLoaded:
    """Answer to a `LoadMetadata`: OK, GONE, UNAVAILABLE or UNREADABLE."""

    request: int
    outcome: MetadataOutcome
    versioned: Versioned[LedgerMetadata] | None = None


@dataclass(frozen=True, slots=True)
class MetadataWritten:
    """Answer to a `CasMetadata`.

    OK (with the stored metadata), CONFLICT, UNKNOWN, GONE or UNAVAILABLE.
    """

    request: int
    outcome: MetadataOutcome
    versioned: Versioned[LedgerMetadata] | None = None


@dataclass(frozen=True, slots=True)
class BookiesListed:
    """Answer to a `ListBookies`."""

    request: int
    # in the order of preference, shuffled; empty if they cannot be read
    candidates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TimerFired:
    """Answer to a `StartTimer`."""

    request: int


@dataclass(frozen=True, slots=True)
class Start:
    """Begin. The first event of a recovery, a reader and a LAC read."""


class AddRequested(NamedTuple):
    """Append a run; only while the writer's `can_add` is true.

    Its entries get the ids from the writer's `next_entry_id`, which is read before this event.
    """

    payloads: Sequence[Payload]


@dataclass(frozen=True, slots=True)
class CloseRequested:
    """Close the ledger at the last confirmed entry. Adds that are pending become unknown."""


@dataclass(frozen=True, slots=True)
class EntriesTaken:
    """The application took delivered entries, up to and including `last_entry_id`."""

    last_entry_id: int


Event = (
    AddReplied
    | ReadReplied
    | BatchReplied
    | LacReplied
    | MetadataLoaded
    | MetadataWritten
    | BookiesListed
    | TimerFired
    | Start
    | AddRequested
    | CloseRequested
    | EntriesTaken
    | RoomMade
)


class RunConfirmed(NamedTuple):
    """The oldest pending run is on its ack quorum. In order, without gaps.

    `last_entry_id` is now the writer's last add confirmed.
    """

    first_entry_id: int
    last_entry_id: int


@dataclass(frozen=True, slots=True)
class EnsembleChanged:
    """The metadata names a new ensemble for the entries from `first_entry_id` on."""

    first_entry_id: int
    ensemble: tuple[str, ...]
    replaced: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoReplacement:
    """Failed bookies without a replacement: the writer continues with the others for a while.

    The failed bookies are retried. Entries that they did not answer fill the window. Then no add is
    accepted, and after `WriterSettings.replacement` the writer ends.
    """

    bookie_ids: tuple[str, ...]
    wanted: int  # bookies of the ensemble


@dataclass(frozen=True, slots=True)
class LedgerClosed:
    """The ledger is closed as in `versioned`; the last indication of its machine."""

    versioned: Versioned[LedgerMetadata]


@dataclass(frozen=True, slots=True)
class LedgerFailed:
    """The machine gave up; pending adds of a writer are withdrawn, with an unknown outcome."""

    failure: Failure
    is_definite: bool  # it certainly did not happen and will not
    last_add_confirmed: int = NO_ENTRY  # everything up to and including this is safe
    first_unknown_entry_id: int | None = None  # None when nothing was pending
    is_retriable: bool = False
    entry_id: int | None = None
    bookie_ids: tuple[str, ...] = ()
    wanted: int | None = None  # bookies needed, for NOT_ENOUGH_BOOKIES
    available: int | None = None  # bookies found
    codes: tuple[tuple[str, Code], ...] = ()  # of bookies that failed and did not answer since


@dataclass(frozen=True, slots=True)
class EntriesRead:
    """The next entries of a reader's range, in order."""

    entries: Sequence[StoredEntry]


@dataclass(frozen=True, slots=True)
class RangeRead:
    """The whole range was delivered; the last indication of a reader."""

    metadata: LedgerMetadata


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """The reader delivered everything before `entry_id` and cannot continue."""

    failure: Failure  # ENTRY_ABSENT only when the whole write set reported it absent, twice
    entry_id: int
    codes: tuple[tuple[str, Code | None], ...] = ()  # the last answers of the write set


@dataclass(frozen=True, slots=True)
class LacAdvanced:
    """A bookie reported a larger LAC than before; more may follow."""

    last_add_confirmed: int


@dataclass(frozen=True, slots=True)
class LacRead:
    """The largest LAC that the last ensemble reported; the last indication of its read."""

    last_add_confirmed: int
    is_covered: bool  # no later recovery can find a smaller one


Indication = (
    RunConfirmed
    | EnsembleChanged
    | NoReplacement
    | LedgerClosed
    | LedgerFailed
    | EntriesRead
    | RangeRead
    | ReadFailed
    | LacAdvanced
    | LacRead
)
Effect = Request | Indication
