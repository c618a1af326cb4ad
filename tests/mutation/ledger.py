"""Mistakes in the machines of one ledger: writing, recovering, reading."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

PROTOCOL = "ledgerlog_spark/protocol"

_WRITER = [
    Mutation(
        "writer_ignores_fence",
        f"{PROTOCOL}/ledger/write/settings.py",
        "    Code.FENCED: m.Failure.FENCED,\n",
        "",
        "a fenced writer replaces the bookies that fenced it, and continues",
    ),
    Mutation(
        "writer_changes_without_pause",
        f"{PROTOCOL}/ledger/write/writer.py",
        "        self._pipeline.is_paused = True\n",
        "",
        "runs are confirmed between a failure and the new ensemble",
    ),
    Mutation(
        "writer_never_resumes",
        f"{PROTOCOL}/ledger/write/writer.py",
        "        self._pipeline.is_paused = False\n",
        "",
        "nothing is confirmed after the first failure",
    ),
    Mutation(
        "writer_resumes_without_confirming",
        f"{PROTOCOL}/ledger/write/writer.py",
        """        self._pipeline.is_paused = False
        return [*self._pipeline.confirm()]""",
        """        self._pipeline.is_paused = False
        return []""",
        "answers that arrived during a change wait for the next answer, which may never come",
    ),
    Mutation(
        "writer_fragment_begins_at_lac",
        f"{PROTOCOL}/ledger/write/writer.py",
        "return self._pipeline.last_add_confirmed + 1",
        "return max(0, self._pipeline.last_add_confirmed)",
        "the last confirmed entry belongs to bookies that may not have it",
    ),
    Mutation(
        "writer_forgets_failures_during_change",
        f"{PROTOCOL}/ledger/write/writer.py",
        """            if self._absences.others:
                return [*effects, *self._begin_change()]
""",
        "",
        "a bookie that failed during a change is never replaced",
    ),
    Mutation(
        "writer_waits_for_no_timer",
        f"{PROTOCOL}/ledger/write/writer.py",
        """        return [m.StartTimer(self._retry_timer, delay_ms)]
""",
        """        return []
