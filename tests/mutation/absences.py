"""Mistakes with absent bookies, lost members and the reports of holes."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

WRITE = "ledgerlog_spark/protocol/ledger/write"
CLIENT = "ledgerlog_spark/client"

MUTATIONS = [
    Mutation(
        "absence_without_an_ack_quorum",
        f"{WRITE}/absences.py",
        "        if not is_acknowledged(self._quorum, answering, 0, size):\n"
        "            return False\n",
        "        _ = answering\n",
        "a writer without an ack quorum never ends",
    ),
    Mutation(
        "full_window_waits_for_the_dead",
        f"{WRITE}/absences.py",
        "        if not self._pipeline.can_add:\n            self.leave_out(",
        "        if False:\n            self.leave_out(",
        "appends stop until the last retry when the window is full",
    ),
    Mutation(
        "returns_in_vain_are_not_rarer",
        f"{WRITE}/absences.py",
        "(1 << min(returns, DOUBLINGS_MAX)) - 1",
        "0",
        "a bookie behind a partition begins a fragment every 5 s",
    ),
    Mutation(
        "stored_entries_do_not_end_the_rarity",
        f"{WRITE}/absences.py",
        '"""Record that the bookie at `index` stored an entry."""\n'
        "        self.returns.pop(index, None)",
        '"""Record that the bookie at `index` stored an entry."""',
        "a bookie that was away some times returns late for ever",
    ),
    Mutation(
        "confirmed_runs_wait_for_the_absent",
        f"{WRITE}/add_pipeline.py",
        "        if self._absent:\n            for index in _indexes(self._absent):\n"
        "                self._let_off(pending, index)\n",
        "",
        "the window fills with what an absent bookie lacks",
    ),
    Mutation(
        "hole_is_only_its_newest_run",
        f"{WRITE}/add_pipeline.py",
        "min(first, run.first_entry_id), max(last, run.last_entry_id)",
        "run.first_entry_id, max(last, run.last_entry_id)",
        "older missing entries are in no report",
    ),
    Mutation(
        "resent_bookie_stays_absent",
        f"{WRITE}/add_pipeline.py",
        "        self._absent &= ~(1 << index)\n",
        "",
        "a bookie that returned gets nothing that is confirmed first by the others",
    ),
    Mutation(
        "holes_of_the_close_are_not_reported",
        f"{WRITE}/writer.py",
        "        self._pipeline.note_holes_of_suspended()\n",
        "",
        "what a failed bookie lacks at the close is in no report",
    ),
    Mutation(
        "absent_bookie_is_looked_for_with_a_pause",
        f"{WRITE}/writer.py",
        "return self._begin_change() if self._absences.others else self._look_for_absent()",
        "return self._begin_change()",
        "each look for an absent bookie stops the confirmation",
    ),
    Mutation(
        "lost_bookie_without_a_spare_is_left_out",
        f"{WRITE}/writer.py",
        "            elif index in self._lost:\n"
        "                self._failed.replaced(index, ensemble[index])\n"
        "                effects += self._pipeline.resend(index)\n",
        "",
        "a bookie that only lost its session gets no entries",
    ),
    Mutation(
        "change_after_a_return_keeps_the_fragment",
        f"{WRITE}/ensemble_change.py",
        "if ensemble == last.ensemble and (is_begun or not self.returned):",
        "if ensemble == last.ensemble:",
        "the hole stays in the last fragment",
    ),
    Mutation(
        "read_only_bookies_count_as_away",
        f"{CLIENT}/services.py",
        "                *await self.registration.read_only(),\n            }\n",
        "            }\n",
        "a new ledger names a full bookie, which refuses its entries",
    ),
    Mutation(
        "bookie_is_lost_at_once",
        f"{CLIENT}/lost_members.py",
        "if now_s - since >= LOST_SECONDS]",
        "if now_s >= since]",
        "a restart of a bookie changes all ensembles",
    ),
    Mutation(
        "outage_of_the_store_loses_all_bookies",
        f"{CLIENT}/lost_members.py",
        "        if now_s < self._quiet_until:\n            return []\n",
        "",
        "bookies that register a moment after the store returned are replaced",
    ),
    Mutation(
        "lost_bookies_without_a_spare_are_announced",
        f"{CLIENT}/lost_members.py",
        "if bookie_id in one.ensemble and self._writable.difference(one.ensemble)",
        "if bookie_id in one.ensemble",
        "all idle writers list the bookies every 10 s",
    ),
    Mutation(
        "report_is_not_repeated",
        f"{CLIENT}/hole_reports.py",
        "if delay_ms is None or not error.retriable:",
        "if True:",
        "a hole is not noted because of one lost connection",
    ),
    Mutation(
        "hole_of_one_fragment_only",
        f"{CLIENT}/hole_reports.py",
        "first = max(fragment.first_entry_id, hole.first_entry_id)",
        "first = hole.first_entry_id",
        "a note names entries of another fragment",
    ),
]
