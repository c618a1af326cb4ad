"""Mistakes in leaders of logs."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

PROTOCOL = "ledgerlog_spark/protocol"
LOG = "ledgerlog_spark/log"

MUTATIONS = [
    Mutation(
        "leader_rolls_while_it_closes",
        "ledgerlog_spark/protocol/leader/leader.py",
        "        self._ledgers.wants_roll = False\n        self._forgive()\n",
        "        self._forgive()\n",
        "a close creates one more ledger, which is never written",
    ),
    Mutation(
        "leader_stays_unsure_after_a_change",
        "ledgerlog_spark/protocol/leader/leader.py",
        "        self._change = None\n        self._is_unsure = False\n",
        "        self._change = None\n",
        "a leader that ended after an unsure change leaves a ledger that no list names",
    ),
    Mutation(
        "leader_switches_while_ordered",
        "ledgerlog_spark/protocol/leader/rolling.py",
        "return not appends.has_ordered",
        "return True",
        "pending appends are ordered a second time",
    ),
    Mutation(
        "leader_times_fall",
        "ledgerlog_spark/protocol/leader/appends.py",
        "self.last_ms = max(self.last_ms, event.now_ms)",
        "self.last_ms = event.now_ms",
        "append times fall when the clock goes back",
    ),
    Mutation(
        "leader_gap_unnoticed",
        "ledgerlog_spark/protocol/leader/list.py",
        "if item.first_offset != offset:",
        "if item.first_offset < offset:",
        "lost entries stay unnoticed",
    ),
    Mutation(
        "leader_window_never_empties",
        "ledgerlog_spark/protocol/leader/appends.py",
        "            self._size_bytes -= last.size_bytes\n",
        "",
        "the window fills and the leader stops",
    ),
    Mutation(
        "leader_entries_wait_unordered",
        "ledgerlog_spark/protocol/leader/appends.py",
        "self._waiting, self._ordered = self._ordered, deque()",
        "self._ordered = deque()",
        "appends of a broken ledger are forgotten",
    ),
    Mutation(
        "leader_opening_takes_what_it_could_not_seal_for_empty",
        f"{PROTOCOL}/leader/opening.py",
        """        if reply.error is not None:
            raise reply.error
        self._ends[ledger_id] = reply.end
""",
        """        self._ends[ledger_id] = reply.end