""",
        "a writer without a spare bookie never looks again",
    ),
    Mutation(
        "writer_quorum_timer_never_expires",
        f"{PROTOCOL}/ledger/write/writer.py",
        "if oldest is not None and oldest == self._oldest_at_quorum_timer:",
        "if oldest is not None and oldest != self._oldest_at_quorum_timer:",
        "an add without a quorum waits forever, and an add with a quorum fails",
    ),
    Mutation(
        "writer_close_over_recovery",
        f"{PROTOCOL}/ledger/write/ensemble_change.py",
        """        if current.state is LedgerState.IN_RECOVERY:
            return Refusal(Failure.FENCED)
        if current.state is LedgerState.CLOSED:
            same""",
        """        if current.state is LedgerState.CLOSED:
            same""",
        "a writer closes a ledger that is being recovered, at its own end",
    ),
    Mutation(
        "writer_close_accepts_any_end",
        f"{PROTOCOL}/ledger/write/ensemble_change.py",
        "return Refusal(None if same else Failure.CLOSED)",
        "return Refusal(None)",
        "a close reports success although recovery closed at another entry",
    ),
    Mutation(
        "writer_close_keeps_pending_runs",
        f"{PROTOCOL}/ledger/write/writer.py",
        "        withdrawn = self._pipeline.withdraw()\n",
        "        withdrawn = self._pipeline.first_unconfirmed_entry_id\n",
        "runs that became unknown stay in the window of a closed writer",
    ),
    Mutation(
        "writer_failure_is_definite_with_pending_runs",
        f"{PROTOCOL}/ledger/write/writer.py",
        "is_definite=is_definite and self._withdrawn_from is None,",
        "is_definite=is_definite,",
        "adds of unknown outcome are reported as not happened",
    ),
    Mutation(
        "change_over_recovery",
        f"{PROTOCOL}/ledger/write/ensemble_change.py",
        """        if current.state is LedgerState.IN_RECOVERY:
            return Refusal(Failure.FENCED)
        last""",
        """        last""",
        "the ensemble changes while recovery reads",
    ),
    Mutation(
        "change_replaces_whoever_sits_there",
        f"{PROTOCOL}/ledger/write/ensemble_change.py",
        "            if members[index] == failed:\n                members[index] = replacement",
        "            members[index] = replacement",
        "a bookie that another client put there is replaced",
        equivalent="a ledger has one writer, and no other client changes the ensemble of an OPEN "
        "ledger",
    ),
    Mutation(
        "fragment_of_no_entries_is_kept",
        f"{PROTOCOL}/ledger/write/ensemble_change.py",
        "if new.first_entry_id == fragments[-1].first_entry_id else fragments",
        "if False else fragments",
        "two fragments begin at the same entry",
    ),
    Mutation(
        "replacement_sits_in_ensemble",
        f"{PROTOCOL}/placement/replacement.py",
        "fresh = [name for name in dict.fromkeys(candidates) if name not in ensemble]",
        "fresh = [name for name in dict.fromkeys(candidates) if name not in ensemble[1:]]",
        "one bookie has two places of an ensemble",
    ),
    Mutation(
        "failed_bookies_are_first_choice",
        f"{PROTOCOL}/placement/replacement.py",
        "fresh.sort(key=lambda name: failures.get(name, 0))",
        "fresh.sort(key=lambda name: -failures.get(name, 0))",
        "bookies that are dead take each other's place again and again",
    ),
    Mutation(
        "failed_bookies_are_never_passed_over",
        f"{PROTOCOL}/ledger/write/ensemble_change.py",
        "FAILURES_IN_A_ROW_MAX = 3",
        "FAILURES_IN_A_ROW_MAX = 3_000",
        "two dead bookies that are still registered take each other's place a thousand times",
    ),
]

_METADATA = [
    Mutation(
        "unknown_write_is_not_loaded",
        f"{PROTOCOL}/ledger/metadata_update.py",
        """                self.may_be_written = True
                return self._wait(UpdatePhase.WAITING_TO_LOAD)""",
        """                self.may_be_written = True
                return self._wait(UpdatePhase.WAITING_TO_WRITE)""",
        "an unknown write is sent again before it is looked for",
        equivalent="only one of the two writes succeeds at a version; the conflict loads the "
        "metadata, as before",
    ),
    Mutation(
        "unknown_write_is_definite",
        f"{PROTOCOL}/ledger/metadata_update.py",
        """                self.may_be_written = True
                return self._wait(UpdatePhase.WAITING_TO_LOAD)""",
        """                return self._wait(UpdatePhase.WAITING_TO_LOAD)""",
        "a write that may have happened is reported as not happened",
    ),
    Mutation(
        "conflict_is_definite",
        f"{PROTOCOL}/ledger/metadata_update.py",
        """                self.may_be_written = True
                return self._load()""",
        """                return self._load()""",
        "a close that arrived twice conflicts with itself and is reported as not happened",
    ),
    Mutation(
        "second_close_forgets_the_first",
        f"{PROTOCOL}/ledger/write/writer.py",
        "LedgerClose(*self._close_at()), may_be_written=self._may_be_closed\n",
        "LedgerClose(*self._close_at())\n",
        "a second close denies that the first close may have succeeded",
    ),
    Mutation(
        "unsynced_load_settles",
        f"{PROTOCOL}/ledger/metadata_update.py",
        "return [m.LoadMetadata(self._request, sync_first=True)], None",
        "return [m.LoadMetadata(self._request, sync_first=False)], None",
        "a stale replica settles a write",
    ),
    Mutation(
        "conflict_is_written_again",
        f"{PROTOCOL}/ledger/metadata_update.py",
        """            case m.MetadataOutcome.CONFLICT:
                self.may_be_written = True
                return self._load()""",
        """            case m.MetadataOutcome.CONFLICT:
                self.may_be_written = True
                return self._wait(UpdatePhase.WAITING_TO_WRITE)""",
        "a change that lost its race ends as unavailable instead of being decided again",
    ),
    Mutation(
        "same_version_is_settled",
        f"{PROTOCOL}/ledger/metadata_update.py",
        """        if loaded.version == self.current.version:
            return self._wait(UpdatePhase.WAITING_TO_WRITE)
