"""Mistakes in the hosts of the machines of logs: host, retries, sweeper, ranges, watches."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

LOG = "ledgerlog_spark/log"

_DRIVER = [
    Mutation(
        "blocking_log_is_opened_with_its_id_for_a_name",
        f"{LOG}/blocking/logs.py",
        "return BlockingLog(self._client, name, log_id)",
        "return BlockingLog(self._client, log_id, name)",
        "a task of a job opens no log: the store has none with that id",
    ),
    Mutation(
        "range_is_lost_at_the_first_look",
        f"{LOG}/reading/committed_range.py",
        'return "no bookie has them" if metadata == seen else ""',
        'return "no bookie has them"',
        "entries that a repair moved while they were looked for are called lost",
    ),
    Mutation(
        "log_host_unknown_is_unavailable",
        f"{LOG}/host.py",
        "(MetadataUnknownError, MetadataOutcome.UNKNOWN),",
        "(MetadataUnknownError, MetadataOutcome.UNAVAILABLE),",
        "a write that may have happened counts as not happened",
    ),
    Mutation(
        "log_host_reads_registrations_before_the_record",
        f"{LOG}/host.py",
        """producer = await self.store.producers.read(self.log_id, app)
            ids = wanted.intersection(await self.store.producers.registered(self.log_id, app))
""",
        """ids = wanted.intersection(await self.store.producers.registered(self.log_id, app))
            producer = await self.store.producers.read(self.log_id, app)
""",
        "a registration that ended in between is ended again",
        equivalent="the write deletes a node that does not exist, and fails like a write with an "
        "old version",
    ),
    Mutation(
        "log_host_clock_without_answer_shows_zero",
        f"{LOG}/host.py",
        """        if read is not MetadataOutcome.OK or now_ms is None:
            # A write without data reads the clock. The outcome of this write does not matter.
            return MetadataOutcome.UNAVAILABLE, 0
        return outcome, now_ms""",
        """        return outcome, now_ms or 0""",
        "records that are written while the store's clock does not answer have the date 1970",
    ),
    Mutation(
        "log_host_drops_what_was_marked_again",
        f"{LOG}/host.py",
        """            if outcome is MetadataOutcome.OK and marked_ms != effect.marked_ms:
                outcome = MetadataOutcome.CONFLICT
""",
        "",
        "the mark is not looked at again: a ledger whose grace began anew is deleted",
    ),
    Mutation(
        "log_host_counts_kept_ledger_as_dropped",
        f"{LOG}/host.py",
        "MetadataOutcome.UNAVAILABLE if is_kept else outcome)",
        "outcome)",
        "a sweep reports that it deleted a ledger that could not be sealed",
    ),
    Mutation(
        "log_host_pauses_for_each_deleted_page",
        f"{LOG}/host.py",
        "outcome = MetadataOutcome.GONE if outcome is MetadataOutcome.CONFLICT else outcome",
        "pass",
        "a sweep pauses for each token whose pages another sweep deleted",
    ),
    Mutation(
        "log_host_forgets_ledger_that_was_not_sealed",
        f"{LOG}/host.py",
        """        except LedgerLogError:
            return False
        await self.store.producers.forget_mark""",
        """        except LedgerLogError:
            pass
        await self.store.producers.forget_mark""",
        "a ledger that could not be sealed loses its mark and stays forever",
    ),
    Mutation(
        "log_host_forgets_mark_before_deletion",
        f"{LOG}/host.py",
        """        try:
            metadata = await self.ledgers.ledger_metadata(ledger_id)
            if not""",
        """        await self.store.producers.forget_mark(self.log_id, ledger_id)
        try:
            metadata = await self.ledgers.ledger_metadata(ledger_id)
            if not""",
        "a sweeper that dies in between leaves a ledger without a mark",
    ),
    Mutation(
        "log_host_seals_nothing_of_deleted_logs",
        f"{LOG}/host.py",
        "            if not metadata.is_closed and not may_seal:\n",
        "            if not metadata.is_closed:\n",
        "open ledgers of a deleted log stay forever",
    ),
    Mutation(
        "log_host_keeps_its_place_in_the_queue",
        f"{LOG}/host.py",
        """        finally:
            await retries.end()
""",
        """        finally:
            pass
