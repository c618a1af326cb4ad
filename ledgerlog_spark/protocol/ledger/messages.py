"""Events and effects of the machines of a ledger.

An effect is a request or an indication. A *request* has a number in `request`, which the machine
chose. The host answers a request with exactly one reply event, which repeats the number. An
*indication* notifies the application and has no reply. The most frequent replies are named tuples,
because a frozen dataclass takes twice as long to build. `ledgerlog_spark.protocol` lists the duties
of the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from ledgerlog_spark.model import NO_ENTRY, Code, LedgerMetadata, Version, Versioned
from ledgerlog_spark.protocol.ledger.identities import IdentitiesRead, Identity, ReadIdentities
from ledgerlog_spark.protocol.ledger.read_room import RoomMade
from ledgerlog_spark.protocol.ledger.slices import SliceSource
from ledgerlog_spark.protocol.placement.places import BookieMap
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy

Payload = bytes | bytearray | memoryview


@dataclass(slots=True, eq=False)
class Run:
    """Entries with consecutive ids that are sent, resent and confirmed together."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int  # inclusive
    payloads: Sequence[Payload]  # at least one payload; the machine never reads their bytes
    last_add_confirmed: int  # the LAC in every header; smaller than the first id
    length_before: int  # payload bytes of the ledger before the run
    entries: int
    size_bytes: int  # total size of the payloads
    attachment: Any = None  # the host keeps the encoded entries here

    def __repr__(self) -> str:
        return f"Run({self.ledger_id}: {self.first_entry_id}..{self.last_entry_id})"


class StoredEntry(NamedTuple):
    """An entry that a bookie returned. The host has verified its digest and ids."""

    entry_id: int
    last_add_confirmed: int
    length: int
    payload: Payload


class MetadataOutcome(Enum):
    """Outcome of a request to the metadata store.

    `UNAVAILABLE` means that a write was not sent. `UNKNOWN` means that a write may have happened.
    `CONFLICT` shows that the node has another version, but not which write changed the node.
    `BOOKIE_CHANGED` shows that a bookie has another identity, so that this write changed nothing.
    """

    OK = "ok"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"
    GONE = "gone"
    UNAVAILABLE = "unavailable"
    UNREADABLE = "unreadable"
    BOOKIE_CHANGED = "bookie changed"


class Failure(Enum):
    """Why a machine gave up. One table of the host maps each failure to an exception."""

    FENCED = "another client is recovering the ledger"
    CLOSED = "the ledger is closed"
    UNAUTHORIZED = "wrong password"
    NOT_FOUND = "the ledger does not exist"
    BAD_REQUEST = "a bookie rejected the request as malformed"
    NOT_ENOUGH_BOOKIES = "too few bookies"
    TOO_MANY_CHANGES = "too many ensemble changes"
    BOOKIE_FAILED = "a bookie failed, and the bookies of this ledger are not replaced"
    ADD_TIMEOUT = "no ack quorum in time"
    OVERLOADED = "its bookies have too many requests"
    METADATA_UNAVAILABLE = "the metadata store cannot be reached"
    METADATA_UNREADABLE = "its metadata cannot be read"
    METADATA_CHANGED = "another client changed its metadata"
    BOOKIE_CHANGED = "a bookie lost its entries before the close named it"
    RECOVERY = "an entry is neither certainly present nor certainly absent"
    NEEDS_OPERATOR = "closing would lose entries that are listed or were confirmed"
    ENTRY_ABSENT = "no replica has the entry"
    ENTRY_UNKNOWN = "some replicas did not answer, and no other replica has the entry"
    LAC_UNKNOWN = "no bookie could report the last confirmed entry"
    DIGEST_MISMATCH = "every replica that answered had a bad digest"


@dataclass(frozen=True, slots=True)
class SendAdd:
    """Store a run on one bookie. The reply is `AddReplied`."""

    request: int
    bookie_id: str
    index: int  # place of the bookie in the ensemble
    run: Run
    # ascending ids of the entries that this bookie stores; None means all entries of the run
    entry_ids: tuple[int, ...] | None
    is_recovery: bool  # whether to send the flag RECOVERY_ADD


@dataclass(frozen=True, slots=True)
class SendRead:
    """Read one entry from one bookie. The reply is `ReadReplied`."""

    request: int
    bookie_id: str
    index: int
    entry_id: int  # NO_ENTRY means the last entry that the bookie has
    fence: bool  # whether to fence the ledger before the read, with the master key
    is_recovery: bool  # whether to send on the control connection, with high priority


@dataclass(frozen=True, slots=True)
class SendReadBatch:
    """Read consecutive entries from one bookie, without fencing. The reply is `BatchReplied`."""

    request: int
    bookie_id: str
    index: int
    first_entry_id: int
    count_max: int
    size_bytes_max: int
    is_recovery: bool = False  # whether to send on the control connection, with high priority


