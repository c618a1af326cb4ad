"""Mistakes in the state after the client's calls: results, waiters, timers, counts, handles."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

CLIENT = "ledgerlog_spark/client"

MUTATIONS = [
    Mutation(
        "batch_ids_begin_one_later",
        f"{CLIENT}/append_queue.py",
        "range(first + offset - batch + 1, first + offset + 1)",
        "range(first + offset - batch + 2, first + offset + 2)",
        "a batch gets the ids of the next batch",
    ),
    Mutation(
        "close_is_not_answered_by_its_client",
        f"{CLIENT}/handles/writer.py",
        "        if self._closed is not None and not self._closed.done():\n"
        "            self._closed.set_exception(self._stopped_error())\n",
        "",
        "a close waits for its deadline though its client was closed",
    ),
    Mutation(
        "who_gives_up_stays_in_line",
        f"{CLIENT}/append_queue.py",
        "            with contextlib.suppress(ValueError):\n                line.remove(woken)\n",
        "            pass\n",
        "a program that waits with a time limit again and again fills memory",
    ),
    Mutation(
        "close_ends_with_who_waits_for_it",
        f"{CLIENT}/handles/writer.py",
        'forever(asyncio.shield(self._closing), "`_close` has deadlines")',
        'forever(self._closing, "`_close` has deadlines")',
        "if one caller cancels its wait for a close, the close is cancelled for all callers",
    ),
    Mutation(
        "refused_appends_keep_their_room",
        f"{CLIENT}/append_queue.py",
        "            self.listener.on_sent(entries, size_bytes)\n\n    async def _wait_in",
        "            pass\n\n    async def _wait_in",
        "threads that append to a failed handle wait forever when the backlog is full",
    ),
    Mutation(
        "stopped_machine_keeps_its_timers",
        f"{CLIENT}/host/event_queue.py",
        "        self._queue.clear()\n        self._cancel_timers()\n",
        "        self._queue.clear()\n",
        "ended reads and closes are kept in memory until their longest timer ends",
    ),
    Mutation(
        "machine_is_entered_twice",
        f"{CLIENT}/host/event_queue.py",
        "        if self._is_running:\n            return\n        self._is_running = True\n",
        "        self._is_running = True\n",
        "an answer that comes while a request is sent is handled within another event",
    ),
    Mutation(
        "refresh_reads_no_record",
        f"{CLIENT}/handles/reader.py",
        "        await self.reload()\n        if not self.is_closed:\n",
        "        if not self.is_closed:\n",
        "after a refresh, the handle has neither the CLOSED state of the ledger nor its new "
        "bookies",
    ),
    Mutation(
        "client_leaves_its_readers",
        f"{CLIENT}/client.py",
        "        for reader in list(self._readers):\n            await reader.aclose()\n",
        "",
        "followers of a closed client continue to send requests",
    ),
    Mutation(
        "record_that_is_replaced_counts_twice",
        f"{CLIENT}/recent_records.py",
        "        self._drop(ledger_id)\n        size_bytes = memory",
        "        size_bytes = memory",
        "after a while no record is kept, and each read loads its own",
    ),
    Mutation(
        "copies_of_the_whole_ensemble",
        f"{CLIENT}/client.py",
        "bookies = [ensemble[index] for index in write_set(metadata.quorum, entry_id)]",
        "bookies = list(ensemble)",
        "a check reports copies missing where there never were any",
    ),
    Mutation(
        "known_close_is_not_kept",
        f"{CLIENT}/handles/known_ends.py",
        "            self._keep(ledger_id, _End(loaded.last_entry_id, loaded.length))\n",
        "",
        "a ledger that this client saw closed is open again when a replica that lags answers",
    ),
    Mutation(
        "linger_begins_with_nothing_to_send",
        f"{CLIENT}/append_queue.py",
        "        if not self.entries:\n            if self._linger_timer is not None:\n"
        "                self._stop_linger()\n        elif",
        "        if",
        "the append of a thread waits for something that lingers, and nothing does",
    ),
    Mutation(
        "last_ids_are_not_listed",
        f"{CLIENT}/blocking/client.py",
        "        while batch := thread.call(some()):\n            yield from batch\n",
        "        while len(batch := thread.call(some())) >= BATCH_OF_IDS:\n"
        "            yield from batch\n",
        "a blocking program does not see the ledgers after the last full thousand",
    ),
]