""",
        "the records of an earlier leader's ledger leave the list with it",
    ),
    Mutation(
        "leader_opening_drops_what_may_be_listed",
        f"{PROTOCOL}/leader/opening.py",
        "if self._is_unsure and self._head.version != self._compared:",
        "if self._is_unsure:",
        "a ledger is deleted while an attempt to list it is on its way",
    ),
    Mutation(
        "leader_opening_lets_go_of_what_may_be_listed",
        f"{PROTOCOL}/leader/opening.py",
        "        return None if self.may_write else self._own\n",
        "        return self._own\n",
        "an opening that failed deletes a ledger that a late write lists",
    ),
    Mutation(
        "leader_opening_never_lists_again",
        f"{PROTOCOL}/leader/opening.py",
        "            self._is_unsure = False\n            yield from self._drop_own()",
        "            yield from self._drop_own()",
        "after one lost answer every later attempt is taken for that one",
    ),
    Mutation(
        "leader_list_leaves_empty_ledgers_unmarked",
        f"{PROTOCOL}/leader/list.py",
        "unlisted=tuple(ledger_id for ledger_id in closed if ledger_id not in filled)",
        "unlisted=()",
        "empty ledgers stay on the bookies forever",
    ),
    Mutation(
        "leader_list_names_empty_ledgers",
        f"{PROTOCOL}/leader/list.py",
        "filled = {ledger_id: end for ledger_id, end in closed.items() if not end.is_empty}",
        "filled = closed",
        "a ledger without entries becomes an item",
    ),
    Mutation(
        "leader_list_open_ledger_begins_where_it_was_opened",
        f"{PROTOCOL}/leader/list.py",
        "replace(o, first_offset=max(o.first_offset, end_offset) if place else end_offset)",
        "replace(o, first_offset=o.first_offset)",
        "the list shows a gap or an overlap before its open ledger",
    ),
    Mutation(
        "leader_never_closes_what_broke",
        f"{PROTOCOL}/leader/rolling.py",
        "if (is_left or ledger.is_broken or is_closing) and ledger.end is None:",
        "if (is_left or is_closing) and ledger.end is None:",
        "a leader stands still after its ledger's writer failed",
    ),
    Mutation(
        "leader_goes_on_before_the_broken_one_is_closed",
        f"{PROTOCOL}/leader/rolling.py",
        "            return self.current.end is not None\n",
        "            return True\n",
        "appends are ordered again that may be in the ledger that broke",
    ),
    Mutation(
        "leader_forgets_requested_roll",
        f"{PROTOCOL}/leader/rolling.py",
        "self.wants_roll = self.wants_roll or is_large or is_old",
        "self.wants_roll = is_large or is_old",
        "the next append withdraws a requested roll",
    ),
    Mutation(
        "leader_makes_third_ledger",
        f"{PROTOCOL}/leader/rolling.py",
        "return is_due and self.next is None and self.is_listed_alone",
        "return is_due and self.next is None",
        "a roll begins before the one before is done",
    ),
    Mutation(
        "leader_orders_into_a_ledger_that_runs_dry",
        f"{PROTOCOL}/leader/rolling.py",
        "return not self.current.is_broken and not self.is_next_listed",
        "return not self.current.is_broken",
        "a busy ledger never runs dry, so its roll never ends",
    ),
    Mutation(
        "leader_goes_on_after_fence",
        f"{PROTOCOL}/leader/leader.py",
        """        if isinstance(event.error, LOST):
            return self._stop(self._appends.deposed(event.error))
        ledger.is_broken = True""",
        """        ledger.is_broken = True""",
        "a replaced leader continues in a new ledger",
    ),
    Mutation(
        "leader_misses_what_broke_early",
        f"{PROTOCOL}/leader/leader.py",
        "        self._ledgers.next.is_broken = event.ledger_id in self._broken_early\n",
        "",
        "appends go to a ledger whose writer failed before `LedgerCreated` arrived",
    ),
    Mutation(
        "leader_tries_for_ever",
        f"{PROTOCOL}/leader/leader.py",
        "if attempts.is_hopeless and (is_needed or self.phase is LeaderPhase.CLOSING):",
        "if False:",
        "appends wait for a ledger that cannot be made, without end",
    ),
    Mutation(
        "leader_gives_up_what_it_does_not_need",
        f"{PROTOCOL}/leader/leader.py",
        "if attempts.is_hopeless and (is_needed or self.phase is LeaderPhase.CLOSING):",
        "if attempts.is_hopeless:",
        "an outage of the store ends a leader whose ledger is well",
    ),
    Mutation(
        "leader_counts_old_failures",
        f"{PROTOCOL}/leader/leader.py",
        "        ledger.is_broken = True\n        self._forgive()\n",
        "        ledger.is_broken = True\n",
        "failures from a time when no append waited end the leader immediately",
    ),
    Mutation(
        "leader_age_timer_runs_once",
        f"{PROTOCOL}/leader/leader.py",
        "        return [*self._arm_age_timer(), *self._advance()]\n",
        "        return self._advance()\n",
        "an idle log rolls once and never again",
    ),
    Mutation(
        "leader_close_leaves_ledger_made_too_late",
        f"{PROTOCOL}/leader/leader.py",
        "return self._drop(event.ledger_id) if event.error is None else []",
        "return []",
        "a ledger whose creation ended after the leader stopped stays forever",
    ),
    Mutation(
        "leader_drops_ledger_that_may_be_listed",
        f"{PROTOCOL}/leader/leader.py",
        "        if is_tried and (self._is_unsure or self._list.may_write):\n",
        "        if False:\n",
        "a leader that stops deletes a ledger that a late write lists",
    ),
    Mutation(
        "leader_change_is_remade_after_failure",
        f"{PROTOCOL}/leader/leader.py",
        "        if self._change is None:\n            dropped",
        "        if True:\n            dropped",
        "if an attempt that seemed to fail succeeds later, the leader does not recognise its own "
        "change",
    ),
    Mutation(
        "leader_delays_never_grow",
        f"{PROTOCOL}/leader/attempts.py",
        "        self._failures += 1\n",
        "        self._failures = 1\n",
        "a thing that always fails is tried without end, at the shortest pause",
    ),
    Mutation(
        "leader_believes_one_replica",
        f"{PROTOCOL}/log/machine.py",
        "            if reply.head is not None or is_synced:\n",
        "            if True:\n",
        "a replica that lags ends a leader, because its log seems deleted",
    ),
    Mutation(
        "leader_look_ends_with_an_outage",
        f"{PROTOCOL}/leader/leader.py",
        "            self._is_look_due = True\n            return [self._looking.fail",
        "            return [self._looking.fail",
        "a deletion in an outage is never noticed",
    ),
    Mutation(
        "leader_reopens_at_an_older_time",
        f"{PROTOCOL}/leader/leader.py",
        "last_ms=head.commit_time_ms)",
        "last_ms=0)",
        "append times fall when another leader takes over",
    ),
    Mutation(
        "leader_host_leaves_writers_behind",
        f"{LOG}/leader/host.py",
        """        for ledger in self._written.values():
            ledger.abandon()
        self._written.clear()""",
        """        self._written.clear()""",
        "a stopped leader continues to write",
    ),
    Mutation(
        "leader_closed_by_another_is_a_failure",
        f"{PROTOCOL}/leader/messages.py",
        "LOST = (LedgerFencedError, LedgerClosedError, LedgerNotFoundError)",
        "LOST = (LedgerFencedError,)",
        "a leader continues after another client closed or deleted its ledger",
    ),
    Mutation(
        "leader_entry_is_confirmed_by_its_first",
        f"{LOG}/leader/ledger_writer.py",
        "self._report(EntriesConfirmed(self.handle.id, results[-1][1]))",
        "self._report(EntriesConfirmed(self.handle.id, results[0][1]))",
        "all but the first entry of a run wait for the next run",
    ),
    Mutation(
        "leader_close_hangs_after_failure",
        f"{LOG}/leader/leader.py",
        """        if not self._ended.done():
            self._ended.set_result(None)
        self._changed.set()

    async def _next_change""",
        """        self._changed.set()

    async def _next_change""",
        "close of a leader that failed never returns",
    ),
    Mutation(
        "leader_forgets_what_waits_for_room",
        f"{LOG}/leader/leader.py",
        "            send_appends=self.queue.send_now,\n",
        "            send_appends=lambda: None,\n",
        "appends that the window did not take wait for the next append",
    ),
    Mutation(
        "leader_rolls_nothing_after_its_first",
        f"{LOG}/leader/leader.py",
        "            self._is_ledger_empty = not indication.reordered\n",
        "            self._is_ledger_empty = True\n",
        "a ledger whose records were appended again counts as empty, and is not rolled",
        equivalent="appends are sent again only after LedgerRolled, and each of them shows that "
        "the ledger is not empty; a roll examines the ledger only after all appends "
        "are acknowledged",
    ),
    Mutation(
        "leader_half_sent_batch_is_definite",
        "ledgerlog_spark/client/append_queue.py",
        "begins_unknown = is_unknown or (has_unknown_part and not run.waiters)",
        "begins_unknown = is_unknown",
        "a batch of which the first part may be in the log failed for certain",
    ),
    Mutation(
        "leader_numbers_what_was_acknowledged_wrong",
        f"{LOG}/leader/entries_in_flight.py",
        "in enumerate(done, last_entry_id - (last - first)):",
        "in enumerate(done, last_entry_id + 1 - (last - first)):",
        "positions name the next entry instead of their own",
    ),
    Mutation(
        "opening_gives_up_over_a_ledger_that_left_the_list",
        f"{PROTOCOL}/leader/opening.py",
        "        if is_gone and self._head.version != self._missed:\n",
        "        if False:\n",
        "a takeover fails because another one, and the sweeper, came first",
    ),
    Mutation(
        "leader_uses_the_next_ledger_before_it_is_listed",
        f"{PROTOCOL}/leader/rolling.py",
        "        return self.next in self.listed\n",
        "        return self.next is not None\n",
        "appends are acknowledged in a ledger that no other leader finds",
    ),
    Mutation(
        "leader_counts_the_end_by_the_last_append",
        f"{PROTOCOL}/leader/appends.py",
        "        self.end_offset = last.first_offset + last.records\n",
        "        self.end_offset += last.records\n",
        "the end is below appends that were acknowledged together",
    ),
    Mutation(
        "leader_tries_again_to_close_what_another_recovered",
        f"{PROTOCOL}/leader/leader.py",
        "        assert event.request == self._closing.request\n"
        "        if isinstance(event.error, LOST):\n"
        "            return self._stop(self._appends.deposed(event.error))\n",
        "        assert event.request == self._closing.request\n",
        "a replaced leader continues in its next ledger",
    ),
    Mutation(
        "leader_lists_its_next_ledger_first",
        f"{PROTOCOL}/leader/list.py",
        "opened = (*opened, OpenLedger(added, end_offset, now_ms))",
        "opened = (OpenLedger(added, end_offset, now_ms), *opened)",
        "of two open ledgers the younger one is read first",
    ),
    Mutation(
        "tail_reads_beyond_what_is_confirmed",
        f"{LOG}/reading/record_reader.py",
        "entries = self._acknowledged(handle, next_entry_id, last_entry_id)",
        "last_entry_id += 1\n"
        "                    entries = self._acknowledged(handle, next_entry_id, last_entry_id)",
        "a tail gives records that a recovery may cut off",
    ),
    Mutation(
        "opening_takes_an_unknown_outcome_for_a_failure",
        f"{PROTOCOL}/leader/opening.py",
        "        if self._own is not None and open_ids(head) == (self._own,):\n",
        "        is_mine = self._own is not None and not self._is_unsure\n"
        "        if is_mine and open_ids(head) == (self._own,):\n",
        "a leader seals the ledger that it has just listed unheard",
    ),
    Mutation(
        "ended_leader_keeps_its_timers",
        f"{LOG}/leader/host.py",
        "        self._cancel_timers()\n",
        "",
        "a leader that ended is woken by its timers, for hours",
    ),
    Mutation(
        "ended_leader_watches_the_head",
        f"{LOG}/leader/host.py",
        "            self._cancel_watch()\n",
        "",
        "each leader that ends leaves a watch",
    ),
    Mutation(
        "unsent_appends_are_never_answered",
        "ledgerlog_spark/client/append_queue.py",
        "            run.fail(error if is_unknown or has_unknown_part else self.refusal())\n",
        "            if place < sent:\n"
        "                run.fail(error if is_unknown or has_unknown_part else self.refusal())\n",
        "appends that waited for room when the leader stopped wait forever",
    ),
    Mutation(
        "positions_keep_pieces_of_earlier_batches",
        f"{LOG}/leader/entries_in_flight.py",
        "            self.cut = []\n        elif",
        "            pass\n        elif",
        "a batch after a divided batch has the places of both",
    ),
    Mutation(
        "truncation_to_the_very_end_does_not_roll",
        f"{LOG}/leader/leader.py",
        "if self._head.end_offset < offset <= self.end_offset:",
        "if self._head.end_offset < offset < self.end_offset:",
        "a leader refuses to truncate its log to the end",
    ),
    Mutation(
        "close_returns_before_the_list_is_changed",
        f"{PROTOCOL}/leader/leader.py",
        "is_list_done = self._list.has_ended and not self._ledgers.listed",
        "is_list_done = self._list.has_ended",
        "a leader that closed leaves its ledger on the list as an open one",
    ),
    Mutation(
        "leader_close_says_its_own_end",
        f"{LOG}/leader/leader.py",
        "        return self._head.end_offset  # another leader",
        "        return self.end_offset  # another leader",
        "a close reports an end of the log before records that the log has",
    ),
    Mutation(
        "roll_returns_before_the_earlier_ledger_is_an_item",
        f"{LOG}/leader/leader.py",
        "            while self._lists(left) and self._error is None:\n",
        "            while self._ledger_id == left and self._error is None:\n",
        "the earlier ledger is still open when a roll returns",
    ),
    Mutation(
        "sealed_ledger_ends_before_its_last_entry",
        f"{LOG}/leader/host.py",
        "            end_offset=last.end_offset,\n",
        "            end_offset=last.first_offset,\n",
        "the next leader gives the offsets of the last entry out again",
    ),
    Mutation(
        "leader_ages_its_ledger_from_the_epoch",
        f"{PROTOCOL}/leader/rolling.py",
        "        self.current.opened_ms = now_ms\n",
        "",
        "every ledger but the first is rolled at its first append",
    ),
    Mutation(
        "leader_forgets_no_failure",
        f"{PROTOCOL}/leader/attempts.py",
        "        self.request = self._failures = 0\n        self.error = None\n",
        "        self.request = 0\n        self.error = None\n",
        "a leader ends when so many attempts failed in all its life",
    ),
    Mutation(
        "look_forgets_a_change_meanwhile",
        f"{PROTOCOL}/leader/leader.py",
        "        self._looking.succeed()\n",
        "        self._looking.succeed()\n        self._is_look_due = False\n",
        "a deletion during a look at the head is never noticed",
    ),
    Mutation(
        "leader_window_takes_one_more",
        f"{PROTOCOL}/leader/appends.py",
        "return pending < self._window.entries_max and",
        "return pending <= self._window.entries_max and",
        "more appends are on their way than the window allows",
    ),
    Mutation(
        "leader_never_rolls_by_size",
        f"{PROTOCOL}/leader/rolling.py",
        "self.wants_roll = self.wants_roll or is_large or is_old",
        "self.wants_roll = self.wants_roll or is_old",
        "ledgers grow beyond `rollBytes`",
    ),
    Mutation(
        "end_watch_follows_no_ledger",
        f"{LOG}/reading/end_watch.py",
        "                handle.follow(self._on_ledger)\n",
        "",
        "a stream is not notified of appends between two changes of the list",
    ),
    Mutation(
        "end_watch_tells_after_it_was_cancelled",
        f"{LOG}/reading/end_watch.py",
        "        if not self._is_cancelled:\n            notify(self._on_change)",
        "        notify(self._on_change)",
        "the callback of a cancelled watch is called",
    ),
    Mutation(
        "tail_follows_a_ledger_twice",
        f"{LOG}/reading/record_reader.py",
        "                finished.add(ledger.ledger_id)\n",
        "",
        "a tail reads a ledger again that it has read to its end",
    ),
    Mutation(
        "read_may_begin_anywhere",
        f"{LOG}/reading/record_reader.py",
        "        if not view.start_offset <= first <= view.end_offset:\n",
        "        if False:\n",
        "a read from a truncated position returns records of another position",
    ),
]
