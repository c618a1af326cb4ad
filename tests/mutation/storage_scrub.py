"""Mistakes in the scrub of a bookie's files."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

SCRUB = "bookie_server/storage/scrub"
CORE = "bookie_server/core/background/scrub.py"

MUTATIONS = [
    Mutation(
        "scrub_reads_cache",
        f"{SCRUB}/device_reads.py",
        "        await self._handle.drop_cache(Priority.BACKGROUND)\n",
        "        pass\n",
        "damage of the device is hidden by the page cache until the computer starts again",
    ),
    Mutation(
        "scrub_ignores_compaction",
        f"{SCRUB}/file_check.py",
        "if file_id in self._keeper.handover.owned:\n",
        "if not file_id:\n",
        "the scrub and compaction work on the same file",
    ),
    Mutation(
        "scrub_begins_files_of_compaction",
        f"{SCRUB}/scrubber.py",
        "        return is_taken or self._reader.rebuilds.is_running(file)\n",
        "        return self._reader.rebuilds.is_running(file)\n",
        "the scrub drops the cache of a file that compaction copies, and skips the file",
    ),
    Mutation(
        "scrub_leaves_out_files_of_compaction",
        f"{SCRUB}/scrubber.py",
        "                left.rotate(-1)\n                continue\n",
        "                left.popleft()\n                busy = 0\n                continue\n",
        "a file that stays after a compaction is not verified for a week",
    ),
    Mutation(
        "scrub_does_not_wait_for_a_rebuild",
        f"{SCRUB}/scrubber.py",
        "        return is_taken or self._reader.rebuilds.is_running(file)\n",
        "        return is_taken\n",
        "the attempts of a file end before its index is rebuilt, and its records are not verified",
    ),
    Mutation(
        "scrub_pins_nothing",
        f"{SCRUB}/file_check.py",
        "                pins.add(self._file.handle)\n",
        "",
        "the slot of a file gets another file while the scrub reads it",
    ),
    Mutation(
        "scrub_skips_bodies",
        f"{SCRUB}/file_check.py",
        "                    check_chunks(record, number, data)\n",
        "                    pass\n",
        "damaged entries are found only by their readers",
    ),
    Mutation(
        "scrub_passes_over_damaged_headers",
        f"{SCRUB}/file_check.py",
        "                await self._report([(p.ledger_id, p.piece()) for p in "
        "pointers.before(end)])\n",
        "                pointers.before(end)\n",
        "entries whose record has a damaged header are not repaired",
    ),
    Mutation(
        "scrub_reports_only_the_first_of_several_headers",
        f"{SCRUB}/file_check.py",
        "            by_record.setdefault((piece.target, ledger_id), []).append(piece)\n",
        "            by_record.setdefault((found[0][1].target, ledger_id), []).append(piece)\n",
        "a cached header hides the damage from the repair, which counts as a repeat",
    ),
    Mutation(
        "scrub_reads_bad_pages_after_a_stop",
        f"{SCRUB}/device_reads.py",
        "        if self._pace.must_end:\n",
        "        if not self._pace:\n",
        "the stop of a bookie waits for minutes until a failing disk has tried all pages",
    ),
    Mutation(
        "scrub_passes_over_wrong_pointers",
        f"{SCRUB}/file_check.py",
        "        return bool(wrong) and self._file.rebuilt is None\n",
        "        return False\n",
        "entries stay unreadable, although their records are intact",
    ),
    Mutation(
        "scrub_ignores_pointers_after_the_last_record",
        f"{SCRUB}/file_check.py",
        "        is_wrong = self._is_wrong(pointers.rest())\n",
        "        is_wrong = self._is_wrong(pointers.rest()[:0])\n",
        "entries stay unreadable, although their records are intact",
    ),
    Mutation(
        "scrub_reports_replaced_entries",
        f"{SCRUB}/file_check.py",
        "                if not self._is_replaced(ledger_id, each, piece.origin)\n",
        "",
        "each scrub repairs the same entries again",
    ),
    Mutation(
        "scrub_reports_dead_entries",
        f"{SCRUB}/file_check.py",
        "            live = await self._live.live_parts(self._file, ledger_id, pieces)\n",
        "            live = pieces\n",
        "deleted entries are fetched from other bookies, and come back",
    ),
    Mutation(
        "scrub_reports_whole_records",
        f"{SCRUB}/file_check.py",
        "        if not chunks.isdisjoint(touched):\n",
        "        if chunks:\n",
        "intact entries are fetched from other bookies",
    ),
    Mutation(
        "scrub_gives_up_at_a_bad_sector",
        f"{SCRUB}/device_reads.py",
        "            data = await self._by_page(offset, size)\n",
        "            raise\n",
        "one bad sector leaves the rest of its file unverified",
    ),
    Mutation(
        "scrub_reads_a_failed_device_to_the_end",
        f"{SCRUB}/device_reads.py",
        "                if self._unreadable > UNREADABLE_PAGES_MAX:\n                    raise\n",
        "",
        "all entries of a device that was unplugged are fetched from other bookies",
    ),
    Mutation(
        "scrub_keeps_a_cached_header",
        f"{SCRUB}/scrubber.py",
        "damage from the add that replaces an entry.\n"
        "        self._reader.forget_record(file, offset)\n",
        "damage from the add that replaces an entry.\n",
        "the repair of an entry counts as a repeat, and the next start loses the entry again",
    ),
    Mutation(
        "scrub_takes_all_it_can",
        f"{SCRUB}/scrubber.py",
        "        self._pace = Pace(shared, shared.settings.scrub_bytes_per_s)\n",
        "        self._pace = Pace(shared, shared.settings.scrub_bytes_per_s, frees_room=True)\n",
        "the scrub has no limit while the disk is full",
    ),
    Mutation(
        "scrub_forgets_its_position",
        f"{SCRUB}/scrubber.py",
        "            await keep_position(self._shared.files, position)\n",
        "            pass\n",
        "a bookie that restarts each day never verifies its newer files",
    ),
    Mutation(
        "scrub_ends_the_storage_without_room_for_its_position",
        f"{SCRUB}/kept_position.py",
        '    """Store the position. If only a part is written, the file counts as damaged."""\n'
        "    with contextlib.suppress(StorageError):\n",
        '    """Store the position. If only a part is written, the file counts as damaged."""\n'
        "    with contextlib.suppress(ZeroDivisionError):\n",
        "a bookie whose disk is full ends",
    ),
    Mutation(
        "recount_of_a_file_of_compaction",
        f"{SCRUB}/live_recount.py",
        "        return file_id in self._keeper.finished and not is_taken and not in_doubt\n",
        "        return True\n",
        "a file is counted while compaction removes it",
    ),
    Mutation(
        "recount_ignores_tombstones",
        f"{SCRUB}/live_recount.py",
        "                    if total.origin_newest > tombstone_of(total.ledger_id)\n",
        "                    if total.pieces\n",
        "each scrub counts all files with deleted entries again",
    ),
    Mutation(
        "recount_ignores_sums",
        f"{SCRUB}/live_recount.py",
        "        yield file.live_bytes == live.total()\n",
        "        yield True\n",
        "a wrong number of live bytes stays, and the file is never compacted",
    ),
    Mutation(
        "position_beyond_an_unread_file",
        CORE,
        "        return replace(self, done=min(left, default=self.upto + 1) - 1)\n",
        "        return replace(self, done=max(left, default=self.upto + 1) - 1)\n",
        "after a restart, a file that was put off is not verified",
    ),
    Mutation(
        "scrub_has_no_end",
        CORE,
        "        return {file_id for file_id in file_ids if self.done < file_id <= self.upto}\n",
        "        return {file_id for file_id in file_ids if self.done < file_id}\n",
        "while a bookie writes faster than it scrubs, no pass ends, and the old files are not read",
    ),
    Mutation(
        "scrub_is_due_after_its_end",
        CORE,
        "        return self.is_open or not 0 <= now_ms - self.began_ms < interval_ms\n",
        "        return self.is_open or not 0 <= now_ms - self.ended_ms < interval_ms\n",
        "slow scrubs are rarer than the setting",
    ),
    Mutation(
        "damaged_entries_without_a_limit",
        CORE,
        "if entry_id not in entries][:room]\n",
        "if entry_id not in entries]\n",
        "a failing disk fills the memory",
    ),
    Mutation(
        "damage_is_not_tried_again",
        "bookie_server/service/repair/damaged.py",
        "        if not is_over and tries < TRIES_MAX:\n",
        "        if False:\n",
        "damage stays until the next scrub, because another bookie was away for a moment",
    ),
    Mutation(
        "damage_is_tried_for_ever",
        "bookie_server/service/repair/damaged.py",
        "        if not is_over and tries < TRIES_MAX:\n",
        "        if not is_over:\n",
        "a ledger that no bookie can repair is read again and again",
    ),
    Mutation(
        "damage_recovers_an_open_ledger",
        "bookie_server/service/repair/repairs.py",
        "            report = await repair_ledger(self._parts, ledger_id, doubt, has_state=True)\n"
        "            outcome, now_ms",
        "            report = await self._repair(ledger_id, doubt, has_state=True)\n"
        "            outcome, now_ms",
        "the ledger of a writer that is idle is closed, because an entry is damaged",
    ),
    Mutation(
        "damage_is_repaired_before_ledgers_that_are_asked_for",
        "bookie_server/service/repair/repairs.py",
        "await self._repair_asked(doubt, ASKED_IN_TURN_MAX)\n            if self._parts",
        "if self._parts",
        "clients wait for hours until a thousand ledgers with damage are repaired",
    ),
    Mutation(
        "damage_is_taken_without_room",
        "bookie_server/service/repair/repairs.py",
        "        if self._damaged.has_room:\n",
        "        if self._damaged:\n",
        "damaged ledgers fill the memory while the other bookies are away",
    ),
]
