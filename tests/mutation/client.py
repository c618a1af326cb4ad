"""Mistakes in the hosts of ledgers: handles, followers, announcers, queues, caches."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

CLIENT = "ledgerlog_spark/client"

_HOST = [
    Mutation(
        "host_cas_timeout_is_definite",
        f"{CLIENT}/host/effects.py",
        "outcome = MetadataOutcome.UNKNOWN",
        "outcome = MetadataOutcome.UNAVAILABLE",
        "a record that was written counts as unwritten",
    ),
    Mutation(
        "host_loads_without_sync",
        f"{CLIENT}/host/effects.py",
        "                if effect.sync_first:\n                    await store.sync()\n",
        "",
        "a replica that lags decides the outcome of a write",
    ),
    Mutation(
        "host_passes_on_second_answer",
        f"{CLIENT}/host/effects.py",
        "            self._open.discard(request)\n            if type(event)",
        "            if type(event)",
        "a machine gets two answers to one request",
    ),
    Mutation(
        "corrupt_entry_counts_as_absent",
        f"{CLIENT}/host/effects.py",
        "code = Code.OK if entry is not None else Code.DIGEST_MISMATCH",
        "code = Code.OK if entry is not None else Code.NO_ENTRY",
        "an entry that rotted on one bookie is denied",
    ),
    Mutation(
        "lac_is_asked_of_the_control_service_alone",
        f"{CLIENT}/host/effects.py",
        """        elif effect.request in self._open:
            self._send_read_last(effect)  # perhaps""",
        """        else:
            self._reply(LacReplied(effect.request, code, NO_ENTRY))  # perhaps""",
        "the end of a ledger is unknown where no bookie has a control service",
    ),
    Mutation(
        "list_of_bookies_that_fails_is_not_answered",
        f"{CLIENT}/host/effects.py",
        "            _outcome_or_raise(error)\n"
        "            listed = BookiesListed(effect.request, ())\n",
        "            _outcome_or_raise(error)\n            return\n",
        "a writer waits for replacements forever",
    ),
    Mutation(
        "store_refusal_is_definite_for_what_is_pending",
        f"{CLIENT}/host/event_queue.py",
        "            ended.definite = False  # any pending operation may have happened\n",
        "",
        "appends that may be there are reported as failed for certain",
    ),
    Mutation(
        "stall_is_never_told",
        f"{CLIENT}/host/effects.py",
        "        if is_stalled:\n",
        "        if False:\n",
        "the caller of a machine without answers waits forever",
    ),
]

