"""Mistakes in the machine that heals one ledger: its needs, copies, writes and pauses."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

MACHINE = "ledgerlog_spark/protocol/autorecovery/replicate"
JOB = f"{MACHINE}/job.py"
COPYING = f"{MACHINE}/copying.py"
NEEDS = f"{MACHINE}/needs.py"
RANGES = f"{MACHINE}/ranges.py"
LOCKS = "ledgerlog_spark/metadata/replication/locks.py"

_NEEDS = [
    Mutation(
        "a_lost_bookie_that_is_back_is_replaced",
        NEEDS,
        "return name in task.lost and not is_registered(registered, name)",
        "return name in task.lost",
        "a bookie that came back loses all its copies",
    ),
    Mutation(
        "an_absent_member_is_whole",
        NEEDS,
        '                    found.waits_for[name] = "is not registered, and no mark names it"\n'
        "            else",
        "                    pass\n            else",
        "a mark is deleted although a member is away",
    ),
    Mutation(
        "a_drained_member_of_an_open_ledger_is_done",
        NEEDS,
        'found.waits_for[name] = "is still in the last fragment of an open ledger"',
        "pass",
        "a move ends although the open ledger names the bookie",
    ),
    Mutation(
        "a_move_fences_an_open_ledger",
        NEEDS,
        'found.waits_for[name] = "is still in the last fragment of an open ledger"',
        "found.mends_last = True",
        "a drained bookie closes the ledgers of live writers",
    ),
    Mutation(
        "a_list_that_failed_is_whole",
        NEEDS,
        '        found.waits_for[name] = f"does not list its entries: {listed.code.value}"\n',
        "        pass\n",
        "a bookie in limbo counts as whole",
    ),
    Mutation(
        "damage_in_another_fragment_is_repaired_here",
        NEEDS,
        "if not is_here or one.first_entry_id not in (WHOLE_LEDGER, first):",
        "if not is_here or one.first_entry_id != WHOLE_LEDGER:",
        "damage that is noted for one fragment is repaired nowhere",
    ),
    Mutation(
        "damage_of_others_is_repaired_too",
        NEEDS,
        'is_here = one.bookie_id in ("", need.member)',
        "is_here = True",
        "all members get copies of what one of them damaged",
    ),
    Mutation(
        "damaged_copies_count_as_held",
        NEEDS,
        "intact.extend(gaps(inside[0], inside[1] + 1, damaged))",
        "intact.append(inside)",
        "damage is noted, and never repaired",
    ),
    Mutation(
        "the_last_entry_of_a_fragment_is_not_needed",
        RANGES,
        "    if position < end:\n        yield position, end - 1\n",
        "    if position < end - 1:\n        yield position, end - 1\n",
        "the last entry of a ledger stays without a copy",
    ),
    Mutation(
        "a_closed_ledger_ends_one_entry_early",
        RANGES,
        "beyond = metadata.last_entry_id + 1",
        "beyond = metadata.last_entry_id",
        "the last entry of a ledger is never copied",
    ),
    Mutation(
        "fragments_end_where_the_next_begins",
        RANGES,
        "ends = [(one, min(end, beyond))",
        "ends = [(one, end)",
        "entries after the end of a ledger are copied",
    ),
    Mutation(
        "ranges_that_touch_are_not_joined",
        RANGES,
        "first <= found[-1][1] + 1",
        "first <= found[-1][1]",
        "a fragment is split into pieces of one entry",
    ),
    Mutation(
        "a_hole_keeps_the_new_bookie",
        RANGES,
        "pieces.append(Fragment(low, fragment.ensemble))",
        "pieces.append(Fragment(low, ensemble))",
        "the only bookie with an entry is named no more",
    ),
    Mutation(
        "the_piece_after_a_hole_is_lost",
        RANGES,
        "        position = high + 1\n    if position < end",
        "        position = high + 2\n    if position < end",
        "the entry after a hole belongs to the hole",
    ),
]

_JOB = [
    Mutation(
        "a_task_that_is_gone_is_a_failure",
        JOB,
        "JobOutcome.NOTHING if is_gone else JobOutcome.UNAVAILABLE",
        "JobOutcome.UNAVAILABLE",
        "a worker tries a healed ledger again and again",
    ),
    Mutation(
        "a_job_goes_on_without_the_lock",
        JOB,
        "        if not lock.is_mine:\n",
        "        if not lock.is_mine and lock.outcome is not MetadataOutcome.OK:\n",
        "two workers copy the same ledger",
    ),
    Mutation(
        "the_lock_is_kept_after_a_job",
        JOB,
        "        yield (ReleaseLock(),)\n",
        "",
        "other workers never heal the ledger",
    ),
    Mutation(
        "a_healed_ledger_keeps_its_report",
        JOB,
        "if outcome in (JobOutcome.HEALED, JobOutcome.DELETED) or self._unreadable:",
        "if self._unreadable:",
        "an operator sees entries as unreadable that have all copies",
    ),
    Mutation(
        "a_deleted_ledger_stays_in_the_queue",
        JOB,
        "return (yield from self._finish(JobOutcome.DELETED, None))",
        'return JobOutcome.DELETED, ""',
        "marks of deleted ledgers stay for ever",
    ),
    Mutation(
        "task_deleted_over_a_new_record",
        JOB,
        "self._finish(JobOutcome.HEALED, self._record.version)",
        "self._finish(JobOutcome.HEALED, None)",
        "a mark is deleted after a writer has replaced a bookie, whose old copies nobody checks",
    ),
    Mutation(
        "a_ledger_without_a_password_is_copied",
        JOB,
        "        if not self._record.value.has_password:\n"
        "            raise StopJobError(JobOutcome.NO_KEY)\n",
        "",
        "a bookie gets copies under a wrong key",
    ),
    Mutation(
        "a_changed_fragment_is_changed_again",
        JOB,
        "                changed.add(need.fragment.first_entry_id)\n",
        "                pass\n",
        "a fragment that is no longer in the record is replaced",
    ),
    Mutation(
        "copies_of_a_live_member_are_not_forced",
        JOB,
        "if need.kind is Kind.FILL and copied.last_entry_id is not None:",
        "if False:",
        "a hole counts as healed, and a power loss brings it back",
    ),
    Mutation(
        "damage_is_written_in_each_pass",
        JOB,
        "            self._settled.add((need.member, need.fragment.first_entry_id))\n",
        "            pass\n",
        "a job with damage never ends",
    ),
    Mutation(
        "a_silent_bookie_is_probed_as_absent",
        JOB,
        '                    raise StopJobError(JobOutcome.WAITING, f"{need.member}: '
        '{reply.code.value}")\n',
        "                    position += 1\n",
        "a bookie that does not answer gets all entries again",
    ),
    Mutation(
        "a_probe_skips_the_rest_of_a_batch",
        JOB,
        "                    position = reply.copies[-1].entry_id + 1\n"
        "                elif reply.code.is_absent",
        "                    position += count\n                elif reply.code.is_absent",
        "entries that a short answer left out are written again",
    ),
    Mutation(
        "a_bookie_without_a_cookie_is_named",
        JOB,
        '                detail = f"{target} has no cookie"\n                continue\n',
        '                return JobOutcome.UNAVAILABLE, ""\n',
        "one bookie without a cookie stops the repair",
    ),
    Mutation(
        "one_target_is_tried",
        JOB,
        "        while len(tried) < self._settings.targets_max:\n",
        "        while len(tried) < 1:\n",
        "a full bookie stops the repair of a ledger",
    ),
    Mutation(
        "a_target_with_a_gap_is_named",
        JOB,
        "        if has_gap(metadata, need, listed.ranges, copied.holes):\n"
        "            raise TargetError(target, Code.NO_ENTRY)\n",
        "",
        "a bookie is named for entries that it does not hold",
    ),
    Mutation(
        "a_failed_force_counts",
        JOB,
        "        (forced,) = yield (ForceEntries(target, entry_id),)\n"
        "        if forced.code is not Code.OK:\n"
        "            raise TargetError(target, forced.code)\n",
        "        (forced,) = yield (ForceEntries(target, entry_id),)\n        del forced\n",
        "a bookie is named for copies that a power loss takes",
    ),
    Mutation(
        "a_new_connection_is_the_same_process",
        JOB,
        "            if len(copied.connections) > 1:\n",
        "            if len(copied.connections) > 2:\n",
        "a bookie that restarted between two copies is named",
    ),
    Mutation(
        "a_cut_index_is_split",
        JOB,
        "            and not copied.is_cut\n",
        "",
        "a target is named for entries that were never read",
    ),
    Mutation(
        "entries_that_may_come_back_are_split_off",
        JOB,
        "            and all(is_settled(one, registered) for one in copied.unreadable)\n",
        "",
        "a slow bookie causes fragments of one entry",
    ),
    Mutation(
        "a_fragment_without_entries_is_split",
        JOB,
        "            and not is_everything\n",
        "",
        "a record grows although nothing was copied",
    ),
    Mutation(
        "an_unavailable_store_is_a_conflict",
        JOB,
        "        if written.outcome is MetadataOutcome.UNAVAILABLE:\n            return "
        'JobOutcome.UNAVAILABLE, ""\n        return JobOutcome.CONFLICTS',
        "        return JobOutcome.CONFLICTS",
        "a worker copies again and again while the store is away",
    ),
    Mutation(
        "the_grace_of_a_recovery_ignores_its_progress",
        JOB,
        "            return before.version == now.version\n",
        "            return True\n",
        "a worker interrupts a recovery that makes progress",
    ),
    Mutation(
        "the_grace_counts_for_another_fragment",
        JOB,
        "        return before.value.last_fragment == now.value.last_fragment\n",
        "        return True\n",
        "a writer that has replaced its bookie is fenced",
    ),
    Mutation(
        "one_spare_serves_two_lost_bookies",
        JOB,
        "            taken.add(spare)\n",
        "",
        "a writer is fenced although its ledger cannot be healed",
    ),
    Mutation(
        "a_ledger_that_is_not_quiet_is_closed",
        JOB,
        "            if quiet.quiet_ms < self._settings.quiet_ms:\n",
        "            if quiet.quiet_ms < 0:\n",
        "a worker fences a busy writer without a spare",
    ),
    Mutation(
        "a_recovery_that_failed_is_forgotten",
        JOB,
        "        if recovered.failure is not None:\n",
        "        if False:\n",
        "a worker starts one recovery after the other",
    ),
    Mutation(
        "reports_are_not_limited",
        JOB,
        "as_ranges(self._unreadable)[:REPORTED_MAX]",
        "as_ranges(self._unreadable)",
        "a report is larger than a node may be",
    ),
]

_COPYING = [
    Mutation(
        "a_target_is_its_own_source",
        COPYING,
        "            if source == self._target or self._sources.code_of(source) is not None:\n",
        "            if self._sources.code_of(source) is not None:\n",
        "a member gets its own damaged copy back",
    ),
    Mutation(
        "a_dead_source_is_read_for_each_entry",
        COPYING,
        "            self._sources.away[source] = reply.code\n",
        "            pass\n",
        "each entry waits for the time limit of a dead bookie",
    ),
    Mutation(
        "an_add_that_failed_counts",
        COPYING,
        "        if reply.code is not Code.OK:\n            raise TargetError(self._target, "
        "reply.code)\n",
        "",
        "a refused copy counts as stored",
    ),
    Mutation(
        "the_last_run_is_not_added",
        COPYING,
        "        yield from self._flush()\n        if suspects:\n",
        "        if suspects:\n",
        "the last run of each index is read, and not stored",
    ),
    Mutation(
        "suspects_have_no_limit",
        COPYING,
        "                if len(suspects) > UNREADABLE_MAX:\n                    return\n",
        "",
        "a job reads millions of entries of dead bookies one by one",
    ),
    Mutation(
        "copies_without_a_digest_may_differ",
        COPYING,
        "        if len({(one.length, bytes(one.payload)) for one in copies}) > 1:\n",
        "        if False:\n",
        "one of two different copies is spread",
    ),
    Mutation(
        "absent_once_is_lost",
        COPYING,
        "            after = yield from self._ask_all(fragment, entry_id)\n",
        "            after = before[entry_id]\n",
        "an entry that arrives between two reads is reported as lost",
    ),
    Mutation(
        "an_earlier_refusal_is_forgotten",
        COPYING,
        "codes = (*before[entry_id].values(), *after.values())",
        "codes = (*after.values(),)",
        "an entry that a bookie denied once is reported as lost",
    ),
    Mutation(
        "a_record_that_changed_meanwhile_counts",
        COPYING,
        "                loaded.versioned.version != self._record.version\n",
        "                False\n",
        "an entry is lost by the rules of an old record",
    ),
    Mutation(
        "an_entry_that_was_found_is_not_copied",
        COPYING,
        "                if self._take_code(name, reply):\n"
        "                    self._pending = tuple(reply.copies)\n",
        "                self._take_code(name, reply)\n",
        "an entry that is found at the second look is not stored",
    ),
    Mutation(
        "one_denial_makes_an_entry_lost",
        COPYING,
        "is_lost = all(is_denial(code) for code in codes)",
        "is_lost = any(is_denial(code) for code in codes)",
        "an entry of a silent bookie is reported as lost",
    ),
    Mutation(
        "chunks_of_single_reads_have_no_limit",
        COPYING,
        "                if len(chunk) == SINGLE_READS_MAX:\n",
        "                if len(chunk) == -1:\n",
        "a striped ledger is read into memory at once",
    ),
]

_OTHERS = [
    Mutation(
        "reports_join_different_answers",
        f"{MACHINE}/unreadable.py",
        "if before is not None and is_next and _is_alike(before, one):",
        "if before is not None and is_next:",
        "an unreadable entry is reported as lost",
    ),
    Mutation(
        "an_entry_is_reported_twice",
        f"{MACHINE}/unreadable.py",
        "        if before is not None and one.first_entry_id <= before.last_entry_id:\n"
        "            continue\n",
        "",
        "two ranges of a report overlap",
    ),
    Mutation(
        "a_target_may_be_tried_again",
        f"{MACHINE}/targets.py",
        "if name not in fragment.ensemble and name not in excluded",
        "if name not in fragment.ensemble",
        "a job tries the same full bookie three times",
    ),
    Mutation(
        "targets_have_no_order",
        f"{MACHINE}/targets.py",
        "    free.sort(key=lambda name: (blake2b(about + name.encode(), digest_size=8).digest(), "
        "name))\n",
        "    del about\n",
        "a worker does not go on with the copies of a dead one",
    ),
    Mutation(
        "failed_tasks_are_remembered_for_ever",
        f"{MACHINE}/schedule.py",
        "        while len(self._failed) > FAILED_MAX:\n",
        "        while False:\n",
        "a worker's memory grows with each ledger that fails",
    ),
    Mutation(
        "a_locked_ledger_is_a_failure",
        f"{MACHINE}/schedule.py",
        "if outcome not in (JobOutcome.LOCKED, JobOutcome.CHANGED):",
        "if True:",
        "a ledger that another worker had waits for minutes",
    ),
    Mutation(
        "a_new_bookie_ends_no_pause",
        f"{MACHINE}/schedule.py",
        "            failed.due_ms = 0.0\n",
        "            pass\n",
        "a new bookie is used minutes later",
    ),
    Mutation(
        "a_new_bookie_shortens_no_later_pause",
        f"{MACHINE}/schedule.py",
        "            failed.failures = 0\n",
        "",
        "a bookie that registers before it serves gets the next attempt minutes later",
    ),
    Mutation(
        "a_ledger_has_two_jobs",
        f"{MACHINE}/schedule.py",
        "if is_due and key[1] not in self._running:",
        "if is_due:",
        "a job fails because of a job of the same worker",
    ),
    Mutation(
        "a_scan_forgets_what_it_did_not_look_for",
        f"{MACHINE}/schedule.py",
        "            and key[1] > after\n",
        "",
        "failures of ledgers outside the page are forgotten",
    ),
    Mutation(
        "slow_targets_do_not_slow_the_copies",
        f"{MACHINE}/pace.py",
        "max(FACTOR_MIN, before / 2) if is_slow",
        "before if is_slow",
        "copies take the time of the clients of a slow bookie",
    ),
    Mutation(
        "a_burst_after_a_pause",
        f"{MACHINE}/pace.py",
        "max(self._due_ms, now_ms) + 1e3 * size_bytes / rate",
        "self._due_ms + 1e3 * size_bytes / rate",
        "after an idle hour, an hour's bytes are copied at once",
    ),
    Mutation(
        "left_locks_are_forgotten",
        LOCKS,
        "            self._left.add(ledger_id)\n",
        "            pass\n",
        "a lost answer keeps a ledger from all workers for weeks",
    ),
    Mutation(
        "left_locks_have_no_limit",
        LOCKS,
        "        elif len(self._left) < LEFT_MAX:\n",
        "        else:\n",
        "the memory grows with each failed call",
    ),
    Mutation(
        "a_lock_that_was_taken_again_is_given_back",
        LOCKS,
        "        if not is_left:\n            self._left.discard(ledger_id)\n        elif",
        "        if not is_left:\n            pass\n        elif",
        "a lock is deleted under the job that has it",
        equivalent="`release_left` leaves out what a caller has, and a second return does nothing",
    ),
    Mutation(
        "locks_of_an_old_session_are_given_back",
        LOCKS,
        "            self._left.clear()\n",
        "            pass\n",
        "requests are sent for locks that ended",
        equivalent="the owner of the node is compared, and callers are left out: only requests",
    ),
    Mutation(
        "a_pass_gives_no_left_locks_back",
        "bookie_server/service/releaser.py",
        "        await self._records.release_left()\n",
        "",
        "a lost answer of a bookie keeps a ledger from all workers for weeks",
    ),
    Mutation(
        "a_worker_gives_no_left_locks_back",
        "ledgerlog_spark/autorecovery/replicate/worker.py",
        "            await self._parts.stores.replication_locks.release_left()\n",
        "",
        "a lost answer of a worker keeps a ledger from all others for weeks",
    ),
]

MUTATIONS = [*_NEEDS, *_JOB, *_COPYING, *_OTHERS]
