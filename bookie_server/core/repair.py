"""Fetches from other bookies the entries that a bookie in doubt must hold, and ends the doubt.

`LedgerRepair` repairs one ledger. First, it loads the record of the ledger. Then it fetches the
entries that the bookie must hold but does not have. Finally, it loads the record again, and clears
the ledger if the record has not changed. It clears only a closed ledger, or an open ledger
whose last fragment does not name the bookie. A ledger in recovery stays in limbo even if no
fragment names the bookie, because the write that closes the ledger may name the bookie for entries
that the bookie has lost.

`RepairPass` repairs all listed ledgers. Each ledger that is not cleared gets a state, and stays in
limbo. After that, the doubt about ledgers without a state is over.

A repair clears ledgers up to the epoch in which it began. Ledgers with later losses stay in limbo.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain, islice, pairwise

from bookie_server.core.doubt import Doubt
from ledgerlog_spark.model import (
    NO_ENTRY,
    Code,
    Fragment,
    LedgerMetadata,
    LedgerState,
    Quorum,
    Versioned,
)

RECORD_CHANGES_MAX = 8
"""Maximum number of changes of the record during a repair. After more changes, the repair ends, and
must be tried again."""
STRETCH_ENTRIES_MAX = 4_096
"""Number of entries that a repair verifies before it fetches the missing entries among them."""
FETCH_AHEAD_MAX = 256
"""Maximum number of entries that may be read together from another bookie."""
MISSING_MAX = 1_000
"""Maximum number of ids of missing entries that a repair reports."""


class RepairOutcome(Enum):
    """The result of a repair of one ledger."""

    CLEARED = "cleared"
    DELETED = "the ledger does not exist"
    WAITING = "in limbo until the ledger is closed"
    INCOMPLETE = "a bookie or the store did not answer; to be tried again"
    NEEDS_OPERATOR = "all other bookies deny that an entry exists"


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """Load the ledger's record, with all changes before this call. `RecordLoaded` is the answer."""


@dataclass(frozen=True, slots=True)
class VerifyHeld:
    """Find the entries that the bookie holds with valid digests. `HeldVerified` is the answer."""

    entry_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class FetchEntry:
    """Read an entry from another bookie, and check its digest. `EntryFetched` is the answer.

    Attributes:
        bookie_id: Id of the other bookie.
        entry_id: Id of the entry.
        count: Number of consecutive missing entries from `entry_id` on, at most `FETCH_AHEAD_MAX`.
            These entries will be fetched next, perhaps from the same bookie.
    """

    bookie_id: str
    entry_id: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class ReadPeerLac:
    """Read the LAC of another bookie. `PeerLacRead` is the answer."""

    bookie_id: str


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """Store a fetched entry as a recovery add. `EntryStored` is the answer."""

    entry_id: int
    stored: bytes


@dataclass(frozen=True, slots=True)
class ClearLedger:
    """Write a control record with the cleared epoch and the LAC, and sync it.

    `LedgerCleared` is the answer. The sync covers the entries that were stored before. The check
    epoch of the ledger does not change, so the next regular add still reads the record.
    """

    epoch: int
    last_add_confirmed: int


@dataclass(frozen=True, slots=True)
class RepairEnded:
    """The repair has ended.

    Attributes:
        outcome: The result of the repair.
        missing: Ids of entries that no other bookie returned, at most `MISSING_MAX`.
        missing_count: Number of these entries.
        record: The record that the ledger had at the end; None if it was not read.
        silent_peers: Number of bookies of the open last fragment that did not return their LAC.
    """

    outcome: RepairOutcome
    missing: tuple[int, ...] = ()
    missing_count: int = 0
    record: Versioned[LedgerMetadata] | None = None
    silent_peers: int = 0


RepairEffect = (
    LoadRecord | VerifyHeld | FetchEntry | ReadPeerLac | StoreEntry | ClearLedger | RepairEnded
)


@dataclass(frozen=True, slots=True)
class RecordLoaded:
    """The ledger's record. It is None if the record does not exist, or if `is_read` is false."""

    is_read: bool
    record: Versioned[LedgerMetadata] | None = None


