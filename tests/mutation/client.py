"""Mistakes in hosts of ledgers and the transport."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

MUTATIONS = [
    Mutation(
        "host_cas_timeout_is_definite",
        "ledgerlog_spark/client/machine_host.py",
        "outcome = MetadataOutcome.UNKNOWN",
        "outcome = MetadataOutcome.UNAVAILABLE",
        "a record that was written counts as unwritten",
    ),
    Mutation(
        "reader_reopens_closed",
        "ledgerlog_spark/client/reader_handle.py",
        "if self.metadata.is_closed and not metadata.is_closed:",
        "if False:",
        "a stale replica opens a closed ledger",
    ),
    Mutation(
        "handle_ids_not_shifted",
        "ledgerlog_spark/client/writer_handle.py",
        "        run.first_entry_id = self._writer.next_entry_id\n",
        "        run.first_entry_id = 0\n",
        "appends get wrong entry ids",
    ),
    Mutation(
        "run_answered_by_last_entry",
        "ledgerlog_spark/transport/pending.py",
        "self._code = worst(self._code, code)",
        "self._code = code",
        "a run counts as stored though an entry was refused",
    ),
    Mutation(
        "refusal_never",
        "ledgerlog_spark/client/append_pace.py",
        "BACKLOGS_MAX = 16",
        "BACKLOGS_MAX = 1 << 40",
        "the backlog is unbounded",
    ),
    Mutation(
        "drawn_id_used_twice",
        "ledgerlog_spark/client/drawn_ids.py",
        "        del self._ids[ledger_id]\n        return",
        "        return",
        "two ledgers get one id",
    ),
    Mutation(
        "drain_never_woken",
        "ledgerlog_spark/client/writer_handle.py",
        "            _wake(self._room)\n\n    def _send",
        "            pass\n\n    def _send",
        "drain hangs",
    ),
    Mutation(
        "cut_off_runs_lost",
        "ledgerlog_spark/transport/v2_link.py",
        "_fail_all([*runs, *waiting])",
        "_fail_all([*waiting])",
        "a run is never answered",
    ),
    Mutation(
        "lac_of_closed_rises",
        "ledgerlog_spark/client/reader_handle.py",
        "if not self.metadata.is_closed and last_add_confirmed >",
        "if last_add_confirmed >",
        "a reader passes the closed end",
    ),
]