_WRITING = [
    Mutation(
        "handle_ids_not_shifted",
        f"{CLIENT}/handles/writer.py",
        "queue.complete(run.results(indication.first_entry_id))",
        "queue.complete(run.results(0))",
        "appends get wrong entry ids",
    ),
    Mutation(
        "drain_never_woken",
        f"{CLIENT}/append_queue.py",
        "        if self._room and not self.has_backlog:\n            _wake(self._room)\n",
        "",
        "drain hangs",
    ),
    Mutation(
        "drain_not_woken_by_failure",
        f"{CLIENT}/append_queue.py",
        "        _wake(self._idle)\n        _wake(self._room)\n",
        "        _wake(self._idle)\n",
        "drain of a handle that failed never returns",
    ),
    Mutation(
        "flush_not_woken_by_failure",
        f"{CLIENT}/append_queue.py",
        "        _wake(self._idle)\n        _wake(self._room)\n",
        "        _wake(self._room)\n",
        "flush and close of a handle that failed never return",
    ),
    Mutation(
        "half_sent_batch_is_definite",
        f"{CLIENT}/append_queue.py",
        "has_unknown_part = run.continues and begins_unknown",
        "has_unknown_part = False",
        "a batch of which the first run may be there failed for certain",
    ),
    Mutation(
        "close_overtakes_appends",
        f"{CLIENT}/handles/writer.py",
        "        await self.flush()\n        if self._host.crash",
        "        if self._host.crash",
        "appends that came before a close fail, though nothing is wrong",
    ),
    Mutation(
        "second_close_repeats_first_error",
        f"{CLIENT}/handles/writer.py",
        "if self._closed is None or (self._closed.done() and self._closed.exception()):",
        "if self._closed is None:",
        "a close that failed in an outage can never be made again",
    ),
    Mutation(
        "failed_handle_takes_appends",
        f"{CLIENT}/append_queue.py",
        "        if self.refusal is not None:\n            self._refuse(waiter, 1, size)\n"
        "            return\n",
        "",
        "appends to a failed handle wait forever",
    ),
    Mutation(
        "failure_between_appends_is_not_told",
        f"{CLIENT}/handles/writer.py",
        "            self._on_failed(error)\n",
        "            pass\n",
        "the leader continues with a ledger that accepts nothing, and closes it at the next append",
    ),
    Mutation(
        "failed_handle_announces_nothing",
        f"{CLIENT}/handles/writer.py",
        "            self._announcer.on_failed()\n",
        "            self._announcer.stop()\n",
        "readers do not see the last entries that were acknowledged before a failure",
    ),
    Mutation(
        "abandoned_handle_answers_nobody",
        f"{CLIENT}/client.py",
        "        for writer in list(self._writers):\n            writer.abandon()\n",
        "",
        "appends of a closed client wait forever",
    ),
    Mutation(
        "close_without_deadline",
        f"{CLIENT}/handles/writer.py",
        "Deadline(self._timeout_ms / 1e3, self._unclosed)",
        "Deadline(None, self._unclosed)",
        "a close waits as long as the metadata store is away",
    ),
    Mutation(
        "refusal_never",
        f"{CLIENT}/append_queue.py",
        "BACKLOGS_MAX = 16",
        "BACKLOGS_MAX = 1 << 40",
        "the backlog is unbounded",
    ),
    Mutation(
        "window_that_opens_sends_nothing",
        f"{CLIENT}/handles/writer.py",
        "            on_settled=self.queue.send_now,\n",
        "            on_settled=None,\n",
        "appends that the window did not take wait for the next append",
    ),
    Mutation(
        "linger_sends_nothing",
        f"{CLIENT}/append_queue.py",
        "        if self.entries and self._window.can_add and not self._full:\n",
        "        if False:\n",
        "a small append waits for others as long as runs are in flight",
    ),
    Mutation(
        "run_of_too_many_entries",
        f"{CLIENT}/append_queue.py",
        """        self.entries += 1
        self.size_bytes += size
        if len(run.payloads) >= self._entries_max:""",
        """        self.entries += 1
        self.size_bytes += size
        if len(run.payloads) > self._entries_max:""",
        "a run has one entry more than bookies take",
    ),
    Mutation(
        "taken_bytes_still_wait",
        f"{CLIENT}/append_queue.py",
        "        self.size_bytes -= size_bytes\n",
        "",
        "a writer refuses appends after so many bytes in all",
    ),
    Mutation(
        "inbox_that_dozes_is_never_looked_at",
        f"{CLIENT}/blocking/writer.py",
        "        if was_dozing:\n            self.look_soon()\n",
        "",
        "an append that came while others lingered waits for the next one",
    ),
    Mutation(
        "inbox_wakes_nobody_for_room",
        f"{CLIENT}/blocking/writer.py",
        "            if self._waiting:\n                self._room.notify_all()\n",
        "",
        "a thread that waits for room in the backlog waits forever",
    ),
    Mutation(
        "drawn_id_used_twice",
        f"{CLIENT}/handles/creation.py",
        "        del self._ids[ledger_id]\n        return",
        "        return",
        "two ledgers get one id",
    ),
    Mutation(
        "new_bookie_is_not_looked_for",
        f"{CLIENT}/handles/creation.py",
        "        found = await services.candidates()\n        result = place_new(",
        "        result = place_new(",
        "a ledger is refused although a bookie came a moment ago",
    ),
    Mutation(
        "list_of_bookies_older_than_a_change",
        f"{CLIENT}/bookies.py",
        "        if changes == self._changes:  # otherwise these names may be older than the "
        "change\n",
        "        if True:\n",
        "a bookie that left during the read of the list stays in the list forever",
    ),
]