""",
        "a writer that succeeded delays the writers after it in the queue",
    ),
    Mutation(
        "log_host_pauses_for_nothing",
        f"{LOG}/host.py",
        "_RETRIED = {MetadataOutcome.CONFLICT, MetadataOutcome.UNAVAILABLE, "
        "MetadataOutcome.UNKNOWN}",
        "_RETRIED: set[MetadataOutcome] = set()",
        "attempts follow each other without a pause or a turn",
    ),
    Mutation(
        "retries_wait_for_dead_members",
        f"{LOG}/retries.py",
        "async with Deadline(len(before) * TURN_MS / 1e3, _OverdueError):",
        "async with Deadline(None, _OverdueError):",
        "an idle member of the queue delays all members after it for a minute",
    ),
    Mutation(
        "retries_hot_after_outage",
        f"{LOG}/retries.py",
        "            await self._sleep(OUTAGE_PAUSE_MS_FIRST, self._outages)\n",
        "            pass\n",
        "an outage of the store is met with requests without a pause",
    ),
]

_SWEEPER = [
    Mutation(
        "sweep_removes_log_unseen_by_a_replica",
        f"{LOG}/maintenance/sweeper.py",
        "        await self._store.sync()\n"
        "        if await self._store.read_head(log_id) is not None:",
        "        if await self._store.read_head(log_id) is not None:",
        "a log that a replica does not show yet is removed",
    ),
    Mutation(
        "sweep_takes_milliseconds_for_seconds",
        f"{LOG}/maintenance/sweeper.py",
        "(not mark.is_made and now_ms - mark.marked_ms >= grace_ms)",
        "(not mark.is_made and now_ms - mark.marked_ms >= grace_ms // 1_000)",
        "ledgers go while readers of an older version still read them",
    ),
    Mutation(
        "sweep_deleted_log_has_no_grace",
        f"{LOG}/maintenance/sweeper.py",
        """        if now_ms < self._due.removal:
            return Swept(log_id)
        items =""",
        "        items =",
        "the ledgers of a log go at the moment of its deletion",
    ),
    Mutation(
        "sweep_deleted_log_leaves_marked_ledgers",
        f"{LOG}/maintenance/sweeper.py",
        "        ledger_ids |= dict.fromkeys("
        "m.ledger_id for m in await self._producers.marked(log_id))\n",
        "",
        "ledgers of a deleted log that were only marked are never deleted",
    ),
    Mutation(
        "sweep_deleted_log_reads_marks_first",
        f"{LOG}/maintenance/sweeper.py",
        """        await self._deregister_all()
        ledger_ids |= dict.fromkeys(m.ledger_id for m in await self._producers.marked(log_id))
""",
        "        ledger_ids |= dict.fromkeys("
        "m.ledger_id for m in await self._producers.marked(log_id))\n"
        "        await self._deregister_all()\n",
        "registered ledgers get their marks after the marks were read, and stay",
    ),
    Mutation(
        "sweep_deleted_log_forgets_what_it_kept",
        f"{LOG}/maintenance/sweeper.py",
        """        if kept:
            await self._keep_marked(kept)
            self._due.removal = now_ms + LOOK_AGAIN_MS
            return Swept(log_id, ledgers_deleted=deleted, ledgers_kept=tuple(sorted(kept)))
