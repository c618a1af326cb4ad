"""Mistakes in leaders of logs."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

MUTATIONS = [
    Mutation(
        "leader_switches_while_ordered",
        "ledgerlog_spark/protocol/leader_rolling.py",
        "return not appends.has_ordered",
        "return True",
        "pending appends are ordered a second time",
    ),
    Mutation(
        "leader_times_fall",
        "ledgerlog_spark/protocol/leader_appends.py",
        "self.last_ms = max(self.last_ms, event.now_ms)",
        "self.last_ms = event.now_ms",
        "append times fall when the clock goes back",
    ),
    Mutation(
        "leader_gap_unnoticed",
        "ledgerlog_spark/protocol/leader_list.py",
        "if ledger.end.first_offset != offset:",
        "if ledger.end.first_offset < offset:",
        "lost entries stay unnoticed",
    ),
    Mutation(
        "leader_window_never_empties",
        "ledgerlog_spark/protocol/leader_appends.py",
        "            self._size_bytes -= last.size_bytes\n",
        "",
        "the window fills and the leader stops",
    ),
    Mutation(
        "leader_entries_wait_unordered",
        "ledgerlog_spark/protocol/leader_appends.py",
        "self._waiting, self._ordered = self._ordered, deque()",
        "self._ordered = deque()",
        "appends of a broken ledger are forgotten",
    ),
    Mutation(
        "leader_opening_skips_seal",
        "ledgerlog_spark/protocol/leader_opening.py",
        "if ledger_id not in self._ends]",
        "if False]",
        "open ledgers are listed without being sealed",
    ),
]
