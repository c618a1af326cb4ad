"""Mistakes in the add pipeline."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

PROTOCOL = "ledgerlog_spark/protocol"

MUTATIONS = [
    Mutation(
        "pipeline_confirms_with_one_answer_less",
        f"{PROTOCOL}/ledger/write/add_pipeline.py",
        "return acked.bit_count() >= self._ack_quorum",
        "return acked.bit_count() >= self._ack_quorum - 1",
        "an entry is confirmed on too few bookies",
    ),
    Mutation(
        "pipeline_confirms_while_paused",
        f"{PROTOCOL}/ledger/write/add_pipeline.py",
        "while self._unconfirmed and not self.is_paused:",
        "while self._unconfirmed:",
        "the LAC passes the first entry of the fragment that is being written",
    ),
    Mutation(
        "pipeline_sends_nothing_missing_to_replacements",
        f"{PROTOCOL}/ledger/write/add_pipeline.py",
        "return [effect for index in indexes for effect in self._send_missing(index)]",
        "return []",
        "pending runs never reach the replacement",
    ),
    Mutation(
        "pipeline_resends_pending_runs_only",
        f"{PROTOCOL}/ledger/write/add_pipeline.py",
        """            for pending in (*self._late.values(), *self._unconfirmed)
            if pending.owners & bit""",
        """            for pending in self._unconfirmed
            if pending.owners & bit""",
        "confirmed runs are never stored by the bookie that missed them, and fill the window",
    ),
    Mutation(
        "pipeline_keeps_late_runs_of_replaced",
        f"{PROTOCOL}/ledger/write/add_pipeline.py",
        """            for pending in tuple(self._late.values()):
                self._let_off(pending, index)
            self._end_suspension(index)
        self.ensemble""",
        """            self._end_suspension(index)
        self.ensemble""",
        "the window never empties after a change",
    ),
    Mutation(
        "pipeline_stays_suspended_after_replacement",
        f"{PROTOCOL}/ledger/write/add_pipeline.py",
        """            self._end_suspension(index)
        self.ensemble = ensemble""",
        """        self.ensemble = ensemble""",
        "runs added after a change are not sent to the replacement",
    ),
    Mutation(
        "pipeline_stays_suspended_after_resend",
        f"{PROTOCOL}/ledger/write/add_pipeline.py",
        """all runs that it has not stored.\"\"\"
        self._end_suspension(index)""",
        """all runs that it has not stored.\"\"\"""",
        "a bookie that is tried again gets nothing new",
    ),
    Mutation(
        "pipeline_length_forgets_run",
        f"{PROTOCOL}/ledger/write/add_pipeline.py",
        "        self._length_sent += size_bytes\n",
        "",
        "headers carry a wrong length",
    ),
    Mutation(
        "pipeline_lac_of_first_entry",
        f"{PROTOCOL}/ledger/write/add_pipeline.py",
        "        self.last_add_confirmed = run.last_entry_id\n        self.length",
        "        self.last_add_confirmed = run.first_entry_id\n        self.length",
        "the LAC stops within a run of several entries",
    ),
    Mutation(
        "pipeline_recovery_headers_move_their_lac",
        f"{PROTOCOL}/ledger/write/add_pipeline.py",
        "return self._lac_found if self.is_recovery else self.last_add_confirmed",
        "return self.last_add_confirmed",
        "readers may see a LAC above the closed end",
    ),
    Mutation(
        "pipeline_never_releases_window",
        f"{PROTOCOL}/ledger/write/add_pipeline.py",
        "                self.entries_in_flight -= run.entries\n",
        "",
        "the window fills and the writer stops",
    ),
    Mutation(
        "pipeline_keeps_what_was_answered",
        f"{PROTOCOL}/ledger/write/add_pipeline.py",
        "sent = self._sent.pop(reply.request, None)",
        "sent = self._sent.get(reply.request, None)",
        "a writer keeps every payload that it ever sent",
    ),
    Mutation(
        "pipeline_keeps_what_was_withdrawn",
        f"{PROTOCOL}/ledger/write/add_pipeline.py",
        "        self._unconfirmed.clear()\n",
        "",
        "a run is confirmed after its writer gave it up",
    ),
    Mutation(
        "pipeline_keeps_late_runs_when_withdrawn",
        f"{PROTOCOL}/ledger/write/add_pipeline.py",
        "        self._late.clear()\n",
        "",
        "runs of a writer that ended are sent again",
    ),
    Mutation(
        "pipeline_hears_answers_to_what_was_withdrawn",
        f"{PROTOCOL}/ledger/write/add_pipeline.py",
        "        self._sent.clear()\n",
        "",
        "answers count for runs that were given up",
    ),
    Mutation(
        "pipeline_counts_bytes_that_were_withdrawn",
        f"{PROTOCOL}/ledger/write/add_pipeline.py",
        "        self.size_bytes_in_flight = 0\n        return first",
        "        return first",
        "a writer counts bytes in flight and has none",
    ),
    Mutation(
        "pipeline_striped_entries_all_sent",
        f"{PROTOCOL}/ledger/write/add_pipeline.py",
        "entry_ids = owned if len(owned) < run.entries else None",
        "entry_ids = None",
        "bookies hold entries outside their write sets",
        equivalent="additional copies break no promise, and no rule limits the bytes on the wire",
    ),
    Mutation(
        "stuck_counts_what_is_not_out",
        f"{PROTOCOL}/ledger/write/add_pipeline.py",
        "        return not self._has_quorum(pending, possible)",
        "        return not self._has_quorum(pending, possible | pending.owners)",
        "a run that cannot be completed is awaited until its bookies are abandoned",
        equivalent="an owner that neither has the run nor gets a request is about to be replaced "
        "or abandoned",
    ),
]
