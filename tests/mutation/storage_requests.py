"""Mistakes in the requests to a bookie's storage: adds, reads, drops, LACs, and in compaction."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

STORAGE = "bookie_server/storage"
COMPACTION = f"{STORAGE}/compaction"

_REQUESTS = [
    Mutation(
        "add_sets_the_last_accepted_id",
        f"{STORAGE}/adds.py",
        "        state.last_accepted_id = max(state.last_accepted_id, ids[-1])\n",
        "        state.last_accepted_id = ids[-1]\n",
        "a repeated add is stored twice",
    ),
    Mutation(
        "add_after_its_metadata_check_is_counted_for_ever",
        f"{STORAGE}/adds.py",
        "        def decided(standing: Standing) -> None:\n"
        "            self._health.in_flight_bytes -= len(request.body)\n",
        "        def decided(standing: Standing) -> None:\n",
        "a bookie refuses adds as if too many were on their way",
    ),
    Mutation(
        "add_needs_only_its_own_room",
        f"{STORAGE}/adds.py",
        "            2 * (len(request.body) + CONTROL_RECORD_SIZE) + 12 * len(request.lengths)\n",
        "            len(request.body)\n",
        "a recovery add is accepted on a full disk, and there is no room for its record",
    ),
    Mutation(
        "add_joins_no_metadata_check",
        f"{STORAGE}/adds.py",
        "            waiting.append(decided)\n            return\n",
        "            waiting.append(decided)\n",
        "each add sends a request to the store",
    ),
    Mutation(
        "add_that_differs_is_a_repeat_of_a_recovery",
        f"{STORAGE}/reading/reads.py",
        "            if stored is None:\n                is_repeated = False\n",
        "            if stored is None:\n                is_repeated = request.is_recovery\n",
        "an entry that recovery writes back is acknowledged and not stored",
    ),
    Mutation(
        "lac_of_a_writer_falls",
        f"{STORAGE}/lacs.py",
        "        if lac > state.explicit_lac:\n",
        "        if lac != state.explicit_lac:\n",
        "a reader sees a last add confirmed that falls",
    ),
    Mutation(
        "lac_is_announced_with_any_key",
        f"{STORAGE}/lacs.py",
        "if state is not None and state.master_key is not None and key_fits(state, master_key):",
        "if state is not None and state.master_key is not None:",
        "anybody can move the last add confirmed of a ledger",
    ),
    Mutation(
        "lac_needs_no_key",
        f"{STORAGE}/lacs.py",
        "        if state is not None and not key_fits(state, master_key):\n",
        "        if state is None and not master_key:\n",
        "anybody can write the last add confirmed of a ledger",
    ),
    Mutation(
        "drop_accepts_repeats",
        f"{STORAGE}/drops.py",
        "        state.last_accepted_id = -1\n",
        "",
        "a ledger that was dropped is dropped again and again",
    ),
    Mutation(
        "drop_of_a_dropped_ledger_is_durable_at_once",
        f"{STORAGE}/drops.py",
        "            self._journal.when_durable(state.drop_ticket, on_done)\n            return\n",
        "            on_done(Code.OK)\n            return\n",
        "a deletion is acknowledged before it is durable",
    ),
    Mutation(
        "forget_ignores_doubt",
        f"{STORAGE}/drops.py",
        "        if keeper.is_in_doubt:\n            return 0\n",
        "",
        "a tombstone is forgotten, and a damaged file brings its entries back",
    ),
    Mutation(
        "forget_lowers_the_line",
        f"{STORAGE}/drops.py",
        "health.highest_dropped_ledger_id = max(health.highest_dropped_ledger_id, ledger_id)",
        "health.highest_dropped_ledger_id = ledger_id",
        "the fence of a ledger that was forgotten earlier is lost",
    ),
    Mutation(
        "forget_looks_at_old_files_only",
        f"{STORAGE}/drops.py",
        "newer = [file for file in keeper.finished if file.entry.file_id not in looked_at]",
        "newer = [file for file in keeper.finished if file.entry.file_id in looked_at]",
        "a tombstone is forgotten although a file that was just finished has its records",
    ),
    Mutation(
        "forgotten_state_is_not_noted",
        f"{STORAGE}/drops.py",
        "            del self._shared.states[ledger_id]\n"
        "            self._shared.states.changed.add(ledger_id)\n",
        "            del self._shared.states[ledger_id]\n",
        "a state that was forgotten comes back with the next start",
    ),
    Mutation(
        "large_first_entry_is_never_read",
        f"{STORAGE}/reading/reads.py",
        "        if budget < 0 and not (is_first and count == 0):\n",
        "        if budget < 0:\n",
        "an entry that is larger than an answer is never read by a batch",
    ),
    Mutation(
        "batch_ignores_its_own_head",
        f"{STORAGE}/reading/reads.py",
        "        budget = request.size_bytes_max - BATCH_HEAD_SIZE_BYTES\n"
        "        entry_id = request.first_entry_id\n",
        "        budget = request.size_bytes_max\n        entry_id = request.first_entry_id\n",
        "an answer is larger than its reader allows",
    ),
    Mutation(
        "freed_file_is_damage",
        f"{STORAGE}/reading/reads.py",
        "        if self._keeper.has_file(identity.file_id):\n",
        "        if True:\n",
        "a read of a file that was freed is an error",
    ),
    Mutation(
        "list_of_a_bookie_in_doubt_is_complete",
        f"{STORAGE}/reading/answers.py",
        "            await compared\n        if self._denials.code(ledger_id) is Code.IO_ERROR:\n",
        "            await compared\n        if False:\n",
        "a list of entries denies entries of a damaged file",
    ),
    Mutation(
        "list_has_dropped_entries_of_the_active_file",
        f"{STORAGE}/reading/reads.py",
        "spans.extend((p.first, p.last) for p in part if p.origin > tombstone)",
        "spans.extend((p.first, p.last) for p in part)",
        "deleted entries are listed as held",
    ),
    Mutation(
        "recent_bodies_are_kept_for_ever",
        f"{STORAGE}/reading/recent.py",
        "            self._size_bytes -= oldest.body_size + RECORD_COST_BYTES\n"
        "            oldest.body = None\n",
        "            self._size_bytes -= oldest.body_size + RECORD_COST_BYTES\n",
        "the memory of a bookie grows with the adds",
    ),
    Mutation(
        "slices_before_a_damaged_one_are_lost",
        f"{STORAGE}/reading/reads.py",
        "            if not slices:\n                raise\n",
        "            raise\n",
        "one damaged entry makes the readable entries before it unreadable",
    ),
]

_DISK = [
    Mutation(
        "disk_watch_forgets_a_call_during_a_measurement",
        f"{STORAGE}/disk_watch.py",
        "        self._is_due = True\n        if not self._is_measuring",
        "        self._is_due = not self._is_measuring\n        if not self._is_measuring",
        "the file that was allocated during a measurement is not counted",
    ),
    Mutation(
        "disk_watch_failure_is_silent",
        f"{STORAGE}/disk_watch.py",
        "            self._on_failed(error)\n",
        "            pass\n",
        "a bookie whose device is lost stays registered",
    ),
    Mutation(
        "disk_watch_measures_after_its_close",
        f"{STORAGE}/disk_watch.py",
        "        if self._is_measuring:\n            self._idle = self._shared.tasks.future()\n"
        "            await self._idle\n",
        "",
        "a bookie that has stopped uses its directory",
    ),
    Mutation(
        "disk_watch_tells_nobody",
        f"{STORAGE}/disk_watch.py",
        "        if self.level is not before:\n            self._on_level()\n",
        "",
        "a full bookie stays among those that take new ledgers",
    ),
]

_COMPACTION = [
    Mutation(
        "copying_trusts_the_index",
        f"{COMPACTION}/copying.py",
        "        self._check(record, stretches)\n",
        "",
        "an index that points to another record copies the wrong entries",
    ),
    Mutation(
        "copying_of_a_damaged_file_is_whole",
        f"{COMPACTION}/copying.py",
        "        if self.source.entry.file_id in self._shared.health.files_in_doubt:\n"
        "            return CopyOutcome.UNREADABLE\n",
        "",
        "a file whose index is damaged is freed after the readable part is copied",
    ),
    Mutation(
        "switch_frees_a_file_in_doubt",
        f"{COMPACTION}/cycle.py",
        "switch.sources = tuple(file for file in copied if file.entry.file_id not in doubts)",
        "switch.sources = tuple(copied)",
        "a damaged file is freed with entries that were not copied",
    ),
    Mutation(
        "draft_is_used_before_its_id_is_durable",
        f"{COMPACTION}/cycle.py",
        "        await keeper.commit_soon()\n"
        "        if self._shared.store.current.next_file_id > file_id and not",
        "        if not",
        "after a crash, another file gets the id of the draft",
    ),
    Mutation(
        "owned_files_stay_owned",
        f"{COMPACTION}/cycle.py",
        "        self._handover.owned.clear()\n",
        "",
        "files that compaction has copied are never freed",
    ),
    Mutation(
        "slot_of_a_draft_stays_taken",
        f"{COMPACTION}/cycle.py",
        "        self._handover.taken.discard(draft.file.entry.slot)\n",
        "",
        "a slot that compaction has used is never used again",
    ),
    Mutation(
        "freed_file_is_copied",
        f"{COMPACTION}/cycle.py",
        "            if file_id not in self._keeper.finished:\n",
        "            if file_id < 0:\n",
        "compaction reads a slot that has another file",
    ),
    Mutation(
        "file_in_doubt_supersedes",
        f"{COMPACTION}/live.py",
        "            if file is source or file.entry.file_id in doubts:\n",
        "            if file is source:\n",
        "the only readable copy of an entry is dead because of a damaged file",
    ),
    Mutation(
        "rival_hides_older_and_newer_alike",
        f"{COMPACTION}/live.py",
        "if other.origin > piece.origin or (is_firm and other.origin == piece.origin):",
        "if other.origin != piece.origin or is_firm:",
        "the newest copy of an entry is dead because of an older one",
    ),
    Mutation(
        "rival_is_apart_when_it_touches",
        f"{COMPACTION}/live.py",
        "total.first_entry_id > pieces[-1].last or total.last_entry_id < pieces[0].first",
        "total.first_entry_id >= pieces[-1].last or total.last_entry_id <= pieces[0].first",
        "an entry that is stored again is copied forever",
    ),
    Mutation(
        "tombstone_of_a_copied_entry_is_ignored",
        f"{COMPACTION}/live.py",
        "        live = [piece for piece in pieces if piece.origin > tombstone]\n",
        "        live = list(pieces)\n",
        "deleted entries are copied",
        equivalent="the copying compares each record with the current tombstone again",
    ),
    Mutation(
        "short_disk_requests_what_runs",
        f"{COMPACTION}/compactor.py",
        "        if settings.short_percent and not is_early and not self._is_running:\n",
        "        if settings.short_percent and not is_early:\n",
        "each measurement of a full device requests one more compaction",
    ),
    Mutation(
        "stop_waits_for_the_rate_of_compaction",
        f"{COMPACTION}/pace.py",
        "not self._is_urgent and not self.must_end:\n",
        "not self._is_urgent:\n",
        "a bookie does not stop for minutes",
    ),
    Mutation(
        "smaller_request_replaces_a_larger_one",
        f"{COMPACTION}/compactor.py",
        "        self._wanted = max(self._wanted, live_percent)\n",
        "        self._wanted = live_percent\n",
        "a full disk waits for the next compaction",
    ),
    Mutation(
        "short_disk_is_compacted_without_a_pause",
        f"{COMPACTION}/compactor.py",
        "        if settings.short_percent and not is_early and not self._is_running:\n",
        "        if settings.short_percent and not self._is_running:\n",
        "a full bookie looks for files to compact all the time",
    ),
    Mutation(
        "draft_has_room_for_one_more",
        f"{COMPACTION}/draft.py",
        "            self.may_fit(size, pieces)\n",
        "            self.may_fit(0, pieces)\n",
        "copies are larger than their file",
    ),
]

MUTATIONS = [*_REQUESTS, *_DISK, *_COMPACTION]
