"""Mistakes in the files of a bookie: slots, rolls, commits, free slots, descriptors, rebuilds."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

STORAGE = "bookie_server/storage"
FILES = f"{STORAGE}/files"

_KEEPER = [
    Mutation(
        "files_regular_adds_take_the_reserve",
        f"{FILES}/keeper.py",
        "        left = room_left(active) - active.entry.size_bytes // RESERVE_FRACTION\n",
        "        left = room_left(active)\n",
        "a full bookie has no room for fences and recovery adds",
    ),
    Mutation(
        "files_adds_in_flight_take_no_room",
        f"{FILES}/keeper.py",
        "taken = 2 * health.in_flight_bytes + CONTROL_RECORD_SIZE * self.records_queued()",
        "taken = CONTROL_RECORD_SIZE * self.records_queued()",
        "many adds are accepted for the last room of a file",
    ),
    Mutation(
        "files_queued_records_take_no_room",
        f"{FILES}/keeper.py",
        "taken = 2 * health.in_flight_bytes + CONTROL_RECORD_SIZE * self.records_queued()",
        "taken = 2 * health.in_flight_bytes",
        "deletions that come together are written beyond the end of the last file",
    ),
    Mutation(
        "files_leave_no_room_for_deletions",
        f"{FILES}/keeper.py",
        "            room -= room_for_drops(self.active, self._shared.settings.file_size_bytes)\n",
        "            pass\n",
        "recovery adds take the last room of a full bookie, which then refuses all deletions",
    ),
    Mutation(
        "files_small_file_has_no_room_for_copies",
        "bookie_server/storage/boot.py",
        "self.active = await self._prepare(is_last_resort=True, needed_bytes=needed_bytes)",
        "self.active = await self._prepare(is_last_resort=True)",
        "a full bookie that was killed refuses fences and deletions after its start",
    ),
    Mutation(
        "files_spare_is_no_room",
        f"{FILES}/keeper.py",
        "room_left(self.active) + (0 if self.spare is None else room_left(self.spare))",
        "room_left(self.active)",
        "recovery adds are refused although the next file is prepared",
    ),
    Mutation(
        "files_next_file_has_no_first_sequence",
        f"{FILES}/keeper.py",
        "        self.active.first_sequence = self._shared.sequences.next_sequence\n",
        "",
        "a start does not notice that the first records of a file are lost",
    ),
    Mutation(
        "files_finish_record_shares_its_sequence",
        f"{FILES}/keeper.py",
        "        self._shared.sequences.next_sequence += 1\n",
        "",
        "the first record of a file has the sequence of the finish record before it",
    ),
    Mutation(
        "files_last_sequence_is_that_of_the_finish_record",
        f"{FILES}/keeper.py",
        "            last_sequence=record.sequence - 1,\n",
        "            last_sequence=record.sequence,\n",
        "a start expects one record too few after a finished file",
    ),
    Mutation(
        "files_finished_file_is_not_marked",
        f"{FILES}/keeper.py",
        "        self._unmarked.append(file)\n",
        "",
        "the rest of a finished file takes space forever, and its descriptor stays open",
    ),
    Mutation(
        "files_manifest_vouches_for_unsynced_records",
        f"{FILES}/keeper.py",
        "durable_upto=max(before.durable_upto, self._shared.sequences.durable_sequence),",
        "durable_upto=max(before.durable_upto, self._shared.sequences.next_sequence - 1),",
        "a torn group is taken for damage",
    ),
    Mutation(
        "files_line_of_forgotten_ledgers_is_not_written",
        f"{FILES}/keeper.py",
        "            highest_dropped_ledger_id=self._health.highest_dropped_ledger_id,\n",
        "",
        "after a restart, the fence of a forgotten ledger is lost",
    ),
    Mutation(
        "files_pool_has_one_slot_more",
        f"{FILES}/keeper.py",
        "free[: self._shared.settings.pool_files_max]",
        "free[: self._shared.settings.pool_files_max + 1]",
        "one more file than the setting is kept for reuse",
    ),
    Mutation(
        "files_used_slot_is_free_too",
        f"{FILES}/keeper.py",
        "        used = {entry.slot for entry in (*files, *opened)}\n",
        "        used = {entry.slot for entry in files}\n",
        "the slot of the active file is used again",
    ),
    Mutation(
        "files_slot_is_free_before_its_close",
        f"{FILES}/keeper.py",
        "                await self._leaving[slot].close()\n"
        "                del self._leaving[slot]\n",
        "                await self._leaving.pop(slot).close()\n",
        "a new file is written in a slot while its former file is read",
    ),
    Mutation(
        "files_bookie_stays_read_only",
        f"{FILES}/keeper.py",
        "            self._shared.counters.files_recycled += prepared.is_recycled\n"
        "        self._set_writable(is_writable=True)\n",
        "            self._shared.counters.files_recycled += prepared.is_recycled\n",
        "a disk that has room again is not used",
    ),
    Mutation(
        "files_nobody_tries_again",
        f"{FILES}/keeper.py",
        "            self._set_writable(is_writable=False)\n            self._retry_later()\n",
        "            self._set_writable(is_writable=False)\n",
        "a bookie that found no room once stays read-only",
    ),
    Mutation(
        "files_start_without_a_spare_prepares_none",
        f"{FILES}/keeper.py",
        "        self._is_due = boot.spare is None\n",
        "        self._is_due = False\n",
        "a bookie that started on a full disk stays read-only",
    ),
    Mutation(
        "files_open_file_counts_as_freed",
        f"{FILES}/keeper.py",
        " or any(file_id == f.entry.file_id for f in self.opened)\n",
        "\n",
        "damage in the active file is not counted",
    ),
    Mutation(
        "files_two_files_get_one_id",
        f"{FILES}/keeper.py",
        "        self._next_file_id = file_id + 1\n",
        "",
        "the records of a file look like those of another file in its slot",
    ),
    Mutation(
        "files_pieces_of_the_next_group_do_not_count",
        f"{FILES}/keeper.py",
        "            and index.pieces + pieces <= settings.pieces_max\n",
        "            and index.pieces <= settings.pieces_max\n",
        "the index of a file has more pieces than it may have",
    ),
    Mutation(
        "files_withdrawn_copies_keep_their_slot",
        f"{FILES}/keeper.py",
        "await self._release(slot, is_kept=slot in self._shared.store.current.free_slots)",
        "pass",
        "copies without a MANIFEST take space until the next start",
    ),
]

_SLOTS = [
    Mutation(
        "slots_last_resort_leaves_the_reserve",
        f"{FILES}/slots.py",
        "            kept_free = min(needed_bytes, FILE_SIZE_BYTES_MIN)\n",
        "",
        "a bookie with a full disk does not start",
    ),
    Mutation(
        "slots_name_is_not_durable",
        f"{FILES}/slots.py",
        "            await write_header(handle, entry)\n"
        "            await self._files.sync_directory()\n",
        "            await write_header(handle, entry)\n",
        "the MANIFEST lists a file whose name a power loss takes",
    ),
    Mutation(
        "slots_header_is_not_synced",
        f"{FILES}/slots.py",
        "    await handle.write(header.sector_offset, (encode_slot_header(header),))\n"
        "    await handle.datasync()\n",
        "    await handle.write(header.sector_offset, (encode_slot_header(header),))\n",
        "a file has the header of an earlier file in its slot",
    ),
    Mutation(
        "slots_header_overwrites_the_valid_one",
        f"{FILES}/slots.py",
        "        generation=1 if before is None else before.generation + 1,\n",
        "        generation=1 if before is None else before.generation,\n",
        "a torn header leaves no header",
    ),
    Mutation(
        "slots_failed_file_stays",
        f"{FILES}/slots.py",
        "                await self._files.remove(name)\n            raise\n",
        "                pass\n            raise\n",
        "each try on a full disk leaves a file",
    ),
    Mutation(
        "slots_draft_takes_the_smallest_slot",
        f"{FILES}/slots.py",
        "        free_slot = max(free_slots, key=lambda slot: sizes[slot], default=None)\n",
        "        free_slot = min(free_slots, key=lambda slot: sizes[slot], default=None)\n",
        "compaction on a full disk has only a cut slot, and finds no room",
    ),
    Mutation(
        "slots_draft_leaves_the_whole_reserve",
        f"{FILES}/slots.py",
        "        kept_free = self._settings.free_bytes_min // 2\n",
        "        kept_free = self._settings.free_bytes_min\n",
        "after a start on a full disk, compaction has no room",
    ),
]

_POOL = [
    Mutation(
        "pool_opens_one_file_too_many",
        f"{FILES}/pool.py",
        "        while self.open_count >= self._open_max:\n",
        "        while self.open_count > self._open_max:\n",
        "a bookie has more open files than it may have",
    ),
    Mutation(
        "pool_file_that_may_close_wakes_nobody",
        f"{FILES}/pool.py",
        "        self.is_held = False\n        self._pool.wake()\n",
        "        self.is_held = False\n",
        "a read waits for a descriptor although a file may be closed",
    ),
    Mutation(
        "pool_used_file_wakes_nobody",
        f"{FILES}/pool.py",
        "                settle(self._idle)\n                self._pool.wake()\n",
        "                settle(self._idle)\n",
        "a read waits for a descriptor although a file may be closed",
    ),
    Mutation(
        "pool_closes_a_file_in_use",
        f"{FILES}/pool.py",
        "        while self.uses:\n            idle",
        "        while False:\n            idle",
        "a file is closed under a running operation",
    ),
    Mutation(
        "pool_counts_failed_openings",
        f"{FILES}/pool.py",
        "                except BaseException:\n"
        "                    self._give_back()\n"
        "                    raise\n",
        "                except BaseException:\n                    raise\n",
        "each missing file takes a descriptor forever",
    ),
    Mutation(
        "pool_file_opened_late_stays_open",
        f"{FILES}/pool.py",
        "        if self._is_closed:\n            await self.close(file)\n",
        "",
        "a file that was being opened during a stop stays open",
    ),
    Mutation(
        "pool_closed_file_is_opened_again",
        f"{FILES}/pool.py",
        "            if file.is_closed or self._is_closed:\n",
        "            if self._is_closed:\n",
        "a reading of a freed file reads the next file in its slot",
    ),
]

_MANIFEST = [
    Mutation(
        "manifest_names_states_before_their_sync",
        f"{FILES}/manifest.py",
        "                await file.datasync()\n"
        "            finally:\n"
        "                await file.close()\n"
        "            manifest = replace(",
        "                pass\n            finally:\n                await file.close()\n"
        "            manifest = replace(",
        "the MANIFEST names states that a power loss takes",
    ),
    Mutation(
        "manifest_is_not_synced_before_its_rename",
        f"{FILES}/manifest.py",
        "            await file.write(0, (data,))\n            await file.datasync()\n",
        "            await file.write(0, (data,))\n",
        "a power loss leaves an empty MANIFEST",
    ),
    Mutation(
        "manifest_rename_is_not_synced",
        f"{FILES}/manifest.py",
        "        try:\n"
        "            await self._files.sync_directory()\n"
        "        except DiskFullError as error:\n",
        "        try:\n            pass\n        except DiskFullError as error:\n",
        "a slot is used again although the durable MANIFEST lists its file",
    ),
    Mutation(
        "manifest_names_a_state_file_without_a_name",
        f"{FILES}/manifest.py",
        "                await self._files.sync_directory()\n            encoding",
        "                pass\n            encoding",
        "the MANIFEST is durable, and the name of its state file is not",
    ),
    Mutation(
        "manifest_start_removes_free_slots",
        f"{FILES}/manifest.py",
        "        named = {self.current.state_file, *self.current.free_slots}\n",
        "        named = {self.current.state_file}\n",
        "a start removes the files that are kept for reuse",
    ),
    Mutation(
        "manifest_cut_states_are_accepted",
        f"{FILES}/manifest.py",
        "        if len(data) < self.current.state_bytes:\n",
        "        if not data:\n",
        "fences are lost with the end of the ledger-state file",
    ),
    Mutation(
        "manifest_new_directory_over_an_old_one",
        f"{FILES}/manifest.py",
        "    if any(name.startswith(SLOT_PREFIX) for name in names):\n"
        "        raise _missing_manifest()\n",
        "",
        "a directory whose MANIFEST is lost counts as new",
    ),
    Mutation(
        "manifest_unclean_marker_has_no_durable_name",
        f"{FILES}/manifest.py",
        '        await self._write(UNCLEAN_NAME, b"")\n'
        "        await self._files.sync_directory()\n",
        '        await self._write(UNCLEAN_NAME, b"")\n',
        "an unclean end is not noticed",
    ),
]

_HELD = [
    Mutation(
        "held_freed_file_is_counted_again",
        f"{FILES}/held.py",
        "        if file.entry.file_id not in self._files:\n            return\n",
        "",
        "a file that is freed while its index is rebuilt is read forever",
    ),
    Mutation(
        "held_dropped_bytes_stay_live",
        f"{FILES}/held.py",
        "pop(ledger_id, ()):\n            file.live_bytes -= file.live.pop(ledger_id)\n",
        "pop(ledger_id, ()):\n            file.live.pop(ledger_id)\n",
        "a file with deleted entries is not compacted",
    ),
    Mutation(
        "held_removed_file_is_still_held",
        f"{FILES}/held.py",
        "                    if file in files:\n"
        "                        self._holding[ledger_id].remove(file)\n"
        "                        if not",
        "                    if file in files[1:]:\n"
        "                        self._holding[ledger_id].remove(file)\n"
        "                        if not",
        "a read looks for entries in a file that compaction has freed",
    ),
    Mutation(
        "rebuild_ends_every_doubt",
        f"{FILES}/finished_scan.py",
        "        return not self.lost\n",
        "        return True\n",
        "a file that lost records is not in doubt, and its entries are denied",
    ),
    Mutation(
        "recounted_file_is_not_looked_at",
        f"{FILES}/held.py",
        "        if not self._counted_again:\n",
        "        if True:\n",
        "a read gets an older copy of an entry while the index of the newest copy is rebuilt",
    ),
    Mutation(
        "rebuild_is_not_tried_again",
        f"{FILES}/index_rebuilds.py",
        "            # The file is still in doubt. The next read that finds the damage starts a "
        "new rebuild.\n            self._running.discard(file_id)\n",
        "            pass\n",
        "after one read error, a damaged index is never rebuilt",
    ),
    Mutation(
        "rebuild_takes_no_damaged_records",
        f"{FILES}/finished_scan.py",
        "return [*self.records, *(gap.record for gap in self.gaps if gap.record is not None)]",
        "return list(self.records)",
        "an entry whose bytes are damaged is denied after a rebuild of the index",
    ),
    Mutation(
        "index_last_block_is_not_searched",
        f"{FILES}/entry_log_file.py",
        "    return range(bisect_left(keys, (ledger_id, first)), min(end + 1, len(keys)))\n",
        "    return range(bisect_left(keys, (ledger_id, first)), min(end, len(keys)))\n",
        "the newest entries of a ledger are not listed",
    ),
    Mutation(
        "index_lists_dropped_entries",
        f"{FILES}/entry_log_file.py",
        "for p in block.pieces_of(ledger_id) if p.origin > tombstone)",
        "for p in block.pieces_of(ledger_id))",
        "deleted entries are listed as held",
    ),
]

MUTATIONS = [*_KEEPER, *_SLOTS, *_POOL, *_MANIFEST, *_HELD]
