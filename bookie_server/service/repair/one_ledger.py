"""Repairs one ledger: performs the effects of `LedgerRepair`.

Consecutive missing entries are read from another bookie together, and several entries are stored at
a time. The machine does not wait until each entry is stored. All entries must be stored before the
machine loads the record again. If an entry could not be stored, the repair ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bookie_server.core.doubt import Doubt
from bookie_server.core.repair import (
    ClearLedger,
    EntryFetched,
    EntryStored,
    FetchEntry,
    HeldVerified,
    LedgerCleared,
    LedgerRepair,
    LoadRecord,
    PeerLacRead,
    ReadPeerLac,
    RecordLoaded,
    RepairEffect,
    RepairEnded,
    RepairEvent,
    RepairOutcome,
    StoreEntry,
    VerifyHeld,
)
from bookie_server.ports import Clock, Tasks
from bookie_server.service.repair.held_bytes import Digests
from bookie_server.service.repair.pace import RepairPace, Stores
from bookie_server.service.repair.ports import LedgerRecords, Peers, RepairStorage
from ledgerlog_spark.errors import MetadataError, MetadataFormatError
from ledgerlog_spark.model import NO_ENTRY, Code, LedgerMetadata, Versioned
from ledgerlog_spark.retry import RetryPolicy

LOADS = RetryPolicy(first_delay_ms=1_000, delay_max_ms=1_000, attempts_max=3)


@dataclass(slots=True)
class RepairCounters:
    """Counters of all repairs since the start of the bookie."""

    entries_fetched: int = 0
    bytes_fetched: int = 0
    entries_refused: int = 0  # number of entries from other bookies with a wrong digest
    ledgers_cleared: int = 0
    recoveries: int = 0


@dataclass(frozen=True, slots=True)
class RepairReport:
    """The result of a repair of one ledger.

    Attributes:
        ended: The result of the machine.
        problem: The reason why the repair is not complete; empty if the repair is complete.
    """

    ended: RepairEnded
    problem: str = ""


@dataclass(slots=True)
class RepairParts:
    """The parts that all repairs of a bookie share.

    Attributes:
        silent_ms: Time for which a bookie counts as silent after it did not answer, in
            milliseconds.
        loads: Pauses and maximum number of attempts to load a record.
        silent_until: Time at which a silent bookie no longer counts as silent, by bookie id.
    """

    bookie_id: str
    storage: RepairStorage
    records: LedgerRecords
    peers: Peers
    tasks: Tasks
    clock: Clock
    pace: RepairPace
    counters: RepairCounters
    silent_ms: int = 30_000
    loads: RetryPolicy = LOADS
    silent_until: dict[str, int] = field(default_factory=dict)
    is_stopped: bool = False

    def is_silent(self, bookie_id: str) -> bool:
        """Return whether the bookie recently did not answer in time."""
        return self.clock.monotonic_ms() < self.silent_until.get(bookie_id, 0)

    def note(self, bookie_id: str, code: Code) -> None:
        """Record whether a bookie answered in time."""
        if code is Code.TIMEOUT:
            self.silent_until[bookie_id] = self.clock.monotonic_ms() + self.silent_ms
        else:
            self.silent_until.pop(bookie_id, None)


async def repair_ledger(
    parts: RepairParts, ledger_id: int, doubt: Doubt, *, has_state: bool
) -> RepairReport:
    """Repair a ledger, and return the result.

    Raises:
        MetadataError: The metadata store does not answer.
        StorageError: The storage could not read or write.
    """
    return await _Repair(parts, ledger_id).run(doubt, has_state=has_state)


class _NotStoredError(Exception):
    """An entry or a control record could not be stored."""


class _Repair:
    """The repair of one ledger."""

    def __init__(self, parts: RepairParts, ledger_id: int) -> None:
        self._parts = parts
        self._ledger_id = ledger_id
        self._digests: Digests | None = None
        self._stores = Stores(parts.tasks)
        self._ahead: dict[int, bytes] = {}  # entries that were read together with an earlier entry
        self._problem = ""
        self._entry_problem: tuple[int, str] | None = None  # problem of the current entry

    async def run(self, doubt: Doubt, *, has_state: bool) -> RepairReport:
        machine = LedgerRepair(self._parts.bookie_id, doubt, has_state=has_state)
        (effect,) = machine.begin()
        try:
            while not isinstance(effect, RepairEnded):
                await self._parts.tasks.give_way()
                if self._parts.is_stopped:  # the storage is about to close
                    return RepairReport(RepairEnded(RepairOutcome.INCOMPLETE), "the bookie stops")
                (effect,) = machine.handle(await self._perform(effect))
        except _NotStoredError as error:
            return RepairReport(RepairEnded(RepairOutcome.INCOMPLETE), str(error))
        self._begin_entry(NO_ENTRY)
        is_incomplete = effect.outcome is RepairOutcome.INCOMPLETE
        return RepairReport(effect, self._problem if is_incomplete else "")

    async def _perform(self, effect: RepairEffect) -> RepairEvent:
        parts, ledger_id = self._parts, self._ledger_id
        match effect:
            case LoadRecord():
                return await self._load()
            case VerifyHeld(entry_ids):
                held = await parts.storage.verify_held(
                    ledger_id, entry_ids, self._checked.is_held_intact
                )
                return HeldVerified(held)
            case FetchEntry():
                return await self._fetch(effect)
            case ReadPeerLac(bookie_id):
                return await self._read_lac(bookie_id)
            case StoreEntry(entry_id, stored):
                await self._stores.begin(
                    len(stored), lambda: parts.storage.store_repaired(ledger_id, entry_id, stored)
                )
                return EntryStored(is_stored=True)
            case ClearLedger(epoch, last_add_confirmed):
                code = await parts.storage.clear_ledger(ledger_id, epoch, last_add_confirmed)
                if code is not Code.OK:
                    raise _NotStoredError(f"the end of the limbo was not stored: {code.value}")
                return LedgerCleared()
            case _:
                raise AssertionError(effect)

    @property
    def _checked(self) -> Digests:
        assert self._digests is not None, "the record is loaded first"
        return self._digests

    async def _load(self) -> RecordLoaded:
        await self._stores.finish()
        if self._stores.has_failed:
            raise _NotStoredError("a fetched entry was not stored: the bookie has no room for it")
        try:
            record = await self._load_again_and_again()
        except MetadataFormatError as error:
            self._problem = error.message
            return RecordLoaded(is_read=False)
        if record is not None:
            self._digests = Digests(self._ledger_id, record.value)
        return RecordLoaded(is_read=True, record=record)

    async def _load_again_and_again(self) -> Versioned[LedgerMetadata] | None:
        """Load the record, and retry, so that a short outage of the store does not end a pass."""
        parts, failures = self._parts, 0
        while True:
            try:
                return await parts.records.load(self._ledger_id)
            except MetadataError as error:
                failures += 1
                pause_ms = parts.loads.delay_ms(failures)
                is_final = isinstance(error, MetadataFormatError) or parts.is_stopped
                if is_final or pause_ms is None:
                    raise
                await parts.tasks.sleep(pause_ms)

    async def _fetch(self, effect: FetchEntry) -> EntryFetched:
        parts, bookie_id, entry_id = self._parts, effect.bookie_id, effect.entry_id
        self._begin_entry(entry_id)
        stored = self._ahead.pop(entry_id, None)
        if stored is not None and self._checked.is_intact(entry_id, stored):
            return self._fetched(stored)
        if parts.is_silent(bookie_id):
            return self._not_fetched(bookie_id, entry_id, Code.TIMEOUT)
        stored = await self._read_together(effect) if effect.count > 1 else None
        code = Code.OK
        if stored is None:
            code, stored = await parts.peers.read(bookie_id, self._ledger_id, entry_id)
            parts.note(bookie_id, code)
            await parts.pace.spend(len(stored or b""))
        if stored is None:
            return self._not_fetched(bookie_id, entry_id, code)
        if not self._checked.is_intact(entry_id, stored):
            parts.counters.entries_refused += 1
            return self._not_fetched(bookie_id, entry_id, Code.DIGEST_MISMATCH)
        return self._fetched(stored)

    def _fetched(self, stored: bytes) -> EntryFetched:
        self._entry_problem = None
        self._parts.counters.entries_fetched += 1
        self._parts.counters.bytes_fetched += len(stored)
        return EntryFetched(Code.OK, stored)

    async def _read_together(self, effect: FetchEntry) -> bytes | None:
        """Read an entry and the missing entries after it, and return the entry."""
        peers, first = self._parts.peers, effect.entry_id
        batch = await peers.read_batch(effect.bookie_id, self._ledger_id, first, effect.count)
        await self._parts.pace.spend(sum(map(len, batch)))
        self._ahead = dict(enumerate(batch, first))
        return self._ahead.pop(first, None)

    def _not_fetched(self, bookie_id: str, entry_id: int, code: Code) -> EntryFetched:
        if not code.is_absent:
            problem = f"bookie {bookie_id}, entry {entry_id}: {self._meaning(code)}"
            self._entry_problem = (entry_id, problem)
        return EntryFetched(code)

    def _begin_entry(self, entry_id: int) -> None:
        """Report the problem of the previous entry, unless another bookie returned that entry."""
        if self._entry_problem is not None and self._entry_problem[0] != entry_id:
            self._problem, self._entry_problem = self._entry_problem[1], None

    def _meaning(self, code: Code) -> str:
        if code is Code.DIGEST_MISMATCH and not self._checked.can_be_checked:
            return "the digest cannot be checked, because the metadata has no password"
        return code.value

    async def _read_lac(self, bookie_id: str) -> PeerLacRead:
        parts = self._parts
        if parts.is_silent(bookie_id):
            return PeerLacRead(Code.TIMEOUT, NO_ENTRY)
        code, last_add_confirmed = await parts.peers.read_lac(bookie_id, self._ledger_id)
        parts.note(bookie_id, code)
        return PeerLacRead(code, last_add_confirmed)