_ANNOUNCING = [
    Mutation(
        "announcer_writes_for_ever",
        f"{CLIENT}/handles/lac_announcer.py",
        "if behind and self._attempts < ATTEMPTS_MAX:",
        "if behind:",
        "an idle writer sends requests to a bookie without a control service forever",
    ),
    Mutation(
        "announcer_tells_no_new_bookie",
        f"{CLIENT}/handles/lac_announcer.py",
        """        if self._is_idle:
            self.on_confirmed(is_idle=True)""",
        "",
        "a bookie that joins while the writer is idle never gets the last add confirmed",
    ),
    Mutation(
        "announcer_forgets_what_came_meanwhile",
        f"{CLIENT}/handles/lac_announcer.py",
        "            if self._is_idle:\n                self._write(bookie_id)\n",
        "",
        "entries that are confirmed during a write of the LAC are announced only by the timer",
    ),
    Mutation(
        "announcer_writes_to_herald_alone",
        f"{CLIENT}/handles/lac_announcer.py",
        "        for bookie_id in behind:\n            self._write(bookie_id)\n",
        "        for bookie_id in behind[:1]:\n            self._write(bookie_id)\n",
        "readers of the other bookies see the last entry one by one",
    ),
    Mutation(
        "announcer_never_idle_again",
        f"{CLIENT}/handles/lac_announcer.py",
        "        if self._timer is None:\n            self._start_timer(self._idle_ms_max)\n",
        "        if self._timer is None and not self._written:\n"
        "            self._start_timer(self._idle_ms_max)\n",
        "after the first pause the last entry of a burst is written to one bookie alone",
    ),
]