@dataclass(frozen=True, slots=True)
class HeldVerified:
    """The answer to a `VerifyHeld`, with the ids of the entries that the bookie holds."""

    entry_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class EntryFetched:
    """Another bookie's answer. `stored` is None unless the code is OK."""

    code: Code
    stored: bytes | None = None


@dataclass(frozen=True, slots=True)
class PeerLacRead:
    """Another bookie's answer to a `ReadPeerLac`."""

    code: Code
    last_add_confirmed: int = NO_ENTRY


@dataclass(frozen=True, slots=True)
class EntryStored:
    """The answer to a `StoreEntry`. It reports whether the entry is stored."""

    is_stored: bool


@dataclass(frozen=True, slots=True)
class LedgerCleared:
    """The answer to a `ClearLedger` when the cleared epoch is durable."""


RepairEvent = RecordLoaded | HeldVerified | EntryFetched | PeerLacRead | EntryStored | LedgerCleared


def owed_of(fragment: Fragment, end: int, quorum: Quorum, bookie_id: str) -> Iterator[int]:
    """Yield the ids before `end` of a fragment's entries that the bookie must hold, ascending."""
    if bookie_id not in fragment.ensemble:
        return iter(())
    index, size = fragment.ensemble.index(bookie_id), quorum.ensemble_size
    ids = range(fragment.first_entry_id, end)
    return (entry_id for entry_id in ids if (index - entry_id) % size < quorum.write_quorum)


def ends_of(metadata: LedgerMetadata) -> list[tuple[Fragment, int]]:
    """Return the fragments whose entries are known, each with the id after its last entry id."""
    fragments = metadata.fragments
    ends = [(one, following.first_entry_id) for one, following in pairwise(fragments)]
    if metadata.is_closed:
        beyond = metadata.last_entry_id + 1
        ends.append((metadata.last_fragment, beyond))
        return [(fragment, min(end, beyond)) for fragment, end in ends]
    return ends


@dataclass(frozen=True, slots=True)
class RecoveryLimits:
    """Times after which a bookie recovers a ledger that is in limbo.

    Attributes:
        idle_ms: If an open ledger gets no add for this time, it may have no writer.
        stuck_ms: If a ledger in recovery does not change for this time, its recovery may have ended
            early.
    """

    idle_ms: int = 600_000
    stuck_ms: int = 600_000


def should_recover(ended: RepairEnded, quiet_ms: int, limits: RecoveryLimits) -> bool:
    """Return whether a bookie should recover a ledger, so that it can leave limbo.

    If the ledger may be in limbo on an ack quorum of bookies, it is left to its writer while it is
    open. Only the writer can close it then, because the other bookies are too few to prove that an
    entry does not exist.

    Args:
        ended: The end of the ledger's last repair.
        quiet_ms: Time without a change of the record, and without an add of the ledger.
        limits: The times after which the bookie recovers a ledger.
    """
    if ended.outcome is not RepairOutcome.WAITING or ended.record is None:
        return False
    metadata = ended.record.value
    if metadata.state is LedgerState.IN_RECOVERY:
        return quiet_ms >= limits.stuck_ms
    can_close = 1 + ended.silent_peers < metadata.quorum.ack_quorum
    return can_close and quiet_ms >= limits.idle_ms


def cleared_lac(metadata: LedgerMetadata) -> int:
    """Return the LAC of a ledger that is cleared.

    The entries that the bookie must hold contain no larger LAC.
    """
    if metadata.is_closed:
        return metadata.last_entry_id
    return metadata.last_fragment.first_entry_id - 1