""",
        "",
        "a write that may still happen is decided anew",
        equivalent="a new decision on the same metadata is the same write at the same version",
    ),
    Mutation(
        "record_key_ignores_fragments",
        f"{PROTOCOL}/ledger/metadata_update.py",
        '"quorum", "fragments", ',
        '"quorum", ',
        "another client's record with other fragments counts as ours",
        equivalent="the result is the loaded metadata, and ends are not distinguished by their "
        "fragments",
    ),
    Mutation(
        "record_key_ignores_end",
        f"{PROTOCOL}/ledger/metadata_update.py",
        '"state", "last_entry_id", "length", ',
        '"state", ',
        "another client's close at another end counts as ours",
    ),
]

_RECOVERY = [
    Mutation(
        "recovery_joins_without_mark",
        f"{PROTOCOL}/ledger/recover/recovery.py",
        "return current.in_recovery() if current.state is LedgerState.OPEN else Refusal(None)",
        "return Refusal(None)",
        "bookies are fenced while the record is OPEN",
    ),
    Mutation(
        "recovery_loads_without_sync",
        f"{PROTOCOL}/ledger/recover/recovery.py",
        "return [m.LoadMetadata(self._request, sync_first=True)]",
        "return [m.LoadMetadata(self._request, sync_first=False)]",
        "recovery begins with a stale record",
        equivalent="the compare-and-swap of the mark detects stale metadata, and states never "
        "change back",
    ),
    Mutation(
        "recovery_ignores_floor",
        f"{PROTOCOL}/ledger/recover/recovery.py",
        """        if self._tail.write_back.last_add_confirmed < self._floor_entry_id:
            return self._load(RecoveryPhase.CHECKING)
        self.phase = RecoveryPhase.CLOSING""",
        """        self.phase = RecoveryPhase.CLOSING""",
        "a ledger is closed below an entry that a durable reference needs",
    ),
    Mutation(
        "recovery_adopts_below_floor",
        f"{PROTOCOL}/ledger/recover/recovery.py",
        "if closed.value.last_entry_id < self._floor_entry_id:",
        "if closed.value.last_entry_id < -1:",
        "a close by another client below the floor is reported as success",
    ),
    Mutation(
        "recovery_keeps_fragments_behind_end",
        f"{PROTOCOL}/ledger/write/ensemble_change.py",
        "*(one for one in others if one.first_entry_id <= last_entry_id)",
        "*others",
        "a closed record names a fragment that begins after its last entry",
    ),
    Mutation(
        "recovery_drops_replaced_fragments",
        f"{PROTOCOL}/ledger/recover/recovery.py",
        "fragments_up_to((*current.fragments[:-1], *self._tail.fragments), last)",
        "fragments_up_to((*current.fragments[:-1], self._tail.fragments[0]), last)",
        "entries that were written back to replacements are looked for on the old bookies",
    ),
    Mutation(
        "recovery_gives_up_at_once",
        f"{PROTOCOL}/ledger/recover/recovery.py",
        "if failure not in RETRIABLE or delay_ms is None:",
        "if True:",
        "one lost answer ends a recovery",
    ),
    Mutation(
        "recovery_unknown_close_is_definite",
        f"{PROTOCOL}/ledger/recover/recovery.py",
        "is_definite=failure not in RETRIABLE and not self._may_have_written,",
        "is_definite=failure not in RETRIABLE,",
        "a close that happened is reported as not happened",
    ),
    Mutation(
        "fencing_counts_timeouts",
        f"{PROTOCOL}/ledger/recover/fencing.py",
        "FENCED_CODES = (Code.OK,",
        "FENCED_CODES = (Code.TIMEOUT, Code.OK,",
        "bookies that never heard of the fence count as fenced",
    ),
    Mutation(
        "fencing_counts_io_errors",
        f"{PROTOCOL}/ledger/recover/fencing.py",
        "FENCED_CODES = (Code.OK,",
        "FENCED_CODES = (Code.IO_ERROR, Code.UNAVAILABLE, Code.OK,",
        "bookies that refused the fence count as fenced",
    ),
    Mutation(
        "fencing_takes_smallest_lac",
        f"{PROTOCOL}/ledger/recover/fencing.py",
        """                self.last_add_confirmed = max(
                    self.last_add_confirmed, reply.entry.last_add_confirmed
                )""",
        """                self.last_add_confirmed = reply.entry.last_add_confirmed""",
        "recovery reads more than it has to",
        equivalent="a smaller LAC makes recovery read and write back more; the end is the same",
    ),
    Mutation(
        "fencing_never_ends_uncovered",
        f"{PROTOCOL}/ledger/recover/fencing.py",
        """            self.state = FencingState.UNCOVERED