_READING = [
    Mutation(
        "reader_reopens_closed",
        f"{CLIENT}/handles/reader.py",
        "if self.metadata.is_closed and not metadata.is_closed:",
        "if False:",
        "a stale replica opens a closed ledger",
    ),
    Mutation(
        "lac_of_closed_rises",
        f"{CLIENT}/handles/reader.py",
        "if not self.metadata.is_closed and last_add_confirmed >",
        "if last_add_confirmed >",
        "a reader passes the closed end",
    ),
    Mutation(
        "lac_falls",
        f"{CLIENT}/handles/reader.py",
        "if not self.metadata.is_closed and last_add_confirmed > self._last_add_confirmed:",
        "if not self.metadata.is_closed:",
        "the end of an open ledger goes back when a bookie that lags answers",
    ),
    Mutation(
        "slow_consumer_is_a_stall",
        f"{CLIENT}/handles/reader.py",
        "StallWatch(lambda: self._host.replies + self._waits, self._on_stall, stall_ms)",
        "StallWatch(lambda: self._host.replies, self._on_stall, stall_ms)",
        "a read fails because its consumer took its time",
    ),
    Mutation(
        "closed_handle_reads_on",
        f"{CLIENT}/handles/reader.py",
        "        for reading in list(self._ranges):\n"
        "            reading.fail(self._closed_error())\n",
        "",
        "a read continues after its handle was closed",
    ),
    Mutation(
        "read_that_was_left_goes_on",
        f"{CLIENT}/handles/reader.py",
        "        finally:\n            reading.stop()\n            self._ranges.discard(reading)\n",
        "        finally:\n            self._ranges.discard(reading)\n",
        "a reader whose consumer has stopped reads ahead",
    ),
    Mutation(
        "read_beyond_what_is_confirmed",
        f"{CLIENT}/handles/reader.py",
        "if last_entry_id > self._last_add_confirmed and not is_listed:",
        "if last_entry_id > self._last_add_confirmed + 1 and not is_listed:",
        "an entry is read that recovery may still cut off",
    ),
    Mutation(
        "batches_before_an_error_are_lost",
        f"{CLIENT}/handles/reader.py",
        "        while not self._batches:\n            if self._error is not None:\n"
        "                raise self._error\n",
        "        if self._error is not None:\n            raise self._error\n"
        "        while not self._batches:\n            if self._error is not None:\n"
        "                raise self._error\n",
        "entries that were read before an error are not given out",
    ),
    Mutation(
        "watched_entries_of_another_place",
        f"{CLIENT}/handles/reader.py",
        "if held is None or not held.first_entry_id <= first_entry_id <= held.last_entry_id:",
        "if held is None or first_entry_id > held.last_entry_id:",
        "entries that a follower brought are given out for others",
    ),
    Mutation(
        "follower_misses_change_of_its_look",
        f"{CLIENT}/handles/follower.py",
        """            self._is_stale = False
            try:
                await self._handle.reload()
""",
        """            try:
                await self._handle.reload()
                self._is_stale = False
""",
        "a close that comes while the record is read is never seen",
    ),
    Mutation(
        "follower_stays_with_the_bookie_that_failed",
        f"{CLIENT}/handles/follower.py",
        "        self._place += 1\n",
        "",
        "a follower sends all its requests to a bookie that is lost",
    ),
    Mutation(
        "follower_never_pauses",
        f"{CLIENT}/handles/follower.py",
        "            pause_ms = ENDLESS.pause_ms(rounds)\n",
        "            pause_ms = 0\n",
        "a follower of bookies without a control service takes all of a processor",
    ),
    Mutation(
        "follower_asks_no_headers",
        f"{CLIENT}/handles/follower.py",
        "        self._watch_lac()\n        if self._asking is None:\n",
        "        self._watch_lac()\n        if False:\n",
        "nothing is seen of a ledger whose bookies have no control service",
    ),
    Mutation(
        "follower_watches_on_after_its_end",
        f"{CLIENT}/handles/follower.py",
        "        self._cancel_record()\n        self._drop_lac()\n",
        "        self._cancel_record()\n",
        "a bookie keeps a watch that no client needs",
    ),
    Mutation(
        "follower_ends_in_an_outage",
        f"{CLIENT}/handles/follower.py",
        "                if not error.retriable:\n                    raise\n",
        "                raise\n",
        "a follower gives up when the store does not answer once",
    ),
    Mutation(
        "records_never_grow_old",
        f"{CLIENT}/recent_records.py",
        "if metadata is None or self._now_s() - read_s > AGE_MAX_S:",
        "if metadata is None:",
        "requests are sent first to replaced bookies forever",
    ),
    Mutation(
        "readers_of_a_task_share_nothing",
        "ledgerlog_spark/protocol/ledger/read/budget.py",
        "        return self._place is None or self._place.fits(size_bytes, spared_size_bytes)\n",
        "        return True\n",
        "two large ranges of a task hold 64 MiB each",
    ),
    Mutation(
        "denied_reader_is_not_notified",
        "ledgerlog_spark/protocol/ledger/read_room.py",
        "            for place in tuple(self._places):\n                if place.is_denied:\n",
        "            for place in ():\n                if place.is_denied:\n",
        "a range that found no room is not read ahead any more",
    ),
    Mutation(
        "handed_batch_is_free",
        f"{CLIENT}/handles/reader.py",
        "            self._place.handed_size_bytes = batch.size_bytes\n",
        "            pass\n",
        "the first batch of each range ahead is not counted",
    ),
    Mutation(
        "failed_lately_is_forgotten_at_once",
        "ledgerlog_spark/protocol/ledger/write/ensemble_change.py",
        """        return replace_failed(
            quorum, ensemble, self.indexes, eligible, self.counts, listed.bookies, listed.policy
        )
""",
        """        found = replace_failed(
            quorum, ensemble, self.indexes, eligible, self.counts, listed.bookies, listed.policy
        )
        if found.unreplaced:
            lately.clear()
        return found
""",
        "bookies that are all down take each other's places a thousand times without a pause",
    ),
    Mutation(
        "records_are_unbounded",
        f"{CLIENT}/recent_records.py",
        "        while self.size_bytes > self._size_bytes_max:\n",
        "        while False:\n",
        "a client that reads many ledgers keeps all their records",
    ),
    Mutation(
        "not_found_on_one_replica",
        f"{CLIENT}/services.py",
        "            await self.ledgers.sync()\n            return await self.ledgers",
        "            return await self.ledgers",
        "a ledger that a replica does not show yet does not exist",
    ),
    Mutation(
        "batch_queue_misses_room",
        f"{CLIENT}/blocking/batch_queue.py",
        "        if not self._has_room_again:\n",
        "        if True:\n",
        "batches that were taken before the wait began wake no waiter",
    ),
    Mutation(
        "batch_queue_unbounded_in_bytes",
        f"{CLIENT}/blocking/batch_queue.py",
        "if self._came.qsize() >= AHEAD_MAX or self._is_large:",
        "if self._came.qsize() >= AHEAD_MAX:",
        "eight batches of any size wait to be taken",
    ),
    Mutation(
        "batch_queue_reads_on_when_left",
        f"{CLIENT}/blocking/batch_queue.py",
        "                loop.call_soon_threadsafe(self._cancel)\n",
        "                pass\n",
        "an iteration continues although no thread takes its batches",
    ),
]

MUTATIONS = [*_HOST, *_WRITING, *_ANNOUNCING, *_READING]