class LedgerRepair:
    """The repair of one ledger. One effect is under way at a time."""

    def __init__(self, bookie_id: str, doubt: Doubt, *, has_state: bool) -> None:
        """Create a repair that begins now.

        Args:
            bookie_id: Id of this bookie.
            doubt: The doubt about the directory, which is durable.
            has_state: Whether the bookie has a state of the ledger.
        """
        self._bookie_id = bookie_id
        self._epoch = doubt.epoch
        self._has_state = has_state
        self._record: Versioned[LedgerMetadata] | None = None
        self._unverified: Iterator[int] = iter(())  # ids of the entries to verify
        self._owed: deque[int] = deque()  # ids of the missing entries of the current stretch
        self._missing: list[int] = []
        self._missing_count = 0
        self._is_incomplete = False
        self._peers: deque[str] = deque()
        self._peers_lac = NO_ENTRY
        self._silent_peers = 0
        self._is_denied = True  # whether all answers denied that the entry exists
        self._changes = 0

    def begin(self) -> list[RepairEffect]:
        """Return the first effect."""
        return [LoadRecord()]

    def handle(self, event: RepairEvent) -> list[RepairEffect]:
        """Return the next effect after the answer to the last effect."""
        if isinstance(event, RecordLoaded):
            return self._on_loaded(event)
        if isinstance(event, PeerLacRead):
            if event.code is Code.OK:
                self._peers_lac = max(self._peers_lac, event.last_add_confirmed)
            elif not event.code.is_absent:
                self._silent_peers += 1
            return self._read_peers()
        if isinstance(event, HeldVerified):
            self._owed = deque(one for one in self._owed if one not in event.entry_ids)
            return self._fetch_next()
        if isinstance(event, EntryFetched):
            return self._on_fetched(event)
        if isinstance(event, EntryStored):
            self._is_incomplete |= not event.is_stored
            self._has_state |= event.is_stored
            return self._fetch_next()
        return [RepairEnded(RepairOutcome.CLEARED)]

    def _on_loaded(self, event: RecordLoaded) -> list[RepairEffect]:
        if not event.is_read:
            return [RepairEnded(RepairOutcome.INCOMPLETE)]
        if event.record is None:
            return [RepairEnded(RepairOutcome.DELETED)]
        before, self._record = self._record, event.record
        if before is not None and before.version == event.record.version:
            return self._conclude(event.record.value)
        self._changes += before is not None
        if self._changes > RECORD_CHANGES_MAX:
            return [RepairEnded(RepairOutcome.INCOMPLETE)]
        metadata = event.record.value
        self._missing, self._missing_count, self._is_incomplete = [], 0, False
        if metadata.state is LedgerState.OPEN and self._is_in(metadata.last_fragment):
            others = (one for one in metadata.last_fragment.ensemble if one != self._bookie_id)
            self._peers, self._peers_lac, self._silent_peers = deque(others), NO_ENTRY, 0
            return self._read_peers()
        return self._verify(ends_of(metadata))

    def _is_in(self, fragment: Fragment) -> bool:
        return self._bookie_id in fragment.ensemble

    def _read_peers(self) -> list[RepairEffect]:
        """Read the other bookies' LACs. This bookie must hold the entries up to the largest LAC."""
        if self._peers:
            return [ReadPeerLac(self._peers.popleft())]
        metadata = self._metadata
        known = (metadata.last_fragment, self._peers_lac + 1)
        return self._verify([*ends_of(metadata), known])

    @property
    def _metadata(self) -> LedgerMetadata:
        assert self._record is not None
        return self._record.value

    def _verify(self, ends: Iterable[tuple[Fragment, int]]) -> list[RepairEffect]:
        quorum = self._metadata.quorum
        self._unverified = chain.from_iterable(
            owed_of(one, end, quorum, self._bookie_id) for one, end in ends
        )
        stretch = self._next_stretch()
        if not stretch and not self._has_state:
            return self._conclude(self._metadata)
        return [VerifyHeld(stretch)]

    def _next_stretch(self) -> tuple[int, ...]:
        stretch = tuple(islice(self._unverified, STRETCH_ENTRIES_MAX))
        self._owed = deque(stretch)
        return stretch

    def _fetch_next(self) -> list[RepairEffect]:
        if not self._owed:
            stretch = self._next_stretch()
            return [VerifyHeld(stretch)] if stretch else [LoadRecord()]
        entry_id, metadata = self._owed[0], self._metadata
        ensemble, size = metadata.fragment_of(entry_id).ensemble, metadata.quorum.ensemble_size
        members = [
            ensemble[(entry_id + step) % size] for step in range(metadata.quorum.write_quorum)
        ]
        self._peers = deque(one for one in members if one != self._bookie_id)
        self._is_denied = True
        return self._fetch_from_next()

    def _fetch_from_next(self) -> list[RepairEffect]:
        if self._peers:
            return [FetchEntry(self._peers.popleft(), self._owed[0], self._consecutive())]
        entry_id = self._owed.popleft()
        self._is_incomplete |= not self._is_denied
        self._missing_count += 1
        if len(self._missing) < MISSING_MAX:
            self._missing.append(entry_id)
        return self._fetch_next()

    def _consecutive(self) -> int:
        """Return the number of consecutive ids at the beginning of `_owed`, up to a maximum."""
        ids = list(islice(self._owed, FETCH_AHEAD_MAX))
        return next((n for n, one in enumerate(ids) if one != ids[0] + n), len(ids))

    def _on_fetched(self, event: EntryFetched) -> list[RepairEffect]:
        if event.code is Code.OK and event.stored is not None:
            return [StoreEntry(self._owed.popleft(), event.stored)]
        self._is_denied &= event.code.is_absent
        return self._fetch_from_next()

    def _conclude(self, metadata: LedgerMetadata) -> list[RepairEffect]:
        """End the repair. The record has not changed since the repair first read it."""
        last = metadata.last_fragment
        is_open_without_me = metadata.state is LedgerState.OPEN and not self._is_in(last)
        missing = tuple(self._missing), self._missing_count, self._record
        if self._is_incomplete:
            return [RepairEnded(RepairOutcome.INCOMPLETE, *missing)]
        if self._missing:
            return [RepairEnded(RepairOutcome.NEEDS_OPERATOR, *missing)]
        if not (metadata.is_closed or is_open_without_me):
            waiting = RepairEnded(
                RepairOutcome.WAITING, record=self._record, silent_peers=self._silent_peers
            )
            return [waiting]
        if not self._has_state:
            return [RepairEnded(RepairOutcome.CLEARED)]
        return [ClearLedger(self._epoch, cleared_lac(metadata))]


