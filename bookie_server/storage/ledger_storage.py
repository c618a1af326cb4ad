"""The storage of one bookie: adds, reads, fences, deletions.

All calls are made on one thread, and each answer is given to a callback. A callback may run before
the call returns. Indexes list only durable entries, so an answer contains only durable entries. If
an answer depends on queued records, it is given after these records are durable (`barrier_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, KeysView

from bookie_server.core.bookie_run import RunJournal
from bookie_server.core.directory_identity import DirectoryIdentity, identity_of
from bookie_server.core.doubt import Doubt
from bookie_server.core.manifest_codec import JOURNALS_MAX
from bookie_server.core.record import JournalRecord, JournalRecordKind
from bookie_server.errors import JournalFailedError, StorageError, journal_failed
from bookie_server.storage.adds import AddPath
from bookie_server.storage.boot import Boot
from bookie_server.storage.compaction.compactor import Compactor
from bookie_server.storage.disk_watch import DiskWatch
from bookie_server.storage.drops import Drops
from bookie_server.storage.fences import Fences
from bookie_server.storage.files.keeper import FileKeeper
from bookie_server.storage.journal import Journal
from bookie_server.storage.lacs import Lacs
from bookie_server.storage.limbo.denials import Denials
from bookie_server.storage.limbo.limbo_count import LimboCount
from bookie_server.storage.limbo.losses import Losses
from bookie_server.storage.limbo.repaired import RepairedLedgers
from bookie_server.storage.modes.ring import JournalPlace
from bookie_server.storage.modes.setup import (
    Mode,
    new_run,
    number_name,
    prepare_mode,
)
from bookie_server.storage.modes.writers import DirectWriter
from bookie_server.storage.reading.answers import ReadAnswers
from bookie_server.storage.reading.reads import Reader
from bookie_server.storage.reading.recent import RecentBodies
from bookie_server.storage.releases import Releases
from bookie_server.storage.scrub.scrubber import Scrubber
from bookie_server.storage.shared import Shared
from bookie_server.storage.wake_ups import call_back
from ledgerlog_spark.model import NO_ENTRY, Code


class LedgerStorage:
    """The ledgers of one directory. Only `open` creates a `LedgerStorage`.

    Attributes such as `add` and `read` are methods of `AddPath`, `ReadAnswers`, `Lacs`, `Drops`,
    `Losses`, `RepairedLedgers` and `Denials`.
    """

    def __init__(self, shared: Shared, boot: Boot) -> None:
        self._shared = shared
        self._health = shared.health
        self._states = shared.states
        self.counters = shared.counters
        self.was_unclean = boot.was_unclean
        self.found_losses = tuple(boot.losses)  # reasons why this start began an epoch of doubt
        self.failure: StorageError | None = None  # the error that ended the storage
        self._has_other_failure = False  # whether a part other than the journal has failed
        # This function is called after `is_writable` or `failure` has changed.
        self.on_state_change: Callable[[], None] = lambda: None
        # This function is called after the level in `disk` has changed.
        self.on_disk_level: Callable[[], None] = lambda: None
        self._keeper = keeper = FileKeeper(shared, boot, self._fail, self._state_changed)
        self.disk = DiskWatch(shared, keeper.handover, self._disk_level_changed, self._fail)
        keeper.on_commit = self.disk.measure_soon
        self._journal = journal = Journal(shared, keeper, self._on_stored, self._on_lost)
        keeper.records_queued = journal.records_queued
        self._journals = boot.journals
        self._mode = Mode(new_run(shared), DirectWriter())
        self._reader = Reader(shared, keeper)
        self._recent = RecentBodies(shared.settings.recent_bytes_max)
        self._denials = denials = Denials(shared)
        self._lacs = Lacs(shared, keeper, journal, denials)
        self._drops = Drops(shared, keeper, journal)
        self.compactor = Compactor(shared, keeper, self._fail)
        keeper.on_short = self.disk.on_full = self.compactor.compact_when_short
        self.scrubber = Scrubber(shared, keeper, self._reader)
        self.take_damaged = self.scrubber.damaged.take
        shared.on_damaged_read = self.scrubber.note_read
        fences = Fences(shared, keeper, journal)
        reads = ReadAnswers(shared, journal, self._reader, fences, denials)
        adds = AddPath(shared, keeper, journal, self._reader, fences, denials)
        self.add, self.add_together = adds.add, adds.add_together
        self.read, self.read_batch = reads.read, reads.read_batch
        self.read_slices, self.read_together = reads.read_slices, reads.read_together
        self.read_lac, self.write_lac = self._lacs.read, self._lacs.write
        self.announce_lac, self.watch_lac = self._lacs.announce, self._lacs.watch
        self.drop, self.droppable = self._drops.drop, self._drops.candidates
        releases = Releases(shared, keeper, journal)
        self.releasable, self.release = releases.candidates, releases.release
        self.hide, self.unhide = releases.hide, releases.unhide
        self.entries_held = reads.entries_held
        self.losses = losses = Losses(shared, keeper)
        self._reader.rebuilds.on_lost_record = losses.lose_record
        self.raise_doubt, self.date_doubt = losses.raise_doubt, losses.date_doubt
        self.end_doubt = losses.end_doubt
        repaired = RepairedLedgers(shared, keeper, journal, self._reader, adds)
        self.verify_held, self.store_repaired = repaired.verify_held, repaired.store_repaired
        self.clear_ledger, self.keep_in_limbo = repaired.clear_ledger, repaired.keep_in_limbo
        self.limbo_ledgers, self.take_asked = repaired.in_limbo, denials.take_asked
        self._limbo_count = count = LimboCount(shared)
        losses.on_change = repaired.on_cleared = count.note

    @classmethod
    async def open(cls, shared: Shared) -> LedgerStorage:
        """Replay the files of the directory, and return its storage.

        When this method returns, the unclean marker is durable.
        """
        await shared.files.lock()
        boot = Boot(shared)
        try:
            await boot.run()
            storage = cls(shared, boot)
            await storage._start()
        except BaseException:
            await boot.journals.unlock()
            await shared.files.close_all()
            await shared.files.unlock()
            raise
        return storage

    async def _start(self) -> None:
        for state in self._states.values():
            state.last_accepted_id = state.last_entry_id
        shared, run = self._shared, self._mode.run
        if run.journal:
            # A MANIFEST lists the journal before its files exist, so that the next start can remove
            # the files if this process is killed.
            shared.journals = (*shared.journals, RunJournal(run.run_id, run.journal))
            shared.journals = shared.journals[-JOURNALS_MAX:]
        before, found = shared.store.current, shared.found
        shared.starts = max(before.starts, found.starts) + 1
        shared.changes = max(before.changes, found.changes) + 1
        # After this commit, the journal files of the last run are not needed.
        shared.run = run.while_synced()
        await self._keeper.commit(None)
        await shared.store.remove_strays()
        await shared.store.mark_unclean()
        await self._journals.remove_files(kept=run.run_id)
        await self._journals.unlock(kept=run.journal)
        await shared.files.forget_number(number_name(shared))
        self._mode = await prepare_mode(
            shared,
            self._keeper,
            self._journals,
            run,
            on_synced=lambda written: self._journal.note_synced(written.sequence, written.ticket),
            on_failed=self._fail,
        )
        if self._mode.ring is not None and run.is_synced:
            # The records of this run are synced in journal files before they are synced in
            # entry-log files. So the MANIFEST must name the run before its first record is written.
            shared.run = run
            await self._keeper.commit(None)
        self._mode.start()
        self._journal.start(self._mode.writer)
        self._shared.tasks.spawn("file maintenance", self._keeper.maintain())
        await self.disk.measure()
        self.disk.start()
        if self._health.doubt.epoch:
            self._limbo_count.note()

    @property
    def directories(self) -> tuple[LedgerStorage, ...]:
        """The storages of all directories of the bookie (see `storage.directories`)."""
        return (self,)

    @property
    def path(self) -> str:
        """The path of the directory."""
        return self._shared.files.path

    @property
    def is_writable(self) -> bool:
        """Whether regular adds are accepted."""
        return self._health.accepts_adds and not self._health.has_failed

    @property
    def has_room(self) -> bool:
        """Whether a recovery add or a fence has room, even if regular adds are refused."""
        return not self._health.has_failed and self._keeper.refuses_control() is None

    def set_read_only(self, *, is_read_only: bool) -> None:
        """Refuse regular adds, or accept them again if there is room for them.

        Adds that were accepted before the call are stored. Recovery adds and fences are not
        refused. The setting is lost when the bookie starts again.
        """
        before, self._health.is_set_read_only = self._health.is_set_read_only, is_read_only
        if before != is_read_only:
            self.on_state_change()

    async def reclaim(self) -> None:
        """Free the finished files without live entries, and forget old tombstones.

        The change is durable on return, unless the storage failed or the disk had no room for the
        MANIFEST.
        """
        forgotten = await self._drops.forget()
        dead = self._keeper.finished.dead(self._health.unknown_files)
        if forgotten or self._drops.leaving_count or dead:
            await self._keeper.commit_soon()
            self._drops.note_commit()

    @property
    def ledgers_count(self) -> int:
        """Number of ledgers in memory, including deleted ledgers that are not yet forgotten."""
        return len(self._states)

    @property
    def ledger_ids(self) -> KeysView[int]:
        """The ids of the ledgers that have a state."""
        return self._states.keys()

    def check_adds_like(self, others: Iterable[LedgerStorage]) -> None:
        """From now on, check the first add of an unknown ledger if one of `others` would check it.

        The other directory may have lost the fence of the ledger, or may have forgotten the ledger.
        """
        health = self._health
        for other in others:
            theirs = other._health  # noqa: SLF001 - of this class
            health.check_epoch = max(health.check_epoch, min(theirs.check_epoch, 1))
            health.highest_dropped_ledger_id = max(
                health.highest_dropped_ledger_id, theirs.highest_dropped_ledger_id
            )

    @property
    def files_count(self) -> int:
        """Number of entry-log files that may hold entries."""
        return len(self._keeper.opened) + len(self._keeper.finished)

    @property
    def doubt(self) -> Doubt:
        """The doubt of the directory in the durable MANIFEST."""
        return self.losses.durable

    def is_known(self, ledger_id: int) -> bool:
        """Return whether the ledger has a state."""
        return ledger_id in self._states

    def is_home(self, ledger_id: int) -> bool:
        """Return whether the ledger has a state in memory or in the MANIFEST on the device."""
        return ledger_id in self._states or self._drops.is_leaving(ledger_id)

    def last_accepted_id(self, ledger_id: int) -> int:
        """Return the largest entry id that the bookie has accepted; NO_ENTRY if there is none."""
        state = self._states.get(ledger_id)
        return NO_ENTRY if state is None else state.last_accepted_id

    @property
    def ledgers_in_limbo(self) -> int:
        """Number of ledgers with a state that were in limbo when they were last counted."""
        return self._limbo_count.count

    @property
    def journal_mark(self) -> JournalPlace | None:
        """The place in the journal files before which all records are in synced entry-log files.

        In write modes without journal files, it is None.
        """
        return None if self._mode.ring is None else self._mode.ring.mark

    @property
    def identity(self) -> DirectoryIdentity:
        """The identity and the counters of the directory in the durable MANIFEST."""
        return identity_of(self._shared.store.current)

    @property
    def records_stored(self) -> int:
        """Number of records that this process has stored."""
        return self.counters.journal_records

    async def count_change(self) -> None:
        """Increase the directory's counter of changes, so that earlier copies of it count as older.

        The new counter is in `identity` on return, unless the storage failed or the disk had no
        room for the MANIFEST. In the latter case, the next MANIFEST has the new counter.
        """
        if self._shared.changes == self._shared.store.current.changes:
            self._shared.changes += 1
        await self._keeper.commit_soon()

    def is_fenced(self, ledger_id: int) -> bool:
        """Return whether regular adds of the ledger are refused."""
        state = self._states.get(ledger_id)
        return state is not None and state.is_fenced

    async def close(self) -> None:
        """Stop cleanly: answer accepted requests, then finish and sync all files.

        If the storage has failed, write nothing: the next start replays the files. But if only the
        journal has failed, sync the entry-log files, so that the next start does not need the
        journal.
        """
        if self._health.is_closing:
            return
        self._health.is_closing = True
        try:
            await self._journal.close()
            await self.scrubber.stop()
            await self.compactor.stop()
            await self._mode.stop()
            await self._keeper.stop()
            await self.disk.close()
            if self.failure is None:
                await self._keeper.finish_all()
                await self._end_run(keep_open=False)
                await self._shared.store.unmark_unclean()
            elif isinstance(self.failure, JournalFailedError) and not self._has_other_failure:
                await self._retire_journal(self.failure)
        except StorageError as error:
            self._fail(error)
        finally:
            await self._journals.unlock()
            await self._shared.files.close_all()
            await self._shared.files.unlock()

    async def _retire_journal(self, failure: JournalFailedError) -> None:
        """Sync the entry-log files, and commit a MANIFEST that does not need the journal.

        A record is acknowledged after its write to an entry-log file, so these files have all
        acknowledged records. If a group could not be copied to the journal, the group is in no
        entry-log file, and the outcome of its requests stays unknown.
        """
        for file in self._keeper.opened:
            await file.handle.datasync()
        await self._end_run(keep_open=True)
        self.failure = journal_failed(
            failure.fields["path"],
            failure.fields["journal"],
            failure.fields["reason"],
            is_needed=False,
        )

    async def _end_run(self, *, keep_open: bool) -> None:
        """Commit a MANIFEST without the run, whose records are all in synced entry-log files."""
        self._shared.run = None
        self._shared.changes += 1
        await self._keeper.commit(None, keep_open=keep_open)
        await self._journals.remove_files(kept="")
        await self._shared.files.forget_number(number_name(self._shared))

    # Methods by which the journal reports stored or lost records.

    def _on_stored(self, group: list[JournalRecord], is_synced: bool) -> None:
        """Index the entries of a group, and answer its requests.

        If the group is not synced, only its regular adds are answered now. A recovery add is synced
        before its answer in every write mode, because after the answer, the metadata may name this
        bookie for the entry, even if the bookie then loses the entry.
        """
        counters, states, index = self.counters, self._states, self._keeper.active.index
        for record in group:
            if record.kind is JournalRecordKind.RUN:
                index.insert(record)
                state = states[record.ledger_id]
                ids = record.entry_ids
                state.last_entry_id = max(state.last_entry_id, ids[-1])
                counters.adds += 1
                counters.entries += len(ids)
                counters.add_bytes += record.body_size
                self._health.in_flight_bytes -= record.body_size
                self._recent.keep(record)
                if record.last_add_confirmed > state.last_add_confirmed:
                    before, state.last_add_confirmed = state.lac, record.last_add_confirmed
                    states.changed.add(record.ledger_id)
                    self._lacs.changed(state, before)
            elif record.kind is JournalRecordKind.TOMBSTONE:
                self._drops.on_durable(record)
        for record in group:
            is_regular = record.kind is JournalRecordKind.RUN and not record.is_recovery
            if is_synced or is_regular:
                self._answer(record, Code.OK)
            elif record.on_done is not None:
                on_done, record.on_done = record.on_done, None
                self._journal.when_durable(record.ticket, on_done)

    def _answer(self, record: JournalRecord, code: Code) -> None:
        on_done, record.on_done = record.on_done, None
        if on_done is not None:
            call_back(self._shared.tasks, on_done, code)

    def _on_lost(self, error: StorageError, records: list[JournalRecord]) -> None:
        self._fail(error)
        for record in records:
            if record.kind is JournalRecordKind.RUN:
                self._health.in_flight_bytes -= record.body_size
            self._answer(record, Code.IO_ERROR)

    def _state_changed(self) -> None:
        self.on_state_change()

    def _disk_level_changed(self) -> None:
        self.on_disk_level()
        self.on_state_change()

    def _fail(self, error: StorageError) -> None:
        unfinished = {file.entry.slot for file in self._keeper.opened}
        self._mode.note_loss(error, unfinished)
        self._has_other_failure |= not isinstance(error, JournalFailedError)
        if self.failure is not None:
            return
        self.failure = error
        self._health.has_failed = True
        self._journal.fail(error)
        self._keeper.fail()
        self._mode.fail(error)
        self.on_state_change()
