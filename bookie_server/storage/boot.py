"""Reads and repairs the files of a directory when the bookie starts.

If records of a replayed file are proved to be synced, they stay in place, and the boot writes the
index of the file after them. The file is then finished. Other valid records are copied to a new
file and synced, because they may be only in the page cache. First, the boot commits a MANIFEST that
marks the files with lost records, so a second crash cannot hide the loss. Then it syncs the copies
and finishes the replayed files. At the end, one MANIFEST commits everything.

If records of unknown ledgers may be lost, the boot begins a new epoch of doubt for the directory
(ADR 39). The first MANIFEST of the boot has this epoch, so a crash of the boot does not hide the
loss.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from bookie_server.core.index_format import LedgerTotal
from bookie_server.core.manifest_codec import FileEntry, FileState
from bookie_server.core.record import JournalRecord, JournalRecordKind
from bookie_server.core.record_codec import aligned
from bookie_server.core.replay_decision import largest_sequence, synced_upto
from bookie_server.errors import CorruptRecordError, DiskFullError
from bookie_server.ports import Buffer, File
from bookie_server.storage.files.active_index import ActiveIndex
from bookie_server.storage.files.entry_log_file import (
    FinishedFile,
    OpenFile,
    all_pieces,
    read_body,
    read_index_head,
)
from bookie_server.storage.files.index_rebuilds import rebuild_index
from bookie_server.storage.files.manifest import UNCLEAN_NAME
from bookie_server.storage.files.room import bytes_at_most
from bookie_server.storage.files.slots import Slots, is_intact
from bookie_server.storage.journal import append_encoded, append_end_mark
from bookie_server.storage.modes.setup import (
    Journals,
    journals_of,
    require_journals,
    require_own_directory,
    take_over,
)
from bookie_server.storage.open_files import Replayed, apply, judge_all, scan_open_files
from bookie_server.storage.reading.readings import finish
from bookie_server.storage.shared import Shared
from bookie_server.storage.slices import run_in_slices


@dataclass(slots=True)
class Boot:
    """Boots a directory once. After the boot, the fields are the initial state of the storage."""

    shared: Shared
    slots: Slots = field(init=False)
    finished: list[FinishedFile] = field(default_factory=list)
    # Files that do not exist, although the MANIFEST lists them. They stay listed and in doubt,
    # because any entry may have been in them.
    missing: list[FileEntry] = field(default_factory=list)
    freed: list[str] = field(default_factory=list)  # slots of replayed files without data
    was_unclean: bool = False  # whether the last process did not stop cleanly
    active: OpenFile | None = None
    spare: OpenFile | None = None
    journals: Journals = field(init=False)
    proved_upto: int = 0  # sequence up to which the last run may have acknowledged records
    losses: list[str] = field(default_factory=list)  # reasons why records may be lost

    def __post_init__(self) -> None:
        self.journals = Journals(self.shared)
        self.slots = Slots(self.shared.files, self.shared.settings)

    async def run(self) -> None:
        """Prepare the directory for requests, except for the final commit.

        The caller then commits `active` and `spare`, and marks the directory unclean.
        """
        # If the last process was killed, the last rename of its MANIFEST may not be durable.
        await self.shared.files.sync_directory()
        names = await self.shared.files.names()
        self.was_unclean = UNCLEAN_NAME in names
        self.shared.states.update(await self.shared.store.load(names))
        manifest = self.shared.store.current
        self.shared.journals = journals_of(manifest, is_moved=self.shared.is_moved)
        self.shared.health.check_epoch = manifest.check_epoch
        self.shared.health.doubt = manifest.doubt
        if self.shared.found.loss:
            self.losses.append(self.shared.found.loss)
        self.shared.health.highest_dropped_ledger_id = manifest.highest_dropped_ledger_id
        # If one of these functions refuses the start, nothing has been changed yet.
        require_own_directory(self.shared)
        await require_journals(self.shared, self.journals)
        taken = await take_over(self.shared, self.journals)
        self.proved_upto = taken.proved_upto
        if taken.loss:
            self.losses.append(taken.loss)
        await self.shared.store.remove_strays()
        for entry in manifest.files:
            if entry.state is FileState.FINISHED:
                await self._open_finished(entry, is_missing=entry.slot not in names)
        replayed = await self._scan_open()
        synced = await self._judge(replayed)
        for file in replayed:
            self._apply(file)
        await self._prepare_active(replayed)
        await self._rewrite(replayed, synced)
        for file in replayed:
            await self._finish(file, synced)
        self.finished.sort(key=lambda file: file.entry.file_id)
        losses = len(self.losses)
        await self._find_last_entries()
        if len(self.losses) > losses:
            await self._commit_losses(())
        await self._prepare_spare()

    async def _open_finished(self, entry: FileEntry, *, is_missing: bool) -> None:
        if is_missing:
            self.shared.counters.boot_damaged_records += 1
            self.missing.append(self._lost(entry, "is missing"))
            return
        handle = self.shared.files.at(entry.slot)
        file = FinishedFile(entry, handle, entry.identity)
        await self._check_header(handle, entry)
        if entry.has_damage:
            file.entry = self._lost(entry, "has lost records")
        try:
            await finish(read_index_head(file))
            if await handle.size() > file.end:
                await handle.truncate(file.end)
        except CorruptRecordError:
            await self._rebuild(file)
        self.finished.append(file)

    async def _rebuild(self, file: FinishedFile) -> None:
        if not await rebuild_index(file, self.shared):
            file.entry = self._lost(file.entry, "has lost records")

    def _lost(self, entry: FileEntry, how: str) -> FileEntry:
        """Mark a file that lost records of unknown ledgers, and return its entry for the MANIFEST.

        If a MANIFEST with an epoch of doubt already marks the file, this epoch covers the loss. A
        MANIFEST of an older release may mark files, but has no epoch.
        """
        self.shared.health.damaged_files.add(entry.file_id)
        if not entry.has_damage or not self.shared.store.current.doubt.epoch:
            self.losses.append(f"{entry.slot} {how}")
        return replace(entry, has_damage=True)

    async def _check_header(self, handle: File, entry: FileEntry) -> None:
        """Count a damaged header. The boot reads the file's identity from the MANIFEST instead."""
        if not await is_intact(handle, entry):
            self.shared.counters.boot_damaged_headers += 1

    def _is_live(self, record: JournalRecord) -> bool:
        """Return whether a record is a run that no tombstone deletes.

        All tombstones must be applied before this call.
        """
        state = self.shared.state_of(record.ledger_id)
        return record.kind is JournalRecordKind.RUN and record.origin_sequence > state.tombstone

    async def _find_last_entries(self) -> None:
        for file in self.finished:
            try:
                await self._look_for_last_entries(file)
            except CorruptRecordError:
                # Until now, only the head of this index was read, which is intact. So this rebuild
                # may be the first step that finds lost records.
                await self._rebuild(file)
                await self._look_for_last_entries(file)
        assert self.active is not None
        self._take_last_entries(self.active.index.totals())

    async def _look_for_last_entries(self, file: FinishedFile) -> None:
        for total in file.totals():
            state, last = self.shared.state_of(total.ledger_id), total.last_entry_id
            if total.origin_newest <= state.tombstone:
                continue
            if state.tombstone and last > state.last_entry_id:
                pieces = await finish(all_pieces(file, total.ledger_id))
                last = max(piece.last for piece in pieces if piece.origin > state.tombstone)
            state.last_entry_id = max(state.last_entry_id, last)

    def _take_last_entries(self, totals: Iterable[LedgerTotal]) -> None:
        for total in totals:
            state = self.shared.state_of(total.ledger_id)
            state.last_entry_id = max(state.last_entry_id, total.last_entry_id)

    async def _scan_open(self) -> list[Replayed]:
        replayed = await scan_open_files(self.shared.files, self.shared.store.current)
        for file in replayed:
            if file.handle is not None:
                await self._check_header(file.handle, file.entry)
        return replayed

    async def _judge(self, replayed: list[Replayed]) -> int:
        """Decide what happens to the records of all files.

        If files have lost records, the marks of these files are committed immediately. Return the
        largest sequence that is proved to be synced.
        """
        scans = [file.scan for file in replayed]
        manifest = self.shared.store.current
        synced = synced_upto(scans, max(manifest.durable_upto, self.proved_upto))
        finished = [e.last_sequence for e in manifest.files if e.state is FileState.FINISHED]
        # After a power loss, a tombstone in the MANIFEST may have a larger sequence than all
        # records that are left. A new record with a smaller sequence would count as deleted.
        tombstones = (state.tombstone for state in self.shared.states.values())
        seen = max([synced, manifest.durable_upto, *finished, *tombstones])
        self.shared.sequences.next_sequence = largest_sequence(scans, seen) + 1
        judge_all(replayed, synced, manifest, self.shared.states)
        lost = [file for file in replayed if file.verdict.has_damage]
        torn = [file for file in replayed if file.verdict.was_cut]
        self.shared.counters.boot_torn_tails += len(torn)
        self.shared.counters.boot_damaged_records += len(lost)
        for file in lost:
            file.entry = self._lost(file.entry, "has lost records")
        self.missing += [file.entry for file in lost if file.handle is None]
        run = manifest.run
        if run is not None and not run.is_synced and any(f.verdict.unreadable for f in replayed):
            self.losses.append("not all records of the last run can be read")
        if self.losses or torn:
            await self._commit_losses([file.entry for file in lost])
        return synced

    async def _commit_losses(self, entries: Iterable[FileEntry]) -> None:
        """Commit the possible losses, before the boot changes the files that show the losses."""
        health, manifest = self.shared.health, self.shared.store.current
        health.check_epoch += 1
        if self.losses:
            health.doubt = health.doubt.raised(self.shared.found.doubt_epoch)
        for entry in (*entries, *self.missing, *(file.entry for file in self.finished)):
            if entry.has_damage:
                manifest = manifest.with_file(entry)
        manifest = replace(manifest, check_epoch=health.check_epoch, doubt=health.doubt)
        await self.shared.store.commit(lambda: manifest, self.shared.states)

    def _apply(self, file: Replayed) -> None:
        verdict = file.verdict
        self.shared.counters.boot_replayed_records += len(verdict.kept) + len(verdict.rewritten)
        self.shared.counters.boot_damaged_records += len(verdict.unreadable)
        for record in (*verdict.kept, *verdict.unreadable, *verdict.rewritten):
            apply(record, self.shared.state_of(record.ledger_id))
            self.shared.states.changed.add(record.ledger_id)
        for record in verdict.unreadable:
            if record.kind is JournalRecordKind.RUN:
                # The LAC in the damaged entries is unknown, but smaller than the last entry id.
                state = self.shared.state_of(record.ledger_id)
                state.lac_bound = max(state.lac_bound, record.entry_ids[-1] - 1)

    async def _prepare_active(self, replayed: list[Replayed]) -> None:
        try:
            self.active = await self._prepare()
        except DiskFullError:
            # If the journal never used the last file, the space of that file can be used.
            if not replayed or not _was_never_reached(replayed[-1]):
                await self._prepare_small(replayed)
                return
            gone = replayed.pop()
            assert gone.handle is not None
            await gone.handle.close()
            manifest = self.shared.store.current
            manifest = replace(
                manifest,
                files=tuple(e for e in manifest.files if e.file_id != gone.entry.file_id),
                free_slots=(gone.entry.slot, *manifest.free_slots),
            )
            await self.shared.store.commit(lambda: manifest, self.shared.states)
            self.active = await self._prepare(may_take_all=True)

    async def _prepare_small(self, replayed: list[Replayed]) -> None:
        """Prepare a small active file, with room for the records that are copied to it."""
        needed_bytes = sum(bytes_at_most(file.verdict.rewritten) for file in replayed)
        try:
            self.active = await self._prepare(is_last_resort=True, needed_bytes=needed_bytes)
        except DiskFullError:
            # If there is no room for these records, the bookie starts, but accepts neither fences
            # nor deletions.
            self.active = await self._prepare(is_last_resort=True)

    async def _prepare(
        self, *, is_last_resort: bool = False, needed_bytes: int = 0, may_take_all: bool = False
    ) -> OpenFile:
        manifest = self.shared.store.current
        file_id = max([manifest.next_file_id, *(e.file_id + 1 for e in manifest.files)])
        free = list(manifest.free_slots)
        if self.active is not None:
            file_id = self.active.entry.file_id + 1
            free = [slot for slot in free if slot != self.active.entry.slot]
        return await self.slots.prepare(
            file_id,
            free[0] if free else None,
            others=free[1:],
            is_last_resort=is_last_resort,
            needed_bytes=needed_bytes,
            may_take_all=may_take_all,
        )

    async def _prepare_spare(self) -> None:
        try:
            self.spare = await self._prepare()
        except DiskFullError:
            self.shared.health.is_writable = False

    async def _rewrite(self, replayed: list[Replayed], synced: int) -> None:
        """Copy the records that are not proved to be synced. The copies are durable on return."""
        active = self.active
        assert active is not None
        active.first_sequence = self.shared.sequences.next_sequence
        buffers: list[Buffer] = []
        start = active.end
        for file in replayed:
            for record in file.verdict.rewritten:
                assert file.handle is not None
                if record.kind is JournalRecordKind.RUN and not self._is_live(record):
                    continue
                if record.body_size:
                    record.body = await finish(read_body(file.handle, record, 0, record.body_size))
                record.identity, record.offset = active.identity, active.end
                record.sequence, record.durable_upto = self.shared.sequences.next_sequence, synced
                self.shared.sequences.next_sequence += 1
                active.end += append_encoded(record, buffers)
                record.body = None
                if record.kind is JournalRecordKind.RUN:
                    active.index.insert(record)
                self.shared.counters.boot_rewritten_records += 1
                if active.end - start >= self.shared.settings.group_bytes:
                    await active.handle.write_synced(start, buffers)
                    buffers, start = [], active.end
        if buffers:
            append_end_mark(active, buffers)
            await active.handle.write_synced(start, buffers)

    async def _finish(self, file: Replayed, synced: int) -> None:
        """Write the index of a replayed file after its valid data.

        If the file has no live entries and no damage, list its slot as freed instead.
        """
        verdict, handle = file.verdict, file.handle
        if handle is None:
            return
        runs = [r for r in (*verdict.kept, *verdict.unreadable) if r.kind is JournalRecordKind.RUN]
        live = [record for record in runs if self._is_live(record)]
        if not live and not verdict.has_damage:
            # Only control records are left, and the ledger-state file has their contents.
            await handle.close()
            self.freed.append(file.entry.slot)
            return
        index = ActiveIndex()
        for record in live:
            index.insert(record)
        for ledger_id in {r.ledger_id for r in runs} - {r.ledger_id for r in live}:
            index.name_only(ledger_id)
        identity = file.entry.identity
        encoding = index.encoding(identity)
        body, live_bytes = await run_in_slices(encoding, self.shared.give_way)
        record = JournalRecord(JournalRecordKind.FINISH, body=body)
        record.identity, record.offset = identity, aligned(verdict.write_from)
        record.sequence = record.origin_sequence = verdict.next_sequence
        record.durable_upto = synced
        buffers: list[Buffer] = []
        append_encoded(record, buffers)
        await handle.write_synced(record.offset, buffers)
        entry = replace(
            file.entry,
            state=FileState.FINISHED,
            first_sequence=file.scan.records[0].sequence if file.scan.records else 0,
            last_sequence=verdict.last_sequence,
            data_end=verdict.data_end,
            finish_offset=record.offset,
            live_bytes=live_bytes,
        )
        done = FinishedFile(entry, handle, identity)
        await finish(read_index_head(done))
        handle.may_close()
        self.finished.append(done)


def _was_never_reached(file: Replayed) -> bool:
    """Return whether no record was found in a file, and the file cannot have lost a record."""
    verdict = file.verdict
    is_doubtful = verdict.has_damage or verdict.was_cut or verdict.unreadable
    return file.handle is not None and not file.scan.records and not is_doubtful