""",
        """            pass
""",
        "a recovery that could not fence enough bookies waits forever",
    ),
    Mutation(
        "coverage_of_one_window",
        f"{PROTOCOL}/ledger/quorum.py",
        """    return all(
        (mask & ~known_mask).bit_count() < quorum.ack_quorum for mask in write_set_masks(quorum)
    )""",
        """    return any(
        (mask & ~known_mask).bit_count() < quorum.ack_quorum for mask in write_set_masks(quorum)
    )""",
        "of a striped ledger only one write set is fenced",
    ),
    Mutation(
        "negative_quorum_is_one_less",
        f"{PROTOCOL}/ledger/quorum.py",
        "return quorum.write_quorum - quorum.ack_quorum + 1",
        "return max(1, quorum.write_quorum - quorum.ack_quorum)",
        "an entry that was confirmed counts as absent",
    ),
    Mutation(
        "recovery_reads_without_fence",
        f"{PROTOCOL}/ledger/recover/reads.py",
        "                    fence=True,\n",
        "                    fence=False,\n",
        "a bookie that was not fenced accepts an add after it reported the entry absent",
    ),
    Mutation(
        "recovery_asks_one_member",
        f"{PROTOCOL}/ledger/recover/reads.py",
        "return self._request_all(tally) if verdict is Verdict.UNDECIDED else []",
        "return []",
        "an entry whose first member failed stays undecided until the hedge",
        equivalent="hedging sends the request to the other bookies after two ticks; only the "
        "duration differs",
    ),
    Mutation(
        "recovery_never_hedges",
        f"{PROTOCOL}/ledger/recover/reads.py",
        "                if tally.is_slow:\n"
        "                    effects += self._request_all(tally)\n",
        "",
        "a slow member is waited for until its deadline",
        equivalent="the deadline of the request ends the wait; only the duration differs",
    ),
    Mutation(
        "recovery_absent_stays_absent",
        f"{PROTOCOL}/ledger/recover/reads.py",
        "            self._absent.pop(tally.entry_id, None)\n",
        "            pass\n",
        "no further entries are requested after a copy was found late",
    ),
    Mutation(
        "recovery_batch_leaves_absence_behind",
        f"{PROTOCOL}/ledger/recover/reads.py",
        "            self._absent.pop(frontier, None)\n",
        "",
        "no further entries are requested after a late batch contained an entry that seemed absent",
    ),
    Mutation(
        "recovery_waits_for_a_batch_that_it_gave_up",
        f"{PROTOCOL}/ledger/recover/reads.py",
        "            self._current = 0\n            return True\n",
        "            return True\n",
        "a bookie that hangs holds recovery up for the deadline of a request",
    ),
    Mutation(
        "recovery_unknown_is_absent",
        f"{PROTOCOL}/ledger/recover/reads.py",
        """        if self.answers == len(self.members):
            return Verdict.UNKNOWN""",
        """        if self.answers == len(self.members):
            return Verdict.ABSENT""",
        "an entry counts as absent although it may exist",
    ),
    Mutation(
        "recovery_batch_skips_entry",
        f"{PROTOCOL}/ledger/recover/reads.py",
        "self._next_to_request = found.last_entry_id + 1",
        "self._next_to_request = found.last_entry_id + 2",
        "an entry between two batches is never requested",
    ),
    Mutation(
        "recovery_reads_after_lac_of_last_fragment",
        f"{PROTOCOL}/ledger/recover/tail.py",
        "first_entry_id=found + 1,",
        "first_entry_id=found + 2,",
        "the first entry after the LAC is not written back",
    ),
    Mutation(
        "recovery_end_is_not_waited_for",
        f"{PROTOCOL}/ledger/recover/tail.py",
        "if is_end and self.write_back.is_finished:",
        "if is_end:",
        "a ledger is closed before its last entries are on an ack quorum",
    ),
    Mutation(
        "recovery_fails_at_first_missing_spare",
        f"{PROTOCOL}/ledger/recover/tail.py",
        "        self._abandon(pipeline, found.unreplaced)\n",
        "",
        "the window never empties when a failed bookie has no successor",
    ),
    Mutation(
        "recovery_new_fragment_at_lac",
        f"{PROTOCOL}/ledger/recover/tail.py",
        "new = Fragment(pipeline.last_add_confirmed + 1, chosen.ensemble)",
        "new = Fragment(pipeline.next_entry_id, chosen.ensemble)",
        "entries that were sent again belong to the fragment of the failed bookies",
    ),
    Mutation(
        "measured_length_of_other_fragment",
        f"{PROTOCOL}/ledger/recover/tail.py",
        "ensemble = metadata.fragment_of(last).ensemble",
        "ensemble = metadata.last_fragment.ensemble",
        "the length is requested from bookies that never had the entry",
    ),
    Mutation(
        "write_back_length_of_first_entry",
        f"{PROTOCOL}/ledger/recover/tail.py",
        "length=first.length - len(first.payload),",
        "length=first.length,",
        "the closed length counts one entry twice",
    ),
    Mutation(
        "write_back_is_finished_with_buffer",
        f"{PROTOCOL}/ledger/recover/tail.py",
        "return idle and not self._buffered",
        "return idle",
        "entries that wait for the window are left out of the closed ledger",
    ),
    Mutation(
        "write_back_buffer_only_grows",
        f"{PROTOCOL}/ledger/recover/tail.py",
        "        self._buffered_size_bytes -= size_bytes\n",
        "",
        "a recovery stands still after so many bytes as it may buffer",
    ),
    Mutation(
        "write_back_small_runs_wait_for_ever",
        f"{PROTOCOL}/ledger/recover/tail.py",
        "if is_small and not is_end and pipeline.first_unconfirmed_entry_id is not None:",
        "if is_small and pipeline.first_unconfirmed_entry_id is not None:",
        "the last entries wait for those before them",
        equivalent="they are sent when the earlier entries are confirmed; only the duration "
        "differs",
    ),
]

_READING = [
    Mutation(
        "reader_absent_without_reload",
        f"{PROTOCOL}/ledger/read/reader.py",
        "        if self._is_absence_confirmed:\n",
        "        if True:\n",
        "an entry is called absent by bookies that were replaced meanwhile",
    ),
    Mutation(
        "reader_silence_before_a_reload_is_absence",
        f"{PROTOCOL}/ledger/read/reader.py",
        "was_absent = self._tallies[head].verdict is Verdict.ABSENT",
        "was_absent = True",
        "an entry is called absent by bookies that were replaced after the reload",
    ),
    Mutation(
        "reader_absent_after_the_last_reload",
        f"{PROTOCOL}/ledger/read/reader.py",
        "return m.Failure.ENTRY_UNKNOWN if is_last else None",
        "return m.Failure.ENTRY_ABSENT if is_last else None",
        "an entry is called absent by bookies that were replaced meanwhile",
    ),
    Mutation(
        "reader_unknown_is_absent",
        f"{PROTOCOL}/ledger/read/tally.py",
        "absent = all(code.is_absent for code in self.codes.values())",
        "absent = any(code.is_absent for code in self.codes.values())",
        "an entry that one replica could not read is called absent",
    ),
    Mutation(
        "reader_batch_crosses_fragments",
        f"{PROTOCOL}/ledger/read/reader.py",
        "                last = fragment.first_entry_id - 1\n",
        "                pass\n",
        "entries are requested from bookies that never had them",
        equivalent="entries that these bookies do not have are requested one by one with the "
        "right ensemble",
    ),
    Mutation(
        "lac_read_is_done_after_one",
        f"{PROTOCOL}/ledger/read/lac.py",
        "if not self._sent or (covered and not self._waits_for_all):",
        "if True:",
        "a LAC read gets one answer and reports that the ensemble is covered",
    ),
    Mutation(
        "lac_below_last_fragment",
        f"{PROTOCOL}/ledger/read/lac.py",
        "self.last_add_confirmed = max(self.last_add_confirmed, floor)",
        "self.last_add_confirmed = max(self.last_add_confirmed, NO_ENTRY)",
        "entries that were confirmed before a change seem unconfirmed",
    ),
    Mutation(
        "reader_late_answer_makes_no_room",
        "ledgerlog_spark/protocol/ledger/read/reader.py",
        "return self._advance()  # a late answer only makes room for another request",
        "return []",
        "a reader that waits for room only stands still",
    ),
]

MUTATIONS = [*_WRITER, *_METADATA, *_RECOVERY, *_READING]
