"""Mistakes in the write modes of a bookie: journal files, checkpoints, and the end of a run."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

MODES = "bookie_server/storage/modes"
JOURNAL = "bookie_server/storage/journal.py"
STORAGE = "bookie_server/storage/ledger_storage.py"
BOOT = "bookie_server/storage/boot.py"

MUTATIONS = [
    Mutation(
        "mode_journal_copy_is_not_synced",
        f"{MODES}/ring.py",
        "            await file.handle.write_synced(place, parts)\n",
        "            await file.handle.write_in_order(place, parts)\n",
        "an add is acknowledged before its copy is durable",
    ),
    Mutation(
        "mode_ring_reuses_a_file_early",
        f"{MODES}/ring.py",
        "if self._files[following].last_sequence <= self._released:",
        "if self._files[following].last_sequence <= self._released + 1:",
        "the copy of a record is overwritten before the record is synced",
    ),
    Mutation(
        "mode_ring_waits_for_nobody",
        f"{MODES}/ring.py",
        "                self.on_full()\n",
        "",
        "a full journal waits for the next interval",
    ),
    Mutation(
        "mode_copy_after_a_failed_copy",
        f"{MODES}/ring.py",
        "            if self._last_write is not None and not self._last_write.done():\n",
        "            if self._last_write is None:\n",
        "a copy in the next journal file proves a copy whose sync failed",
    ),
    Mutation(
        "mode_copy_after_a_failure_of_the_storage",
        f"{MODES}/ring.py",
        "        if self._failure is not None:\n            raise self._failure\n",
        "",
        "a group is copied, and the group before it is not",
    ),
    Mutation(
        "mode_end_mark_destroys_a_record",
        f"{MODES}/redo.py",
        "            return (following.file_id, following.offset) == (copy.file_id, at)\n",
        "            return False\n",
        "a redone group destroys the next record, whose own copy is damaged",
    ),
    Mutation(
        "mode_end_mark_destroys_the_last_record",
        f"{MODES}/redo.py",
        "        return is_record and not any(body[-ALIGNMENT:])\n",
        "        return False\n",
        "a redone group destroys the next record, whose own copy is gone",
    ),
    Mutation(
        "mode_failed_checkpoint_is_forgotten",
        f"{MODES}/writers.py",
        "if self._survivor is not None and not self._has_failed:",
        "if self._survivor is not None:",
        "a run whose sync failed is trusted after a SIGKILL",
    ),
    Mutation(
        "mode_copy_proves_itself",
        f"{MODES}/ring.py",
        "                previous_sequence=self._last_sequence,\n",
        "                previous_sequence=sequences[1],\n",
        "a torn copy counts as durable",
    ),
    Mutation(
        "mode_mark_before_flush",
        f"{MODES}/checkpoints.py",
        "            for file in self._files.opened:\n",
        "            self._on_synced(written)\n            for file in self._files.opened:\n",
        "a journal file is reused before its records are synced",
    ),
    Mutation(
        "mode_checkpoint_covers_later_groups",
        f"{MODES}/checkpoints.py",
        "            self._synced = written\n            self._on_synced(written)\n",
        "            self._synced = self._written\n            self._on_synced(self._written)\n",
        "a group that was written during a sync counts as synced",
    ),
    Mutation(
        "mode_checkpoint_skips_idle",
        f"{MODES}/checkpoints.py",
        "            if self._written != self._synced:\n                self.request()\n",
        "",
        "an idle bookie never syncs",
    ),
    Mutation(
        "mode_redo_before_sync_of_the_journal",
        f"{MODES}/redo.py",
        "        await handle.datasync()\n        file = ScannedFile",
        "        file = ScannedFile",
        "a second power loss finds less than the first start used",
    ),
    Mutation(
        "mode_redo_writes_damaged_copies",
        f"{MODES}/redo.py",
        "if len(body) != copy.size or checksum_of((body,)) != copy.checksum:",
        "if len(body) != copy.size:",
        "a torn copy overwrites the record",
    ),
    Mutation(
        "mode_redo_ignores_the_salt",
        f"{MODES}/redo.py",
        "if entry is None or bytes.fromhex(entry.salt) != copy.salt:",
        "if entry is None:",
        "a copy of an earlier file in the slot is written",
        equivalent="an id of a file is never used twice in a directory",
    ),
    Mutation(
        "mode_redo_is_not_synced",
        f"{MODES}/redo.py",
        "                await handle.datasync()\n                await handle.close()",
        "                await handle.close()",
        "the boot relies on records that are in the page cache only",
        equivalent="the boot finishes each open file later, and syncs the whole file then",
    ),
    Mutation(
        "mode_redo_stops_at_damage",
        f"{MODES}/redo.py",
        "            following = await _next_head(window, offset + ALIGNMENT)\n",
        "            following = None\n",
        "copies after a damaged head are not written",
    ),
    Mutation(
        "mode_redo_takes_older_copies",
        f"{MODES}/redo.py",
        "        if copies and copy.number < copies[-1].number:\n            return\n",
        "",
        "copies of the previous use of a file are written last",
    ),
    Mutation(
        "mode_missing_journal_is_an_empty_one",
        f"{MODES}/redo.py",
        "        if name not in present:\n",
        "        if name not in present and not names:\n",
        "a bookie without its journal denies entries",
    ),
    Mutation(
        "mode_failed_run_is_trusted",
        f"{MODES}/setup.py",
        "        if number.get() == HAS_FAILED:\n",
        "        if number.get() == HAS_FAILED - 1:\n",
        "a run whose write-back failed is believed",
    ),
    Mutation(
        "mode_same_boot_ignores_holes",
        f"{BOOT}",
        "        if lost or any(file.verdict.unreadable for file in replayed):\n",
        "        if not replayed and lost:\n",
        "acknowledged records that cannot be read are ignored",
    ),
    Mutation(
        "mode_number_is_set_too_late",
        f"{MODES}/writers.py",
        "            self._survivor.set(group.records[-1].sequence)\n",
        "            self._survivor.set(group.records[0].sequence)\n",
        "the proof does not cover the last records of a group",
    ),
    Mutation(
        "mode_control_unsynced_when_weak",
        f"{STORAGE}",
        "            if is_synced or record.kind is JournalRecordKind.RUN:\n",
        "            if True:\n",
        "a fence is answered before its sync",
    ),
    Mutation(
        "mode_roll_before_last_sync",
        f"{JOURNAL}",
        "            await self._writer.sync_now()\n",
        "",
        "the next file has a record while the previous file is not synced",
    ),
    Mutation(
        "mode_nobody_asks_for_a_sync",
        f"{JOURNAL}",
        "            if ticket <= self._written_ticket:\n"
        "                self._writer.sync_soon()\n",
        "",
        "a fence of an idle ledger waits for the next interval",
    ),
]
