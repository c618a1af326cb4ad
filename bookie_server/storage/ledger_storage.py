"""The storage of one bookie: adds, reads, fences, and what survives of them.

Everything is submitted on one thread and answered by callbacks; a callback may come before the call
returns. Add, fence and recovery read are answered when the `Durability` object says so; what is not
durable is not in any index, so no other answer can show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bookie_server.core.durability import Durability
from bookie_server.core.ledger_gate import absent, may_say_absent
from bookie_server.core.record import JournalRecord, RecordKind
from bookie_server.core.requests import (
    AddRequest,
    BatchReadRequest,
    OnAdd,
    OnLac,
    OnRead,
    OnReadBatch,
    ReadRequest,
)
from bookie_server.core.settings import StorageSettings
from bookie_server.errors import StorageError
from bookie_server.ports import Clock, FileSystem, MetadataCheck, Tasks
from bookie_server.storage.adds import AddPath
from bookie_server.storage.boot import Boot
from bookie_server.storage.counters import StorageCounters
from bookie_server.storage.drops import Drops
from bookie_server.storage.files.held import HeldFiles
from bookie_server.storage.files.index_rebuilds import IndexRebuilds
from bookie_server.storage.files.keeper import FileKeeper
from bookie_server.storage.files.manifest import ManifestStore
from bookie_server.storage.files.pool import FilePool
from bookie_server.storage.files.slots import Slots
from bookie_server.storage.journal import Journal
from bookie_server.storage.lac_watches import LacWatches, OnLacChange
from bookie_server.storage.reading.answers import ReadAnswers
from bookie_server.storage.reading.reads import Reader
from bookie_server.storage.reading.recent_bodies import RecentBodies
from bookie_server.storage.spans import RANGES_MAX, Spans
from bookie_server.storage.wake_ups import report
from ledgerlog_spark.model import NO_ENTRY, Code


class LedgerStorage:
    """Ledgers on one directory. Made by `open` only.

    Attributes:
        failure: The write or sync error that ended it; None while it works.
        was_unclean: Whether the bookie before this one ended without a clean stop.
        on_state_change: Called when `is_writable` or `failure` changed.
        counters: For metrics.
    """

    def __init__(self, *, files: FilePool, tasks: Tasks, boot: Boot, store: ManifestStore) -> None:
        self._files = files
        self._tasks = tasks
        self._store = store
        self.was_unclean = boot.was_unclean
        self._health = boot.health
        self._states = boot.states
        self._settings = boot.settings
        self._durability = Durability()
        self._recent = RecentBodies(boot.settings.recent_bytes_max)
        self._watches = LacWatches(tasks)
        self._is_closed = False
        self.failure: StorageError | None = None
        self.on_state_change: Callable[[], None] = lambda: None

    @classmethod
    async def open(
        cls,
        *,
        files: FileSystem,
        clock: Clock,
        tasks: Tasks,
        settings: StorageSettings,
        metadata: MetadataCheck,
    ) -> LedgerStorage:
        """Replay the directory and serve it; on return the unclean marker is durable.

        Raises:
            StartupError: The directory cannot be used: locked, damaged, of another version.
            StorageError: The device failed, or has no room for a file.
        """
        await files.lock()
        pool = FilePool(files, tasks, settings.open_files_max)
        try:
            store = ManifestStore(
                pool, settings.state_deltas_bytes_min, give_way=lambda: tasks.sleep(0)
            )
            slots = Slots(
                pool,
                file_size_bytes=settings.file_size_bytes,
                free_bytes_min=settings.free_bytes_min,
            )
            boot = Boot(pool, store, slots, settings)
            await boot.run()
            storage = cls(files=pool, tasks=tasks, boot=boot, store=store)
            await storage._start(boot, slots, metadata, clock)
        except BaseException:
            await pool.close_all()
            await files.unlock()
            raise
        return storage

    async def _start(self, boot: Boot, slots: Slots, metadata: MetadataCheck, clock: Clock) -> None:
        for state in self._states.values():
            state.last_accepted_id = state.last_entry_id
        self._make_journal(boot, slots, clock)
        self._make_paths(metadata, clock)
        await self._keeper.commit(None)
        await self._store.remove_strays()
        await self._store.mark_unclean()
        self._journal.start()
        self._tasks.spawn("file maintenance", self._keeper.maintain())

    def _make_journal(self, boot: Boot, slots: Slots, clock: Clock) -> None:
        """The journal, the files that it writes, and what both count.

        Of the boot only counters stay: its files are freed as the keeper replaces them.
        """
        tasks, settings = self._tasks, self._settings
        assert boot.active is not None
        self._keeper = FileKeeper(
            store=self._store,
            slots=slots,
            tasks=tasks,
            settings=settings,
            health=self._health,
            states=self._states,
            active=boot.active,
            spare=boot.spare,
            finished=HeldFiles(boot.finished, self._tombstone_of),
            missing=boot.missing,
            freed=boot.freed,
        )
        self._journal = Journal(
            files=self._keeper,
            tasks=tasks,
            clock=clock,
            settings=settings,
            next_sequence=boot.next_sequence,
            on_durable=self._on_durable,
            on_failed=self._on_lost,
        )
        self._keeper.journal = self._journal
        self._keeper.on_failed = self._fail
        self._keeper.on_state_change = self._tell_state
        self.counters = StorageCounters(
            boot.counters, self._journal.counters, self._keeper.counters
        )

    def _make_paths(self, metadata: MetadataCheck, clock: Clock) -> None:
        """The ways of adds, reads and drops between their callers and the journal."""
        tasks, settings = self._tasks, self._settings
        rebuilds = IndexRebuilds(
            keeper=self._keeper, tasks=tasks, health=self._health, counters=self.counters
        )
        self._reader = Reader(self._keeper, tasks, self._tombstone_of, rebuilds.on_damage)
        self._adds = AddPath(
            journal=self._journal,
            keeper=self._keeper,
            reader=self._reader,
            tasks=tasks,
            settings=settings,
            health=self._health,
            states=self._states,
            metadata=metadata,
            counters=self.counters,
        )
        self._reads = ReadAnswers(
            journal=self._journal,
            keeper=self._keeper,
            adds=self._adds,
            reader=self._reader,
            health=self._health,
            states=self._states,
            durability=self._durability,
            counters=self.counters,
        )
        self._drops = Drops(
            journal=self._journal,
            keeper=self._keeper,
            adds=self._adds,
            tasks=tasks,
            clock=clock,
            settings=settings,
            health=self._health,
            states=self._states,
            counters=self.counters,
        )

    @property
    def is_writable(self) -> bool:
        """Whether regular adds are taken."""
        return self._health.is_writable and not self._health.has_failed

    @property
    def in_flight_bytes(self) -> int:
        """Adds accepted and not yet answered."""
        return self._adds.in_flight_bytes

    def add(self, request: AddRequest, on_done: OnAdd) -> None:
        """Store a run, all or nothing.

        Args:
            request: Its buffers must not change until the answer.
            on_done: OK once the run is durable, or a repeated run's stored copy is; FENCED,
                UNAUTHORIZED, READ_ONLY, BUSY and BAD_REQUEST changed nothing; IO_ERROR is unknown.
        """
        self._adds.add(request, on_done)

    def read(self, request: ReadRequest, on_done: OnRead) -> None:
        """Read one stored entry, after fencing its ledger when the request says so."""
        self._reads.read(request, on_done)

    def read_batch(self, request: BatchReadRequest, on_done: OnReadBatch) -> None:
        """Read consecutive entries as far as they are held and fit.

        An answer shorter than asked for says nothing about the entry after it.
        """
        self._reads.read_batch(request, on_done)

    def read_lac(self, ledger_id: int, on_done: OnLac) -> None:
        """The largest last add confirmed ever seen, whichever way it came; -1 before any.

        IO_ERROR when an entry that may have carried a larger one is damaged.
        """
        state = self._states.get(ledger_id)
        if state is None or not may_say_absent(state, self._health):
            on_done(absent(state, self._health), NO_ENTRY)
        elif not state.is_lac_known:
            on_done(Code.IO_ERROR, NO_ENTRY)
        else:
            on_done(Code.OK, state.lac)

    def write_lac(self, ledger_id: int, lac: int, master_key: bytes, on_done: OnAdd) -> None:
        """Store an explicit LAC; durable when answered. A smaller one changes nothing."""
        self._adds.write_lac(ledger_id, lac, master_key, on_done, self._watches.tell)

    def tell_lac(self, ledger_id: int, lac: int, master_key: bytes) -> None:
        """Tell watches of a LAC that the writer had confirmed; a restart forgets it."""
        self._adds.tell_lac(ledger_id, lac, master_key, self._watches.tell)

    def watch_lac(self, ledger_id: int, on_change: OnLacChange) -> Callable[[], None]:
        """Call `on_change` with the LAC whenever it grows; returns what ends that."""
        return self._watches.watch(ledger_id, on_change)

    async def entries_held(self, ledger_id: int, count_max: int = RANGES_MAX) -> Spans:
        """First and last ids (inclusive) of the stretches of entries held, in rising order.

        Raises:
            TooManyRangesError: There are more than `count_max` of them.
            StorageError: That cannot be told: in limbo, damaged, failed.
        """
        state = self._states.get(ledger_id)
        if not may_say_absent(state, self._health):
            raise StorageError(
                f"the entries of ledger {ledger_id} on this bookie are unknown: a file is damaged "
                "or failed; read from another replica",
                path=".",
            )
        return await self._reader.held(ledger_id, count_max)

    def drop(self, ledger_id: int, on_done: OnAdd) -> None:
        """Let go of everything of a ledger that was accepted before; it stays fenced.

        Its bytes go with their files, see `reclaim`.

        Args:
            ledger_id: Deleted from the metadata; nothing here checks that.
            on_done: OK once that is durable; NO_LEDGER and READ_ONLY changed nothing; IO_ERROR is
                unknown.
        """
        self._drops.drop(ledger_id, on_done)

    async def droppable(self) -> Sequence[int]:
        """Ids of the ledgers that a drop would change something of, in rising order.

        Of all that were known when it was called; looked at in slices.
        """
        return await self._drops.candidates()

    async def reclaim(self) -> None:
        """Free the finished files in which nothing is live, and forget old tombstones.

        Durable on return, unless the storage failed or the disk has no room for a MANIFEST.
        """
        forgotten = await self._drops.forget()
        if forgotten or self._keeper.finished.dead(self._health.files_in_doubt):
            await self._keeper.commit_soon()

    def ledgers(self) -> Iterator[int]:
        """Ids of all ledgers that anything is known of, in rising order."""
        return iter(sorted(self._states))

    @property
    def ledgers_count(self) -> int:
        """How many ledgers are kept in memory; deleted ones count until they are forgotten."""
        return len(self._states)

    def is_fenced(self, ledger_id: int) -> bool:
        """Whether regular adds of the ledger are refused."""
        state = self._states.get(ledger_id)
        return state is not None and state.is_fenced

    async def close(self) -> None:
        """Stop cleanly: everything accepted is answered, everything is finished and synced.

        After a failure nothing more is written; the next start replays.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._adds.refuse_all()
        await self._journal.close()
        await self._keeper.stop()
        try:
            if self.failure is None:
                await self._keeper.finish_all()
                await self._keeper.commit(None, keep_open=False)
                await self._store.unmark_unclean()
        except StorageError as error:
            self._fail(error)
        finally:
            await self._files.close_all()
            await self._files.unlock()

    # What the journal reports.

    def _on_durable(self, group: list[JournalRecord]) -> None:
        counters, states, index = self.counters, self._states, self._keeper.active.index
        for record in group:
            if record.kind is RecordKind.RUN:
                index.insert(record)
                state = states[record.ledger_id]
                ids = record.entry_ids
                state.last_entry_id = max(state.last_entry_id, ids[-1])
                counters.adds += 1
                counters.entries += len(ids)
                counters.add_bytes += record.body_size
                self._adds.in_flight_bytes -= record.body_size
                self._recent.keep(record)
                if record.last_add_confirmed > state.last_add_confirmed:
                    before, state.last_add_confirmed = state.lac, record.last_add_confirmed
                    states.changed.add(record.ledger_id)
                    self._watches.tell(state, before)
            elif record.kind is RecordKind.TOMBSTONE:
                self._drops.on_durable(record)
        for record in group:
            on_done, record.on_done = record.on_done, None
            if on_done is not None:
                try:
                    on_done(Code.OK)
                except Exception as error:  # noqa: BLE001 - whatever it is, others are answered
                    report(self._tasks, error)

    def _on_lost(self, error: StorageError, records: list[JournalRecord]) -> None:
        self._fail(error)
        for record in records:
            if record.kind is RecordKind.RUN:
                self._adds.in_flight_bytes -= record.body_size
            if record.on_done is not None:
                on_done, record.on_done = record.on_done, None
                try:
                    on_done(Code.IO_ERROR)
                except Exception as failed:  # noqa: BLE001 - whatever it is, others are answered
                    report(self._tasks, failed)

    def _tell_state(self) -> None:
        self.on_state_change()

    def _fail(self, error: StorageError) -> None:
        if self.failure is not None:
            return
        self.failure = error
        self._health.has_failed = True
        self._journal.fail(error)
        self._keeper.fail()
        self.on_state_change()

    def _tombstone_of(self, ledger_id: int) -> int:
        state = self._states.get(ledger_id)
        return 0 if state is None else state.tombstone
