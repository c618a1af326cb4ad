"""Mistakes in the start of a bookie, in its journal and write modes, and in its end."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

STORAGE = "bookie_server/storage"
MODES = f"{STORAGE}/modes"

_BOOT = [
    Mutation(
        "boot_cut_file_keeps_its_space",
        f"{STORAGE}/boot.py",
        "            if await handle.size() > file.end:\n"
        "                await handle.truncate(file.end)\n",
        "",
        "a crash before the cut of a finished file costs the rest of its space",
    ),
    Mutation(
        "boot_loss_is_not_committed_at_once",
        f"{STORAGE}/boot.py",
        "        manifest = replace(manifest, check_epoch=health.check_epoch, doubt=health.doubt)\n"
        "        await self.shared.store.commit(lambda: manifest, self.shared.states)\n",
        "        manifest = replace(manifest, doubt=health.doubt)\n",
        "a second crash during the start hides a loss",
    ),
    Mutation(
        "boot_replayed_states_are_not_noted",
        f"{STORAGE}/boot.py",
        "            apply(record, self.shared.state_of(record.ledger_id))\n"
        "            self.shared.states.changed.add(record.ledger_id)\n",
        "            apply(record, self.shared.state_of(record.ledger_id))\n",
        "a fence is lost with the file that had its record",
        equivalent="the first commit after a start writes the states of all ledgers",
    ),
    Mutation(
        "boot_copies_vouch_for_themselves",
        f"{STORAGE}/boot.py",
        "record.sequence, record.durable_upto = self.shared.sequences.next_sequence, synced\n",
        "record.sequence = record.durable_upto = self.shared.sequences.next_sequence\n",
        "a torn copy is taken for damage",
    ),
    Mutation(
        "boot_index_names_no_dropped_ledger",
        f"{STORAGE}/boot.py",
        "            index.name_only(ledger_id)\n",
        "            pass\n",
        "a tombstone is forgotten while a file has records of its ledger",
    ),
    Mutation(
        "boot_trusts_a_rename_in_the_page_cache",
        f"{STORAGE}/boot.py",
        "        await self.shared.files.sync_directory()\n        names",
        "        names",
        "a power loss brings back a MANIFEST that is older than its files",
    ),
    Mutation(
        "boot_without_a_spare_is_writable",
        f"{STORAGE}/boot.py",
        "            self.shared.health.is_writable = False\n",
        "            pass\n",
        "a bookie without a next file accepts adds, which wait",
    ),
    Mutation(
        "boot_copies_deleted_entries",
        f"{STORAGE}/boot.py",
        "                if record.kind is JournalRecordKind.RUN and not self._is_live(record):\n"
        "                    continue\n",
        "",
        "entries that were deleted in the last group count as live",
    ),
    Mutation(
        "boot_short_file_is_whole",
        f"{STORAGE}/open_files.py",
        "        is_short = size < entry.size_bytes\n",
        "        is_short = False\n",
        "a file that was cut has lost nothing",
    ),
    Mutation(
        "boot_forgets_what_a_cut_start_found",
        f"{STORAGE}/open_files.py",
        "file.handle is None or file.is_short or file.entry.has_damage\n",
        "file.handle is None or file.is_short\n",
        "a second start denies entries that the first start found lost",
    ),
    Mutation(
        "boot_last_record_sets_the_lac",
        f"{STORAGE}/open_files.py",
        "max(state.last_add_confirmed, record.last_add_confirmed)",
        "record.last_add_confirmed",
        "the LAC of a ledger falls at a start",
    ),
    Mutation(
        "boot_every_file_begins_anywhere",
        f"{STORAGE}/open_files.py",
        "        expected = scan.next_sequence\n",
        "        expected = 1\n",
        "the first records of a file may be lost without a trace",
    ),
    Mutation(
        "boot_sees_no_lost_record_between_two",
        f"{STORAGE}/replay.py",
        "            elif record.sequence > scan.next_sequence:\n"
        "                scan.gaps.append(Gap(offset, scan.next_sequence))\n",
        "",
        "a record that is missing between two others is denied",
    ),
    Mutation(
        "boot_takes_records_of_an_earlier_sequence",
        f"{STORAGE}/replay.py",
        "            if record is None or record.sequence < scan.next_sequence:\n",
        "            if record is None:\n",
        "a record that was overwritten in part is replayed",
    ),
    Mutation(
        "boot_last_entry_has_no_lac",
        f"{STORAGE}/replay.py",
        "    if len(record.lengths) > 1:\n",
        "    if len(record.lengths) > 2:\n",
        "the LAC of the last entry of a run is lost at a start",
    ),
]

_JOURNAL = [
    Mutation(
        "journal_mark_after_the_end_of_the_file",
        f"{STORAGE}/journal.py",
        "    if not file.is_recycled or file.end + ALIGNMENT > file.entry.size_bytes:\n",
        "    if not file.is_recycled or file.end > file.entry.size_bytes:\n",
        "a group needs room after the end of its file",
    ),
    Mutation(
        "journal_recycled_file_has_no_end_mark",
        f"{STORAGE}/journal.py",
        "    buffers.append(PADDING)\n    return ALIGNMENT\n",
        "    return 0\n",
        "bytes of the file before are taken for a torn record",
    ),
    Mutation(
        "journal_waiter_before_the_write_waits_for_the_clock",
        f"{STORAGE}/journal.py",
        "        if not is_synced and self._waiters and self._waiters[0][0] <= last.ticket:\n"
        "            self._writer.sync_soon()\n",
        "",
        "a fence in a run without syncs waits for the interval",
    ),
    Mutation(
        "journal_group_is_due_in_the_next_file",
        f"{STORAGE}/journal.py",
        "            and is_full\n            and not self._must_roll(self._queue[0])\n",
        "            and is_full\n",
        "a file is closed while a group is written to it",
    ),
    Mutation(
        "journal_group_ignores_the_room_of_its_file",
        f"{STORAGE}/journal.py",
        "                or files.must_roll(size_at_most(record), under_way + stretches_now)\n",
        "",
        "a group is larger than the rest of its file",
    ),
    Mutation(
        "journal_lost_records_are_not_answered",
        f"{STORAGE}/journal.py",
        "        lost = [*group, *self._queue]\n",
        "        lost = [*group]\n",
        "adds that were queued when the device failed are never answered",
    ),
    Mutation(
        "journal_wait_of_an_earlier_group_ends_a_later_one",
        f"{STORAGE}/journal.py",
        "        if self._queue and self._queue[0].ticket == ticket:\n",
        "        if self._queue:\n",
        "a group is written before its wait ends",
    ),
]

_MODES = [
    Mutation(
        "mode_journal_files_have_no_durable_names",
        f"{MODES}/ring.py",
        "            await files.sync_directory()\n        except DiskFullError:\n",
        "        except DiskFullError:\n",
        "a power loss takes the journal of a run",
    ),
    Mutation(
        "mode_copies_need_one_record_less",
        f"{MODES}/ring.py",
        "                needed_from=self._released + 1,\n",
        "                needed_from=self._released + 2,\n",
        "a start ignores the first copy that it needs",
    ),
    Mutation(
        "mode_heads_that_are_needed_are_dropped",
        f"{MODES}/redo.py",
        "        while copies[0].last_sequence < copy.needed_from:\n",
        "        while len(copies) > 1 and copies[0].last_sequence <= copy.needed_from:\n",
        "a start ignores the first copy that it needs",
    ),
    Mutation(
        "mode_redo_begins_one_copy_late",
        f"{MODES}/redo.py",
        "if copy.last_sequence >= copies[-1].needed_from]",
        "if copy.last_sequence > copies[-1].needed_from]",
        "a start ignores the first copy that it needs",
    ),
    Mutation(
        "mode_redo_in_the_order_of_files",
        f"{MODES}/redo.py",
        "    copies = sorted((copy for file in scanned for copy in file.copies), key=_number)\n",
        "    copies = [copy for file in scanned for copy in file.copies]\n",
        "the copies after the journal began again from its first file are not proved",
    ),
    Mutation(
        "mode_written_groups_count_as_synced",
        f"{MODES}/checkpoints.py",
        "        if self.is_synced or self._ended.done():\n            return\n        waiting",
        "        if not self.is_synced or self._ended.done():\n            return\n        waiting",
        "a roll does not wait for the sync of the file before",
    ),
    Mutation(
        "mode_checkpoint_wakes_nobody",
        f"{MODES}/checkpoints.py",
        "            self._on_synced(written)\n        finally:\n            settle(waiting)\n",
        "            self._on_synced(written)\n        finally:\n            pass\n",
        "a roll waits forever",
    ),
    Mutation(
        "mode_missing_number_is_trusted",
        f"{MODES}/setup.py",
        "    if number is None:\n        return TakenOver(loss=",
        "    if number is None:\n        return TakenOver()\n    if number.get() < HAS_FAILED:\n"
        "        return TakenOver(loss=",
        "after a power loss, a run without syncs denies entries that it acknowledged",
    ),
    Mutation(
        "mode_killed_run_is_not_synced",
        f"{MODES}/setup.py",
        "        await _sync_open_files(shared)\n",
        "        pass\n",
        "a start trusts records that only the page cache has",
    ),
    Mutation(
        "mode_journal_is_removed_before_the_commit",
        f"{STORAGE}/ledger_storage.py",
        "        await self._keeper.commit(None)\n        await shared.store.remove_strays()\n"
        "        await shared.store.mark_unclean()\n"
        "        await self._journals.remove_files(kept=run.run_id)\n",
        "        await self._journals.remove_files(kept=run.run_id)\n"
        "        await self._keeper.commit(None)\n        await shared.store.remove_strays()\n"
        "        await shared.store.mark_unclean()\n",
        "a crash during a start leaves a run without its journal",
    ),
    Mutation(
        "mode_run_is_not_recorded",
        f"{STORAGE}/ledger_storage.py",
        "            shared.run = run\n            await self._keeper.commit(None)\n",
        "            shared.run = run\n",
        "the next start does not look for the journal of this run",
    ),
    Mutation(
        "mode_clean_stop_keeps_the_run",
        f"{STORAGE}/ledger_storage.py",
        "        self._shared.run = None\n        self._shared.changes += 1\n",
        "        self._shared.changes += 1\n",
        "after a clean stop, a start needs the journal that was removed",
    ),
    Mutation(
        "mode_stop_does_not_wait_for_compaction",
        f"{STORAGE}/ledger_storage.py",
        "            await self.compactor.stop()\n",
        "",
        "files are closed while compaction writes them",
    ),
    Mutation(
        "mode_foreign_journal_is_used",
        f"{MODES}/setup.py",
        "    if not foreign:\n",
        "    if len(foreign) < 99:\n",
        "two bookies write their journals to one directory",
    ),
]

MUTATIONS = [*_BOOT, *_JOURNAL, *_MODES]
