"""Mistakes in the compaction of a bookie's files."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

STORAGE = "bookie_server/storage"
COMPACTION = f"{STORAGE}/compaction"

MUTATIONS = [
    Mutation(
        "unreadable_is_dead",
        f"{COMPACTION}/copying.py",
        "        except StorageError:\n            return CopyOutcome.UNREADABLE\n",
        "        except StorageError:\n            return CopyOutcome.WHOLE\n",
        "a file with an entry that cannot be read is freed, and the entry is absent",
    ),
    Mutation(
        "copy_without_checksum",
        f"{COMPACTION}/copying.py",
        "data = await self._run(read_body(self.source.handle, record, at, edge))",
        "data = await self._window.get(record.offset + record.header_size + at, edge - at)",
        "damaged bytes get a valid checksum",
    ),
    Mutation(
        "copy_gets_new_origin",
        f"{COMPACTION}/copying.py",
        "    copy.origin_sequence = record.origin_sequence\n",
        "    copy.origin_sequence = record.origin_sequence + (1 << 40)\n",
        "old bytes beat those that recovery wrote again, and dropped entries come back",
    ),
    Mutation(
        "superseded_by_unsynced",
        f"{COMPACTION}/live.py",
        "        live = [piece for piece in pieces if piece.origin > tombstone]\n",
        "        opened = self._keeper.opened\n"
        "        live = [\n"
        "            piece\n"
        "            for piece in pieces\n"
        "            if piece.origin > tombstone\n"
        "            and not any(file.index.find(ledger_id, piece.first) for file in opened)\n"
        "        ]\n",
        "an entry is lost with its newer copy, which was not synced",
    ),
    Mutation(
        "sources_freed_first",
        f"{STORAGE}/files/keeper.py",
        "        await self._shared.store.commit(compose, self._shared.states)\n",
        "        for file in () if self.handover.due is None else self.handover.due.sources:\n"
        "            await self._shared.files.remove(file.entry.slot)\n"
        "        await self._shared.store.commit(compose, self._shared.states)\n",
        "a crash before the MANIFEST leaves neither the sources nor the copies",
    ),
    Mutation(
        "forget_ignores_draft",
        f"{STORAGE}/drops.py",
        "            if keeper.handover.names(ledger_id):\n                continue\n",
        "",
        "a tombstone is forgotten, and the draft brings the entries of its ledger back",
    ),
    Mutation(
        "adds_eat_compaction_slot",
        f"{STORAGE}/files/slots.py",
        "kept_free += room - min(room, max(borrowed_bytes, await self._largest(others)))",
        "kept_free += 0",
        "a full disk stays full, because compaction has no room for copies",
    ),
    Mutation(
        "room_of_a_draft_counts_twice",
        f"{STORAGE}/files/slots.py",
        "max(borrowed_bytes, await self._largest(others))",
        "await self._largest(others)",
        "a bookie is read-only while compaction copies on a nearly full device",
    ),
    Mutation(
        "draft_counts_as_use_of_the_device",
        f"{STORAGE}/disk_watch.py",
        "            slots.append(borrowed.slot)\n",
        "            pass\n",
        "a compaction makes a bookie read-only until much less of its device is used",
    ),
    Mutation(
        "draft_of_a_split_source_borrows",
        f"{STORAGE}/compaction/cycle.py",
        "if draft.may_fit(needed_for(source), pieces_of(source)):",
        "if source:",
        "regular files take the room that the rest of a large source needs",
    ),
    Mutation(
        "adds_take_the_last_free_slot",
        f"{STORAGE}/files/slots.py",
        "        needs_room = growth > 0 or kept_free > self._settings.free_bytes_min\n",
        "        needs_room = growth > 0\n",
        "a free slot is taken although it is the only room for copies",
    ),
    Mutation(
        "switch_lists_copies_and_sources",
        f"{STORAGE}/files/handover.py",
        "            return self.switch.sources\n",
        "            return ()\n",
        "the MANIFEST lists files whose slots are free",
    ),
    Mutation(
        "copies_are_listed_before_the_switch",
        f"{STORAGE}/files/handover.py",
        "        return () if self.switch.copies is None else (self.switch.copies,)\n",
        "        return ()\n",
        "the MANIFEST lists copies that are removed when it has no room",
    ),
    Mutation(
        "switch_is_not_taken_back",
        f"{COMPACTION}/cycle.py",
        "            switch.is_due = False\n",
        "",
        "the next MANIFEST makes a switch that compaction has given up",
    ),
    Mutation(
        "keeper_frees_files_that_are_copied",
        f"{STORAGE}/files/keeper.py",
        "        kept = self._health.unknown_files | self.handover.owned\n",
        "        kept = self._health.unknown_files\n",
        "a slot is used again while compaction reads it, and is freed twice",
    ),
    Mutation(
        "copies_of_leaving_files_supersede",
        f"{COMPACTION}/live.py",
        "        is_firm = rival.entry.file_id not in self._weak\n",
        "        is_firm = True\n",
        "two equal copies are dead because of each other",
    ),
    Mutation(
        "copies_in_a_damaged_file_supersede",
        f"{COMPACTION}/cycle.py",
        "        weak = unread | {",
        "        weak = {",
        "a verified copy is dropped because of one in a file that could not be read",
    ),
    Mutation(
        "draft_shares_its_slot",
        f"{STORAGE}/files/keeper.py",
        "        used = (*self._leaving, *self.handover.taken)\n",
        "        used = (*self._leaving,)\n",
        "the next file of the journal is written into the draft",
    ),
    Mutation(
        "damaged_file_is_copied_again_and_again",
        f"{COMPACTION}/cycle.py",
        "                self._withdrawals.add(file_id, self._shared.clock.monotonic_ms())\n",
        "",
        "each compaction reads a damaged file once more",
    ),
    Mutation(
        "damaged_file_is_never_tried_again",
        "bookie_server/core/background/compaction.py",
        "if now_ms < end_ms}",
        "if end_ms}",
        "after an error of the device that has passed, a file stays until the next start",
    ),
    Mutation(
        "damaged_file_is_tried_in_equal_pauses",
        "bookie_server/core/background/compaction.py",
        "        pause_ms = min(2 * last_ms, RETRY_PAUSE_MS_MAX)\n",
        "        pause_ms = RETRY_PAUSE_MS\n",
        "a file that stays damaged is read every ten minutes forever",
    ),
    Mutation(
        "pauses_of_freed_files_are_kept",
        "bookie_server/core/background/compaction.py",
        "        for file_id in self._pauses.keys() - file_ids:\n"
        "            del self._pauses[file_id]\n",
        "",
        "the memory for damaged files grows without a bound",
    ),
    Mutation(
        "deleted_in_the_active_file_counts_as_live",
        f"{STORAGE}/files/held.py",
        "        if not is_explained:\n",
        "        if False:\n",
        "a file whose entries were dropped before its index was written is never compacted",
    ),
    Mutation(
        "rebuilt_index_counts_deleted_entries",
        f"{STORAGE}/files/held.py",
        "            if file.rebuilt is not None:\n                sizes",
        "            if False:\n                sizes",
        "deleted entries count as live after an index was rebuilt",
    ),
    Mutation(
        "lost_copies_are_not_noticed",
        f"{STORAGE}/files/finished_scan.py",
        "gap.record is None and holds(gap.sequence, gap.offset)]",
        "gap.record is None and gap.sequence <= self.entry.last_sequence]",
        "a file of copies that lost a record is not in doubt, and the entry is absent",
    ),
    Mutation(
        "compaction_ignores_its_rate",
        f"{COMPACTION}/pace.py",
        "while pause_ms > 0 and not self._is_urgent and not self.must_end:",
        "while False:",
        "compaction takes the whole disk",
    ),
    Mutation(
        "full_disk_is_compacted_slowly",
        f"{COMPACTION}/pace.py",
        "while pause_ms > 0 and not self._is_urgent and not self.must_end:",
        "while pause_ms > 0 and not self.must_end:",
        "a full bookie refuses adds for minutes longer than needed",
    ),
    Mutation(
        "removed_free_slot_ends_the_bookie",
        f"{STORAGE}/files/slots.py",
        "        except MissingFileError:\n            return 0",
        "        except ZeroDivisionError:\n            return 0",
        "a bookie does not start because an unused file was removed",
    ),
    Mutation(
        "device_above_its_threshold_is_compacted_slowly",
        f"{COMPACTION}/pace.py",
        "self._frees_room and self._shared.health.is_short_of_room",
        "self._frees_room and not self._shared.health.is_writable",
        "a full bookie refuses adds for minutes longer than needed",
    ),
    Mutation(
        "freed_file_stays_in_doubt",
        f"{STORAGE}/files/keeper.py",
        "            self._health.files_in_doubt.discard(file.entry.file_id)\n",
        "",
        "no entry is absent any more, until the next start",
    ),
    Mutation(
        "rebuild_leaves_a_freed_file_in_doubt",
        f"{STORAGE}/files/index_rebuilds.py",
        "            if file_id not in self._finished:\n",
        "            if False:\n",
        "no entry is absent any more, until the next start",
    ),
    Mutation(
        "freed_file_is_counted_again",
        f"{STORAGE}/files/held.py",
        "                return\n        for _ in self._count(file):\n            yield\n"
        "            if file.entry.file_id not in self._files:\n                return\n",
        "                return\n        yield from self._count(file)\n",
        "readers look for entries in a file that was freed",
    ),
    Mutation(
        "indexes_of_others_are_read_like_those_of_clients",
        f"{COMPACTION}/live.py",
        "data = await self._pace.read(file.handle, file.block_offset(number), BLOCK_SIZE)",
        "data = await file.handle.read(file.block_offset(number), BLOCK_SIZE)",
        "clients wait for reads of compaction, which do not count for its rate",
    ),
]