@dataclass(frozen=True, slots=True)
class SendReadSlices:
    """Read slices of consecutive entries from one bookie. The reply is `BatchReplied`.

    The entries of the reply have the payloads that `slices` makes, but no LAC and no length.
    """

    request: int
    bookie_id: str
    index: int
    first_entry_id: int
    last_entry_id: int  # inclusive
    size_bytes_max: int
    slices: SliceSource


@dataclass(frozen=True, slots=True)
class SendReadLac:
    """Read the largest LAC that one bookie has, without fencing. The reply is `LacReplied`.

    The host returns the LAC in the header of the last entry. If the transport also reads an
    explicit LAC, the host returns the larger LAC.
    """

    request: int
    bookie_id: str
    index: int


@dataclass(frozen=True, slots=True)
class LoadMetadata:
    """Read the ledger metadata. The reply is `MetadataLoaded`."""

    request: int
    sync_first: bool  # if True, the answer is at least as new as this request


@dataclass(frozen=True, slots=True)
class CasMetadata:
    """Replace the metadata if its version is still `version`. The reply is `MetadataWritten`.

    In the same transaction, the host checks that no bookie of `identities` has changed.
    """

    request: int
    metadata: LedgerMetadata
    version: Version
    identities: tuple[Identity, ...] = ()


@dataclass(frozen=True, slots=True)
class ListBookies:
    """List the bookies that accept writes. The reply is `BookiesListed`."""

    request: int
    is_fresh: bool = True  # if False, the list in the memory of the host is enough


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Wait at least `delay_ms`; the host may add jitter. The reply is `TimerFired`."""

    request: int
    delay_ms: int


Request = (
    SendAdd
    | SendRead
    | SendReadBatch
    | SendReadSlices
    | SendReadLac
    | LoadMetadata
    | CasMetadata
    | ListBookies
    | ReadIdentities
    | StartTimer
)


class AddReplied(NamedTuple):
    """One bookie's answer to a `SendAdd`.

    The host also sends this event if the deadline passes, or if the connection is lost.
    """

    request: int
    code: Code


class ReadReplied(NamedTuple):
    """One bookie's answer to a `SendRead`."""

    request: int
    code: Code  # DIGEST_MISMATCH when the host could not verify the bytes
    entry: StoredEntry | None  # present exactly when the code is OK


class BatchReplied(NamedTuple):
    """One bookie's answer to a `SendReadBatch` or a `SendReadSlices`.

    The host has verified the entries. The entries begin with the first requested entry and have no
    gaps. An answer with fewer entries than requested does not show that the other entries are
    absent.
    """

    request: int
    code: Code
    entries: Sequence[StoredEntry]


@dataclass(frozen=True, slots=True)
class LacReplied:
    """One bookie's answer to a `SendReadLac`. If the code is not OK, the LAC is NO_ENTRY."""

    request: int
    code: Code
    last_add_confirmed: int = NO_ENTRY


@dataclass(frozen=True, slots=True)
class MetadataLoaded:
    """Answer to a `LoadMetadata`. The outcome is OK, GONE, UNAVAILABLE or UNREADABLE."""

    request: int
    outcome: MetadataOutcome
    versioned: Versioned[LedgerMetadata] | None = None


@dataclass(frozen=True, slots=True)
class MetadataWritten:
    """Answer to a `CasMetadata`.

    The outcome is OK (`versioned` is the stored metadata), CONFLICT, BOOKIE_CHANGED, UNKNOWN, GONE
    or UNAVAILABLE.
    """

    request: int
    outcome: MetadataOutcome
    versioned: Versioned[LedgerMetadata] | None = None


@dataclass(frozen=True, slots=True)
class BookiesListed:
    """Answer to a `ListBookies`."""

    request: int
    # in the order of preference, which the host makes at random; empty if the list cannot be read
    candidates: tuple[str, ...]
    bookies: BookieMap = field(default_factory=BookieMap)  # hosts, racks, regions and quarantine
    policy: PlacementPolicy = field(default_factory=PlacementPolicy)


@dataclass(frozen=True, slots=True)
class TimerFired:
    """Answer to a `StartTimer`."""

    request: int


@dataclass(frozen=True, slots=True)
class Start:
    """The first event of a recovery, of a reader or of a LAC read."""


class AddRequested(NamedTuple):
    """Append a run. This event is allowed only while the writer's `can_add` is true.

    The entries get consecutive ids from the writer's `next_entry_id` on. The host reads
    `next_entry_id` before it sends this event.
    """

    payloads: Sequence[Payload]


@dataclass(frozen=True, slots=True)
class CloseRequested:
    """Close the ledger at the last confirmed entry. The outcome of pending adds stays unknown."""


