"""Mistakes in a bookie's decisions and in its storage."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

CORE = "bookie_server/core"
STORAGE = "bookie_server/storage"

_DISK = [
    Mutation(
        "disk_watch_changes_nothing",
        f"{CORE}/ledger_gate.py",
        "return self.is_writable and not self.is_disk_full",
        "return self.is_writable",
        "adds are accepted although the device is full",
    ),
    Mutation(
        "disk_watch_flaps",
        f"{CORE}/disk_use.py",
        "if used > settings.full or (stays and before is DiskLevel.FULL):",
        "if used > settings.full:",
        "each freed file makes the bookie writable, and the next file makes it read-only",
    ),
    Mutation(
        "disk_watch_counts_the_pool_as_used",
        f"{STORAGE}/disk_watch.py",
        "await files.free_space() + kept",
        "await files.free_space()",
        "a bookie that could reuse its files stays read-only",
    ),
    Mutation(
        "disk_watch_does_not_compact",
        f"{STORAGE}/ledger_storage.py",
        "keeper.on_short = self.disk.on_full = self.compactor.compact_when_short",
        "keeper.on_short = self.compactor.compact_when_short",
        "a bookie above the maximum waits an hour for its space",
    ),
    Mutation(
        "disk_watch_ignores_new_files",
        f"{STORAGE}/ledger_storage.py",
        "        keeper.on_commit = self.disk.measure_soon\n",
        "",
        "many files are allocated between two measurements",
    ),
    Mutation(
        "disk_watch_begins_after_the_start",
        f"{STORAGE}/ledger_storage.py",
        "        await self.disk.measure()\n",
        "",
        "a bookie on a full device registers as writable",
    ),
    Mutation(
        "sync_without_room_is_tried_again",
        f"{STORAGE}/device/os_errors.py",
        'if error.errno in _FULL and verb != "sync":',
        "if error.errno in _FULL:",
        "the second sync succeeds, although the pages were dropped by the first",
    ),
    Mutation(
        "cut_without_room_gives_up_a_named_file",
        f"{STORAGE}/files/keeper.py",
        "with contextlib.suppress(TooManyFilesError, DiskFullError):",
        "with contextlib.suppress(TooManyFilesError):",
        "the next file is removed although the MANIFEST names it",
    ),
    Mutation(
        "removal_without_room_ends_the_storage",
        f"{STORAGE}/files/keeper.py",
        "                with contextlib.suppress(DiskFullError):"
        "  # the next start removes the file\n"
        "                    await self._shared.store.remove_slot(slot)\n",
        "                await self._shared.store.remove_slot(slot)\n",
        "a bookie ends because it cannot remove a file",
    ),
]

_CORE = [
    Mutation(
        "bookie_takes_adds_after_fence",
        f"{CORE}/ledger_gate.py",
        "if is_regular and state is not None and state.is_fenced:",
        "if is_regular and state is None:",
        "a fenced bookie accepts adds of the old writer",
    ),
    Mutation(
        "bookie_fences_recovery_adds",
        f"{CORE}/ledger_gate.py",
        "if is_regular and state is not None and state.is_fenced:",
        "if state is not None and state.is_fenced:",
        "recovery cannot write back",
    ),
    Mutation(
        "bookie_skips_metadata_check",
        f"{CORE}/ledger_gate.py",
        "    if is_regular and needs_check(request.ledger_id, state, health):\n"
        "        return Wait.METADATA_CHECK\n",
        "",
        "an add is taken although its fence was lost in a torn tail",
    ),
    Mutation(
        "bookie_says_absent_with_files_in_doubt",
        f"{CORE}/ledger_gate.py",
        "if health.has_failed or health.files_in_doubt:",
        "if health.has_failed:",
        "an entry in a damaged file is denied",
    ),
    Mutation(
        "bookie_says_absent_after_failure",
        f"{CORE}/ledger_gate.py",
        "if health.has_failed or health.files_in_doubt:",
        "if health.files_in_doubt:",
        "entries whose write failed are denied",
    ),
    Mutation(
        "bookie_adds_after_failure",
        f"{CORE}/ledger_gate.py",
        """    if health.has_failed:
        return Code.IO_ERROR
    if state is not None and not key_fits(state, request""",
        "    if state is not None and not key_fits(state, request",
        "a bookie continues after a failure of its disk",
    ),
    Mutation(
        "bookie_is_full_and_writes",
        f"{CORE}/ledger_gate.py",
        "if not (health.accepts_adds if is_regular else health.has_room):",
        "if not (True if is_regular else health.has_room):",
        "regular adds take the room of recovery and control records",
    ),
    Mutation(
        "bookie_set_read_only_writes",
        f"{CORE}/ledger_gate.py",
        "return self.is_writable and not self.is_disk_full and not self.is_set_read_only",
        "return self.is_writable and not self.is_disk_full",
        "a bookie that was made read-only by hand takes adds",
    ),
    Mutation(
        "bookie_set_writable_although_full",
        f"{CORE}/ledger_gate.py",
        "return self.is_writable and not self.is_disk_full and not self.is_set_read_only",
        "return not self.is_disk_full and not self.is_set_read_only",
        "a full bookie takes adds",
    ),
    Mutation(
        "bookie_set_read_only_is_not_announced",
        f"{STORAGE}/ledger_storage.py",
        "        if before != is_read_only:\n            self.on_state_change()\n",
        "",
        "clients still choose a bookie that was made read-only",
    ),
    Mutation(
        "fence_waits_for_nothing",
        f"{STORAGE}/fences.py",
        "self._journal.when_durable(barrier_of(state), then)",
        "then(Code.OK)",
        "a fence is answered before it is durable",
    ),
    Mutation(
        "state_loses_fences",
        f"{CORE}/ledger_state.py",
        "state.is_fenced = bool(flags & FLAG_FENCED)",
        "state.is_fenced = False",
        "a start from the ledger-state file forgets fences",
    ),
    Mutation(
        "state_loses_explicit_lac",
        f"{CORE}/ledger_state.py",
        "state.last_add_confirmed, state.explicit_lac, state.tombstone = lac, explicit, tombstone",
        "state.last_add_confirmed, state.explicit_lac, state.tombstone = lac, -1, tombstone",
        "an announced LAC falls over a restart",
    ),
    Mutation(
        "lac_is_that_of_entries",
        f"{CORE}/ledger_state.py",
        "return max(self.last_add_confirmed, self.explicit_lac)",
        "return self.last_add_confirmed",
        "announcements change nothing",
    ),
    Mutation(
        "pieces_older_copy_wins",
        f"{CORE}/pieces.py",
        "            if piece.origin > new.origin:",
        "            if piece.origin < new.origin:",
        "a bookie serves a copy that was overwritten",
    ),
    Mutation(
        "pieces_overlap_loses_rest",
        f"{CORE}/pieces.py",
        "                result.append(cut(piece, new.last + 1, piece.last))\n",
        "                pass\n",
        "entries after an overlap are denied",
    ),
    Mutation(
        "pieces_overlap_loses_begin",
        f"{CORE}/pieces.py",
        "                result.append(cut(piece, piece.first, new.first - 1))\n",
        "                pass\n",
        "entries before an overlap are denied",
    ),
    Mutation(
        "replay_drops_unvouched_records",
        f"{CORE}/replay_decision.py",
        "rewritten = [r for r in tail if cut_at is None or r.offset < cut_at]",
        "rewritten = []",
        "the last group before a crash is lost",
    ),
    Mutation(
        "replay_takes_records_behind_tear",
        f"{CORE}/replay_decision.py",
        "rewritten = [r for r in tail if cut_at is None or r.offset < cut_at]",
        "rewritten = tail",
        "records after a torn record are accepted, so a fence may take effect without the adds "
        "before it",
    ),
    Mutation(
        "replay_sees_no_damage",
        f"{CORE}/replay_decision.py",
        "        has_damage=was_reached\n"
        "        and any(_hides_a_record(gap, scan, synced, following) for gap in scan.gaps),",
        "        has_damage=False,",
        "a synced record that rotted is denied after a restart",
    ),
    Mutation(
        "replay_trusts_manifest_alone",
        f"{CORE}/replay_decision.py",
        "return max(durable_upto, *(r.durable_upto for scan in scans for r in scan.records), 0)",
        "return max(durable_upto, 0)",
        "damage in a file that is not finished is taken for a torn tail",
    ),
]

_STORAGE = [
    Mutation(
        "add_is_compared_but_not_admitted_again",
        f"{STORAGE}/adds.py",
        "            self._health.in_flight_bytes -= len(request.body)\n            is_unreadable",
        "            is_unreadable",
        "bytes of refused adds count as in flight forever",
    ),
    Mutation(
        "repair_is_refused_if_the_device_cannot_read",
        f"{STORAGE}/adds.py",
        "            if isinstance(error, CorruptRecordError) or is_unreadable:\n",
        "            if isinstance(error, CorruptRecordError):\n",
        "an entry on a bad sector is never repaired",
    ),
    Mutation(
        "repeated_add_before_durable",
        f"{STORAGE}/adds.py",
        "        self._journal.when_durable(covered, partial(resolve, durable))\n"
        "        await durable\n        try:\n            is_repeated",
        "        durable.set_result(Code.OK)\n        await durable\n"
        "        try:\n            is_repeated",
        "a repeated add is compared with entries that are not durable yet",
        equivalent="copies that are not durable are not found, so the run is stored once more",
    ),
    Mutation(
        "repeated_add_of_dropped_ledger",
        f"{STORAGE}/adds.py",
        "if is_repeated and state.drop_ticket <= covered and not state.is_releasing:",
        "if is_repeated and not state.is_releasing:",
        "a repeated add is answered from a copy that a release has deleted",
    ),
    Mutation(
        "repeated_add_ignores_fence",
        f"{STORAGE}/adds.py",
        "if verdict is None or verdict in (Code.READ_ONLY, Code.BUSY):",
        "if True:",
        "a repeated add is acknowledged after the fence",
    ),
    Mutation(
        "overlap_is_a_repeat",
        f"{STORAGE}/reading/reads.py",
        "                return False, True\n",
        "                continue\n",
        "an add with other bytes is acknowledged and not stored",
    ),
    Mutation(
        "check_of_replaced_bookie_fences",
        f"{STORAGE}/adds.py",
        "        elif check is AddCheck.FENCE:",
        "        else:",
        "a bookie that was replaced fences a healthy ledger",
    ),
    Mutation(
        "check_of_unwritable_ledger_is_not_remembered",
        f"{STORAGE}/adds.py",
        "            await self._fences.fence_unwritable(ledger_id, master_key)\n",
        "            pass\n",
        "an add that found a lost fence repeats the metadata check forever",
    ),
    Mutation(
        "fence_is_not_written",
        f"{STORAGE}/fences.py",
        "        state.last_ticket = self._journal.submit(record)\n",
        "",
        "a fence lasts until the next power loss",
    ),
    Mutation(
        "fence_does_not_bar",
        f"{STORAGE}/fences.py",
        "        state.is_fenced = True\n",
        "",
        "a fence that was answered takes effect only at the next start",
    ),
    Mutation(
        "last_entry_in_limbo",
        f"{STORAGE}/reading/answers.py",
        "entry_id = state.last_entry_id if was_certain else NO_ENTRY",
        "entry_id = state.last_entry_id",
        "a damaged bookie names a last entry that may not be the last",
    ),
    Mutation(
        "denial_forgets_the_doubt_it_began_in",
        f"{STORAGE}/limbo/denials.py",
        "        return absent(state, self._health, newer) if was_certain else Code.IO_ERROR\n",
        "        return absent(state, self._health, newer)\n",
        "an entry is denied by a read that began while its file was counted again",
    ),
    Mutation(
        "readers_of_an_opening_file_share_a_future",
        f"{STORAGE}/files/pool.py",
        """                waiting: Future[None] = self.tasks.future()
                file.opening.append(waiting)
                await waiting
""",
        """                if not file.opening:
                    file.opening.append(self.tasks.future())
                await file.opening[0]
""",
        "a list of entries that its client cancels takes the reads of others along",
    ),
    Mutation(
        "reads_of_pages_that_came_go_on_at_once",
        f"{STORAGE}/reading/readings.py",
        """                    if wait_in_line is not None:
                        await wait_in_line(len(data))
                if give_way""",
        "                if give_way",
        "pages that come together hold up the loop for as long as all their reads take",
    ),
    Mutation(
        "large_reads_count_as_small_ones",
        f"{STORAGE}/reading/readings.py",
        "1 + size_bytes // RECORD_BYTES",
        "1",
        "sixty-four entries of 5 MB are copied in one turn of the loop",
    ),
    Mutation(
        "adds_are_compared_in_one_turn",
        f"{STORAGE}/reading/reads.py",
        """            if number and number % RECORDS_PER_TURN == 0:
                yield None
            stored""",
        "            stored",
        "a run that is sent again holds up the loop until all its entries are compared",
    ),
    Mutation(
        "line_of_readings_lets_all_go_on",
        f"{STORAGE}/reading/readings.py",
        "                left -= records\n",
        "",
        "hundreds of readings continue in one turn of the loop",
    ),
    Mutation(
        "metadata_check_goes_on_after_a_failure",
        f"{STORAGE}/adds.py",
        "standing = Standing.UNKNOWN if self._health.has_failed else checked.standing",
        "standing = checked.standing",
        "a fence is written to a journal that has failed, which ends the bookie as a bug",
    ),
    Mutation(
        "callback_of_a_cold_read_ends_the_bookie",
        f"{STORAGE}/reading/readings.py",
        "            guarded(self._tasks, on_result),\n",
        "            on_result,\n",
        "one answer that fails ends the bookie when it came from a file",
    ),
    Mutation(
        "file_in_use_makes_room",
        f"{STORAGE}/files/pool.py",
        "            if file.uses or file.is_held:",
        "            if file.is_held:",
        "a file is closed for another one while it is read",
    ),
    Mutation(
        "fence_of_the_metadata_is_not_waited_for",
        f"{STORAGE}/fences.py",
        "        await durable\n",
        "",
        "an add is refused as fenced by a fence that a power loss takes away",
    ),
    Mutation(
        "storage_that_closes_takes_fences",
        f"{STORAGE}/fences.py",
        "        if code is None and health.is_closing:\n            code = Code.IO_ERROR\n",
        "",
        "a fence that comes while a bookie stops is written to a journal that is over",
    ),
    Mutation(
        "damaged_entry_carried_no_lac",
        f"{STORAGE}/boot.py",
        "                state.lac_bound = max(state.lac_bound, record.entry_ids[-1] - 1)\n",
        "                pass\n",
        "the LAC of a ledger falls when the entry that carried it is damaged",
    ),
    Mutation(
        "lac_bound_is_not_kept",
        f"{CORE}/ledger_state.py",
        "    state.lac_bound = rest[0] - 1 if rest else -1  # version 1 has no LAC bound\n",
        "",
        "the LAC of a ledger falls at the second start after its entry was damaged",
    ),
    Mutation(
        "log_answers_before_sync",
        f"{STORAGE}/modes/writers.py",
        "        await group.file.handle.write_synced(group.offset, group.buffers)",
        "        await group.file.handle.write(group.offset, group.buffers)",
        "an add is acknowledged before its bytes are synced",
    ),
    Mutation(
        "log_waiters_see_next_ticket",
        f"{STORAGE}/journal.py",
        "        elif ticket <= self.durable_ticket:",
        "        elif ticket <= self.durable_ticket + 1:",
        "a fence is answered one record too early",
    ),
    Mutation(
        "log_vouches_for_itself",
        f"{STORAGE}/journal.py",
        "durable_upto = self._sequences.next_sequence, self._sequences.durable_sequence",
        "durable_upto = self._sequences.next_sequence, self._sequences.next_sequence",
        "a torn group is taken for damage",
    ),
    Mutation(
        "log_reports_failure_of_nobody",
        f"{STORAGE}/journal.py",
        "        for _, _, callback in sorted(waiters, key=lambda waiter: waiter[:2]):\n"
        "            call_back(self._tasks, callback, Code.IO_ERROR)\n",
        "",
        "a fence whose sync failed is never answered",
    ),
    Mutation(
        "tombstone_forgets_fence",
        f"{STORAGE}/drops.py",
        "        state.is_fenced, state.is_released = True, False\n",
        "        state.is_released = False\n",
        "a deleted ledger takes adds until its tombstone is durable",
    ),
    Mutation(
        "tombstone_keeps_last_entry",
        f"{STORAGE}/drops.py",
        "        state.last_entry_id = -1\n",
        "",
        "a fence of a deleted ledger reports an entry that was deleted",
    ),
    Mutation(
        "dropped_ledger_is_forgotten_with_records",
        f"{STORAGE}/drops.py",
        "candidates.difference_update(total.ledger_id for total in totals)",
        "candidates.difference_update(())",
        "old records of a forgotten ledger come back",
    ),
    Mutation(
        "state_file_counts_as_it_was",
        f"{STORAGE}/files/manifest.py",
        "generation=generation, state_file=name, state_bytes=end)",
        "generation=generation, state_file=name, state_bytes=start or end)",
        "appended states are not named by the MANIFEST",
    ),
    Mutation(
        "failed_commit_takes_the_changes_with_it",
        f"{STORAGE}/files/manifest.py",
        "            states.changed |= taken\n",
        "",
        "states of a commit that found no room are in no later one",
    ),
    Mutation(
        "missing_manifest_is_a_new_directory",
        f"{STORAGE}/files/manifest.py",
        "        if NAME not in names:\n            raise _missing_manifest()\n",
        "        if NAME not in names:\n            return HeldLedgers()\n",
        "a bookie with an emptied directory denies acknowledged entries",
    ),
    Mutation(
        "prepared_file_of_a_failed_commit_stays_open",
        f"{STORAGE}/files/slots.py",
        "        await file.handle.close()\n        if not file.is_recycled:",
        "        if not file.is_recycled:",
        "each try on a full disk takes one more descriptor",
    ),
    Mutation(
        "boot_forgets_fences_of_the_log",
        f"{STORAGE}/open_files.py",
        "        state.is_fenced = True\n",
        "        pass\n",
        "a fence that is only in the journal is lost at a start",
    ),
    Mutation(
        "boot_forgets_lac_of_the_log",
        f"{STORAGE}/open_files.py",
        "JournalRecordKind.LAC:\n"
        "        state.explicit_lac = max(state.explicit_lac, record.value)\n",
        "JournalRecordKind.LAC:\n        pass\n",
        "an announced LAC falls over a restart",
    ),
    Mutation(
        "boot_counts_dropped_entries_as_last",
        f"{STORAGE}/boot.py",
        "max(piece.last for piece in pieces if piece.origin > state.tombstone)",
        "max(piece.last for piece in pieces)",
        "a fence reports no last entry if dropped entries follow the recovered ones",
    ),
    Mutation(
        "boot_raises_no_check_epoch",
        f"{STORAGE}/boot.py",
        "        health.check_epoch += 1\n",
        "",
        "a fence in a torn tail is lost, and no metadata check detects this",
    ),
    Mutation(
        "boot_does_not_sync_copies",
        f"{STORAGE}/boot.py",
        "            append_end_mark(active, buffers)\n"
        "            await active.handle.write_synced(start, buffers)\n",
        "            append_end_mark(active, buffers)\n"
        "            await active.handle.write(start, buffers)\n",
        "bytes that a killed process left in the page cache are served, and are lost at the next "
        "power loss",
    ),
    Mutation(
        "boot_does_not_rewrite",
        f"{STORAGE}/boot.py",
        "            for record in file.verdict.rewritten:\n"
        "                assert file.handle is not None\n",
        "            for record in file.verdict.rewritten[:0]:\n"
        "                assert file.handle is not None\n",
        "the last group before a crash is lost",
    ),
    Mutation(
        "boot_last_entry_of_active_file",
        f"{STORAGE}/boot.py",
        "            state.last_entry_id = max(state.last_entry_id, total.last_entry_id)",
        "            state.last_entry_id = total.last_entry_id",
        "a fence names a last entry that is not the last",
    ),
    Mutation(
        "reads_oldest_file_wins",
        f"{STORAGE}/reading/reads.py",
        "if piece is not None and (best is None or piece.origin > best.origin):",
        "if piece is not None and (best is None or piece.origin < best.origin):",
        "a copy that was overwritten is served",
        equivalent="origins increase from file to file, so the newest origin of an older file "
        "excludes the file",
    ),
    Mutation(
        "reads_active_file_alone",
        f"{STORAGE}/reading/reads.py",
        "for file in self._keeper.finished.holding(ledger_id)[::-1]:",
        "for file in self._keeper.finished.holding(ledger_id)[:0]:",
        "entries of finished files are denied",
    ),
    Mutation(
        "reads_skip_the_full_file",
        f"{STORAGE}/reading/reads.py",
        "            older = full.index.find(ledger_id, entry_id)\n",
        "            older = None\n",
        "entries are denied while the index of their file is encoded",
    ),
    Mutation(
        "boot_takes_a_full_file_for_damage",
        f"{STORAGE}/open_files.py",
        "may_lack_finish=is_next and not replayed[-1].scan.is_finished",
        "may_lack_finish=False",
        "a crash while an index is written puts the whole bookie in doubt",
    ),
    Mutation(
        "roll_forgets_the_full_file",
        f"{STORAGE}/files/keeper.py",
        "while self.spare is None or self.full is not None:",
        "while self.spare is None:",
        "a second roll overtakes the index of the file before",
        equivalent="a next file is prepared only after the index of the full file is durable",
    ),
    Mutation(
        "reads_dropped_entries",
        f"{STORAGE}/reading/reads.py",
        "if best is None or best.origin < self._tombstone_of(ledger_id):",
        "if best is None:",
        "entries of a dropped ledger come back",
    ),
    Mutation(
        "batch_says_absent_for_damage",
        f"{STORAGE}/reading/reads.py",
        "            if not entries:\n                raise\n",
        "            pass\n",
        "a damaged entry is denied by a batch",
    ),
    Mutation(
        "keeper_frees_files_in_doubt",
        f"{STORAGE}/files/held.py",
        "if not file.live and file.entry.file_id not in files_in_doubt",
        "if not file.live",
        "a damaged file is freed, and with it entries that could be rebuilt",
    ),
    Mutation(
        "storage_last_entry_is_newest",
        f"{STORAGE}/ledger_storage.py",
        "state.last_entry_id = max(state.last_entry_id, ids[-1])",
        "state.last_entry_id = ids[-1]",
        "a fence names a last entry that is not the last",
    ),
    Mutation(
        "grant_to_a_cancelled_call",
        "bookie_server/service/grpc/stream.py",
        """        if granted.done():
            # The waiter was cancelled before it could use the grant.
            share.give_back(size_bytes)
        else:
            granted.set_result(None)
""",
        """        granted.set_result(None)
""",
        "the error of a cancelled call is raised in the call that gave its bytes back",
    ),
]

MUTATIONS = [*_DISK, *_CORE, *_STORAGE]