@dataclass(frozen=True, slots=True)
class ListLedgers:
    """List all ledgers of the metadata store, with all changes before this call."""


@dataclass(frozen=True, slots=True)
class RepairLedger:
    """Repair this ledger with a `LedgerRepair` that gets the doubt of the pass."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class KeepInLimbo:
    """Write the state of this ledger, and sync it. The ledger stays in limbo.

    The state is written even if the bookie already has a state of the ledger, because the records
    of this state may be lost.
    """

    ledger_id: int


@dataclass(frozen=True, slots=True)
class EndDoubt:
    """Store the result of `Doubt.ended` for this epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class PassEnded:
    """The pass has ended. If `is_whole` is false, the pass must be repeated."""

    is_whole: bool


PassEffect = ListLedgers | RepairLedger | KeepInLimbo | EndDoubt | PassEnded


class RepairPass:
    """The repair of all ledgers in one epoch. Its owner answers each effect with a method call."""

    def __init__(self, doubt: Doubt) -> None:
        """Create a pass that begins now. The doubt must be durable."""
        self._epoch = doubt.epoch
        self._left = array("q")  # ids of the ledgers still to be repaired, in descending order

    def begin(self) -> PassEffect:
        """Return the first effect, which `listed` answers."""
        return ListLedgers()

    @property
    def left_count(self) -> int:
        """Number of ledgers still to be repaired, without the current ledger."""
        return len(self._left)

    def listed(self, ledger_ids: Iterable[int], *, is_whole: bool) -> PassEffect:
        """Begin with the first ledger. If the list may lack ledgers that exist, end the pass."""
        if not is_whole:
            return PassEnded(is_whole=False)
        self._left = array("q", ledger_ids)
        self._left.reverse()
        return self.handled()

    def repaired(self, ledger_id: int, outcome: RepairOutcome) -> PassEffect:
        """Continue after the repair of one ledger."""
        if outcome in (RepairOutcome.CLEARED, RepairOutcome.DELETED):
            return self.handled()
        return KeepInLimbo(ledger_id)

    def handled(self) -> PassEffect:
        """Continue after a ledger is cleared, or after its state is durable."""
        if self._left:
            return RepairLedger(self._left.pop())
        return EndDoubt(self._epoch)

    def ended(self) -> PassEffect:
        """End the pass after the end of the doubt is durable."""
        return PassEnded(is_whole=True)