""",
        "",
        "ledgers that could not be sealed are forgotten with their log",
    ),
    Mutation(
        "sweep_deleted_log_marks_first_thousand_alone",
        f"{LOG}/maintenance/sweeper.py",
        "            is_last = first + STEP_LEDGERS_MAX >= len(ledger_ids)\n",
        "            is_last = True\n",
        "the list of a deleted log goes before all that is kept has a mark",
    ),
    Mutation(
        "sweep_registrations_due_of_last_producer",
        f"{LOG}/maintenance/sweeper.py",
        "                next_due_ms = min(next_due_ms, min(young) + ttl_ms + 1)\n",
        "                next_due_ms = min(young) + ttl_ms + 1\n",
        "a registration is looked at when that of another producer is due",
    ),
    Mutation(
        "sweep_shrinks_to_first_run",
        f"{LOG}/maintenance/sweeper.py",
        "shrunk = replace(found.value, runs=found.value.runs[-1:])",
        "shrunk = replace(found.value, runs=found.value.runs[:1])",
        "the last run is forgotten, so its query's batches are committed again",
    ),
    Mutation(
        "sweep_forgets_jobs_at_work",
        f"{LOG}/maintenance/sweeper.py",
        "if not is_job or now_ms - found.value.time_ms <= self._properties.staging_ttl_ms:",
        "if not is_job:",
        "a job that has no ledger yet loses its record",
    ),
    Mutation(
        "sweep_seals_runs_once_for_all",
        f"{LOG}/maintenance/sweeper.py",
        "if epoch == 1 or self._due.sealed.get(app) == epoch:",
        "if epoch == 1 or app in self._due.sealed:",
        "ledgers of a run that is replaced later stay open",
    ),
    Mutation(
        "sweep_expires_for_ever",
        f"{LOG}/maintenance/sweeper.py",
        "while crossed < ATTEMPTS_MAX and steps < EXPIRY_STEPS_MAX:",
        "while steps < EXPIRY_STEPS_MAX:",
        "a log with a commit every few milliseconds holds up the pass over all others",
    ),
    Mutation(
        "sweep_of_one_log_ends_the_pass",
        f"{LOG}/maintenance/sweeper.py",
        "                errors.append(error)\n        return swept, errors",
        "                errors.append(error)\n                break\n        return swept, errors",
        "one log that fails keeps the others waiting",
    ),
]

_RANGES = [
    Mutation(
        "range_buffer_unbounded",
        f"{LOG}/committing/range_writer.py",
        "while self._pending_size_bytes > PENDING_SIZE_BYTES_MAX:",
        "while False:",
        "memory grows with the range",
    ),
    Mutation(
        "range_cut_writes_index_again",
        f"{LOG}/committing/range_writer.py",
        "again = tuple(sent.payload for sent in self._pending if sent.rows)",
        "again = tuple(sent.payload for sent in self._pending)",
        "an index entry is written again as if it were rows",
    ),
    Mutation(
        "range_names_index_it_does_not_have",
        f"{LOG}/committing/range_writer.py",
        "index_entry_id=last_entry_id if self._is_index_confirmed else NO_ENTRY,",
        "index_entry_id=last_entry_id,",
        "rows are read as an index",
    ),
    Mutation(
        "range_begins_with_its_ledger",
        f"{LOG}/committing/range_writer.py",
        "        self._first_entry_id = ledger.entries\n",
        "        self._first_entry_id = 0\n",
        "a second range of a ledger names the entries of the first",
    ),
    Mutation(
        "range_finished_before_acknowledged",
        f"{LOG}/committing/range_writer.py",
        """        while self._pending:
            await self._acknowledged()
        reach("range.acknowledged")""",
        """        while self._pending and self._pending[0].future.done():
            await self._acknowledged()
        reach("range.acknowledged")""",
        "a range is committed without the entries that are on their way",
    ),
    Mutation(
        "staged_ledger_outlives_registration",
        f"{LOG}/committing/range_writer.py",
        "self._roll_ms = min(properties.roll_ms, properties.staging_ttl_ms // 2)",
        "self._roll_ms = properties.roll_ms",
        "a ledger is continued after the sweeper ended its registration",
    ),
    Mutation(
        "staged_ledger_of_batch_before_counts",
        f"{LOG}/committing/range_writer.py",
        "is_replaced = self._last_batch_id < batch_id - 1",
        "is_replaced = False",
        "a log in complete mode keeps ledgers of which nothing is listed",
    ),
]

_WATCHES = [
    Mutation(
        "end_watch_misses_change_of_its_look",
        f"{LOG}/reading/end_watch.py",
        """            self._changed.clear()
            try:
                is_transactional = await self._follow_open_ledgers()
""",
        """            try:
                is_transactional = await self._follow_open_ledgers()
                self._changed.clear()
""",
        "a ledger that was listed during a look is never followed",
    ),
    Mutation(
        "end_watch_keeps_what_it_followed",
        f"{LOG}/reading/end_watch.py",
        "        await self._close_handles(list(self._followed))\n",
        "",
        "followers of a cancelled watch continue",
    ),
    Mutation(
        "end_watch_gives_up_in_an_outage",
        f"{LOG}/reading/end_watch.py",
        "                with contextlib.suppress(TimeoutError):\n"
        "                    await within(self._changed.wait(), next(pauses_ms) / 1e3)\n",
        '                await forever(self._changed.wait(), "the next change")\n',
        "after one failed look no new ledger is followed",
    ),
    Mutation(
        "open_ends_are_read_behind_an_open_ledger",
        f"{LOG}/reading/open_ends.py",
        "        if not handle.is_closed:\n            break\n",
        "",
        "rows of a later ledger are shown with a gap before them",
    ),
    Mutation(
        "open_ends_of_ledger_that_is_gone",
        f"{LOG}/reading/open_ends.py",
        "        with contextlib.suppress(LedgerNotFoundError):\n            return await read()\n"
        "    return await read()",
        "        break\n    return await read()",
        "a read fails because a ledger was sealed and deleted after the list was read",
    ),
    Mutation(
        "known_logs_are_kept_when_a_commit_fails",
        f"{LOG}/committing/commits.py",
        "return self._known.pop((log_id, app), None)",
        "return self._known.get((log_id, app))",
        "the commit after a failed commit starts from the state of the failed commit",
    ),
    Mutation(
        "commit_from_known_state_has_time_zero",
        f"{LOG}/committing/commits.py",
        "now_ms=await self._host.store.recent_ms() if before is not None else 0,",
        "now_ms=0,",
        "versions of a stream have the time of its first batch",
    ),
    Mutation(
        "release_stops_after_one_step",
        f"{LOG}/committing/commits.py",
        "            if step.is_complete:\n                break\n",
        "            break\n",
        "a job with more than 1,000 ledgers keeps its producer",
    ),
    Mutation(
        "release_keeps_young_ledgers",
        f"{LOG}/committing/commits.py",
        "staging_ttl_ms=-1)",
        "staging_ttl_ms=604_800_000)",
        "the producer of a job that failed stays until its ledgers are old",
    ),
]

MUTATIONS = [*_DRIVER, *_SWEEPER, *_RANGES, *_WATCHES]