@dataclass(frozen=True, slots=True)
class MemberLost:
    """A bookie has not been registered for some time. An idle writer does not notice this itself.

    The host may send the event again. The writer replaces the bookie if there is a spare bookie.
    """

    bookie_id: str


@dataclass(frozen=True, slots=True)
class EntriesTaken:
    """The application took the delivered entries up to and including `last_entry_id`."""

    last_entry_id: int


Event = (
    AddReplied
    | ReadReplied
    | BatchReplied
    | LacReplied
    | MetadataLoaded
    | MetadataWritten
    | BookiesListed
    | IdentitiesRead
    | TimerFired
    | Start
    | AddRequested
    | CloseRequested
    | MemberLost
    | EntriesTaken
    | RoomMade
)


class RunConfirmed(NamedTuple):
    """The oldest pending run is stored on an ack quorum. Runs are confirmed in order, without gaps.

    `last_entry_id` is now the writer's last add confirmed.
    """

    first_entry_id: int
    last_entry_id: int


@dataclass(frozen=True, slots=True)
class EnsembleChanged:
    """The metadata has a new fragment for the entries from `first_entry_id` on.

    If absent bookies returned and no bookie was replaced, the new fragment has the same ensemble as
    the fragment before it.
    """

    first_entry_id: int
    ensemble: tuple[str, ...]
    replaced: tuple[str, ...]
    returned: tuple[str, ...] = ()  # absent bookies that get entries again


@dataclass(frozen=True, slots=True)
class HoleLeft:
    """Entries that a bookie should have. The bookie may lack some or all of these entries."""

    first_entry_id: int
    last_entry_id: int  # inclusive
    bookie_id: str


@dataclass(frozen=True, slots=True)
class HolesLeft:
    """The machine no longer sends the entries of these holes to their bookies.

    A writer returns this indication when it ends a fragment, and before `LedgerClosed`. A recovery
    returns it before `LedgerClosed`.
    """

    metadata: LedgerMetadata  # contains the fragments of these entries
    holes: tuple[HoleLeft, ...]


@dataclass(frozen=True, slots=True)
class NoReplacement:
    """Some failed bookies have no replacement. The writer continues without them.

    The writer retries the failed bookies. Entries that these bookies have not stored stay in the
    window. When the window is full, or when `WriterSettings.replacement` allows no further retry,
    these bookies become absent if the other bookies are enough for each ack quorum. Otherwise the
    writer fails after the last retry.
    """

    answers: tuple[tuple[str, Code], ...]  # the last answer of each failed bookie
    wanted: int  # number of bookies in the ensemble


@dataclass(frozen=True, slots=True)
class LedgerClosed:
    """The ledger is closed, with the metadata `versioned`. The writer or the recovery has ended."""

    versioned: Versioned[LedgerMetadata]


@dataclass(frozen=True, slots=True)
class LedgerFailed:
    """The machine gave up. If it is a writer, the outcome of its pending adds is unknown."""

    failure: Failure
    is_definite: bool  # if True, the requested change did not happen and will not happen
    last_add_confirmed: int = NO_ENTRY  # all entries up to and including this entry are confirmed
    # the first entry of the pending adds; None when no add was pending
    first_unknown_entry_id: int | None = None
    is_retriable: bool = False
    entry_id: int | None = None
    bookie_ids: tuple[str, ...] = ()
    wanted: int | None = None  # for NOT_ENOUGH_BOOKIES, the number of needed bookies
    available: int | None = None  # for NOT_ENOUGH_BOOKIES, the number of usable bookies
    codes: tuple[tuple[str, Code], ...] = ()  # the failed bookies and their answers


@dataclass(frozen=True, slots=True)
class EntriesRead:
    """The next entries of a reader's range, in order."""

    entries: Sequence[StoredEntry]


@dataclass(frozen=True, slots=True)
class RangeRead:
    """The whole range was delivered. `RangeRead` is the last indication of a reader."""

    metadata: LedgerMetadata


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """The reader delivered all entries before `entry_id`, and cannot read this entry."""

    failure: Failure  # ENTRY_ABSENT only if the whole write set reported the entry absent
    entry_id: int
    codes: tuple[tuple[str, Code | None], ...] = ()  # the last answer of each bookie


@dataclass(frozen=True, slots=True)
class LacAdvanced:
    """A bookie reported a LAC that is larger than all earlier LACs. A larger LAC may follow."""

    last_add_confirmed: int


@dataclass(frozen=True, slots=True)
class LacRead:
    """The LAC read has ended with the largest LAC that bookies of the last ensemble reported."""

    last_add_confirmed: int
    is_covered: bool  # if True, every later recovery finds this LAC or a larger LAC


Indication = (
    RunConfirmed
    | EnsembleChanged
    | HolesLeft
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
