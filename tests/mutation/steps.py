"""Mistakes in quorums, bounds and keys, in the order of steps, and in cleaning up."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

PROTOCOL = "ledgerlog_spark/protocol"
CORE = "bookie_server/core"
STORAGE = "bookie_server/storage"

_LEDGERS = [
    Mutation(
        "striped_run_lacks_one_write_set",
        f"{PROTOCOL}/ledger/quorum.py",
        "for step in range(min(entries, size))",
        "for step in range(min(entries, size - 1))",
        "a striped run is confirmed although one of its entries is on too few bookies",
    ),
    Mutation(
        "window_is_one_larger",
        f"{PROTOCOL}/ledger/write/add_pipeline.py",
        "self.entries_in_flight < self._window.entries_max",
        "self.entries_in_flight <= self._window.entries_max",
        "one run more than the window is on its way",
    ),
    Mutation(
        "replaced_bookie_still_answers",
        f"{PROTOCOL}/ledger/write/add_pipeline.py",
        "        pending.acked &= ~(1 << index)\n        self._drop_request(pending, index)\n",
        "        pending.acked &= ~(1 << index)\n",
        "the answer of a bookie that was replaced counts for the one in its place",
    ),
    Mutation(
        "changes_are_not_counted",
        f"{PROTOCOL}/ledger/write/writer.py",
        "        self.ensemble_changes += 1\n",
        "",
        "a ledger changes its ensemble without end",
    ),
    Mutation(
        "quorum_timer_runs_once",
        f"{PROTOCOL}/ledger/write/writer.py",
        "            return [*self._arm_quorum_timer()]\n",
        "            return []\n",
        "the last add waits for its quorum forever",
    ),
    Mutation(
        "rounds_without_a_spare_are_not_counted",
        f"{PROTOCOL}/ledger/write/ensemble_change.py",
        "self.rounds[index] = self.rounds.get(index, 0) + 1",
        "self.rounds[index] = 1",
        "a writer without a spare bookie looks for one forever",
    ),
    Mutation(
        "failures_of_an_attempt_stay",
        f"{PROTOCOL}/ledger/recover/recovery.py",
        "        self._failed.forget_indexes()\n",
        "",
        "the next attempt replaces bookies that did not fail it",
    ),
    Mutation(
        "unknown_close_of_an_attempt_is_forgotten",
        f"{PROTOCOL}/ledger/recover/recovery.py",
        "self._may_have_written |= not result.is_definite",
        "self._may_have_written = not result.is_definite",
        "a later attempt denies a write that an earlier attempt may have made",
    ),
    Mutation(
        "recovery_compares_no_password",
        f"{PROTOCOL}/ledger/recover/recovery.py",
        "if metadata.has_password and metadata.password != self._password:",
        "if False:",
        "anybody seals a ledger",
    ),
    Mutation(
        "busy_bookies_end_an_attempt",
        f"{PROTOCOL}/ledger/recover/tail.py",
        "if pipeline is None or self._is_replacing or self._busy.is_waiting:",
        "if pipeline is None or self._is_replacing:",
        "a recovery fails although requests to busy bookies still have to be repeated",
    ),
    Mutation(
        "reload_counts_for_later_entries",
        f"{PROTOCOL}/ledger/read/reader.py",
        "            self._is_confirmed_by_reload = self._is_absence_confirmed = False\n"
        "            effects.append",
        "            effects.append",
        "the reload for one entry counts for the entries after it",
    ),
    Mutation(
        "rest_of_a_batch_lacks_one",
        f"{PROTOCOL}/ledger/read/reader.py",
        "            self._put_back(batch, batch.next_entry_id)\n",
        "            self._put_back(batch, batch.next_entry_id + 1)\n",
        "the entry after a short batch is never requested",
    ),
    Mutation(
        "silence_is_an_answer_about_the_lac",
        f"{PROTOCOL}/ledger/read/lac.py",
        "if event.code is Code.OK or event.code.is_absent:",
        "if event.code is not Code.BUSY:",
        "a LAC read without an answer reports a LAC",
    ),
    Mutation(
        "record_key_ignores_the_token",
        f"{PROTOCOL}/ledger/metadata_update.py",
        '"length", "token")',
        '"length")',
        "another client's record with the same contents counts as ours",
    ),
]

_KEYS = [
    Mutation(
        "add_takes_any_key",
        f"{CORE}/ledger_gate.py",
        "if state is not None and not key_fits(state, request.master_key):",
        "if False:",
        "a client without the password writes to a ledger",
    ),
    Mutation(
        "fence_takes_any_key",
        f"{CORE}/ledger_gate.py",
        "    if state is not None and not key_fits(state, key):\n"
        "        return Code.UNAUTHORIZED\n",
        "",
        "a client without the password fences a ledger",
    ),
    Mutation(
        "lac_takes_any_key",
        f"{STORAGE}/lacs.py",
        "        if state is not None and not key_fits(state, master_key):\n"
        "            on_done(Code.UNAUTHORIZED)\n            return\n",
        "",
        "a client without the password moves the LAC of a ledger",
    ),
    Mutation(
        "told_lac_takes_any_key",
        f"{STORAGE}/lacs.py",
        "state.master_key is not None and key_fits(state, master_key):",
        "state.master_key is not None:",
        "a client without the password moves the LAC that readers get",
    ),
]

_ORDER = [
    Mutation(
        "lac_is_answered_before_it_is_durable",
        f"{STORAGE}/lacs.py",
        "        record.on_done = on_done\n"
        "        state.last_ticket = self._journal.submit(record)\n"
        "        self._raise(state, lac)\n",
        "        state.last_ticket = self._journal.submit(record)\n"
        "        self._raise(state, lac)\n"
        "        on_done(Code.OK)\n",
        "an announced LAC that was acknowledged falls with the power",
    ),
    Mutation(
        "second_drop_is_answered_at_once",
        f"{STORAGE}/drops.py",
        "            self._journal.when_durable(state.drop_ticket, on_done)\n",
        "            on_done(Code.OK)\n",
        "a drop is reported as done that a power loss takes back",
    ),
    Mutation(
        "tombstone_is_forgotten_before_it_is_durable",
        f"{CORE}/ledger_gate.py",
        "return state.is_dropped and is_settled and now_s",
        "return state.is_dropped and now_s",
        "a ledger that is being dropped is forgotten",
    ),
    Mutation(
        "highest_dropped_ledger_is_not_kept",
        f"{STORAGE}/files/keeper.py",
        "            highest_dropped_ledger_id=self._health.highest_dropped_ledger_id,\n",
        "",
        "after a start a ledger that was dropped and forgotten takes adds",
    ),
    Mutation(
        "highest_dropped_ledger_needs_no_check",
        f"{STORAGE}/shared.py",
        "state.is_unverified = ledger_id <= self.health.highest_dropped_ledger_id",
        "state.is_unverified = ledger_id < self.health.highest_dropped_ledger_id",
        "the highest ledger that was dropped and forgotten takes adds",
    ),
    Mutation(
        "settled_metadata_check_stays",
        f"{STORAGE}/adds.py",
        "for decided in self._checks.pop(ledger_id):",
        "for decided in self._checks[ledger_id]:",
        "the next add that has to wait for a check waits for one that is over",
    ),
    Mutation(
        "lost_adds_stay_in_flight",
        f"{STORAGE}/ledger_storage.py",
        "            if record.kind is JournalRecordKind.RUN:\n"
        "                self._health.in_flight_bytes -= record.body_size\n"
        "            self._answer",
        "            self._answer",
        "bytes of adds whose write failed count forever",
    ),
    Mutation(
        "files_are_cut_before_the_manifest",
        f"{STORAGE}/files/keeper.py",
        "            await write_header(file.handle, file.entry)\n",
        "            await write_header(file.handle, file.entry)\n"
        "            await self._cut(file)\n",
        "a power loss between the two makes a whole file one in doubt",
    ),
    Mutation(
        "new_slot_has_no_durable_name",
        f"{STORAGE}/files/slots.py",
        "            await write_header(handle, entry)\n"
        "            await self._files.sync_directory()\n",
        "            await write_header(handle, entry)\n",
        "the MANIFEST names a file that a power loss takes away",
    ),
    Mutation(
        "state_file_is_named_before_it_is_synced",
        f"{STORAGE}/files/manifest.py",
        "                await file.datasync()\n            finally:",
        "            finally:",
        "the MANIFEST names states that a power loss takes away",
    ),
    Mutation(
        "index_is_not_synced",
        f"{STORAGE}/files/keeper.py",
        "        await full.handle.datasync()\n        self._shared.counters.journal_syncs += 1\n",
        "        self._shared.counters.journal_syncs += 1\n",
        "after a power loss, a finished file has no index, and the index has to be rebuilt",
        equivalent="write_header syncs the same file before the commit of the first MANIFEST that "
        "lists it as finished, and a boot trusts only the MANIFEST; before that "
        "commit, a roll may continue only in a file that an earlier commit listed",
    ),
    Mutation(
        "boot_uses_the_last_sequence_again",
        f"{STORAGE}/boot.py",
        "self.shared.sequences.next_sequence = largest_sequence(scans, seen) + 1",
        "self.shared.sequences.next_sequence = largest_sequence(scans, seen)",
        "two records have one sequence",
    ),
    Mutation(
        "doubt_ends_with_the_process",
        f"{STORAGE}/boot.py",
        "        if entry.has_damage:\n"
        '            file.entry = self._lost(entry, "has lost records")\n        try',
        "        try",
        "a file that an older release marked as damaged begins no doubt",
    ),
    Mutation(
        "freed_file_does_not_wait_for_readers",
        f"{STORAGE}/files/keeper.py",
        "if handle is None or not handle.pins or self._is_closing:",
        "if True:",
        "a file is closed under a reading",
    ),
    Mutation(
        "batch_goes_beyond_its_piece",
        f"{STORAGE}/reading/reads.py",
        "following = min(best.last - entry_id, following_max)",
        "following = min(best.last - entry_id + 1, following_max)",
        "a batch serves the entry after a piece from a record that was overwritten",
    ),
    Mutation(
        "recovery_read_does_not_wait",
        f"{STORAGE}/reading/answers.py",
        "self._journal.when_durable(barrier_of(state), then)",
        "then(Code.OK)",
        "a recovery read denies an entry that is being synced",
    ),
    Mutation(
        "collector_trusts_a_listing",
        "bookie_server/service/collector.py",
        "return await self._listing.deleted(unlisted)",
        "return unlisted",
        "an old listing deletes a ledger that was just created",
    ),
]

MUTATIONS = [*_LEDGERS, *_KEYS, *_ORDER]
