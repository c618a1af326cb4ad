"""Mistakes in the waits of a ledger's machines: for which bookies, how long, with which counts."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

PROTOCOL = "ledgerlog_spark/protocol"

_FAILED_BOOKIES = [
    Mutation(
        "bookies_that_failed_often_are_never_tried_again",
        f"{PROTOCOL}/ledger/write/ensemble_change.py",
        "        self._waiting.clear()\n        self._counts_lately.clear()\n",
        "        self._waiting.clear()\n",
        "a writer finds no replacement although all bookies are back",
    ),
    Mutation(
        "another_ensemble_inherits_failures_in_a_row",
        f"{PROTOCOL}/ledger/write/ensemble_change.py",
        "            forgotten.clear()\n        self._counts_lately.clear()\n",
        "            forgotten.clear()\n",
        "bookies that failed before another process changed the ensemble are passed over",
    ),
    Mutation(
        "settled_index_goes_on_waiting",
        f"{PROTOCOL}/ledger/write/ensemble_change.py",
        "        self._waiting.discard(index)\n",
        "",
        "a bookie that just failed gets no moment before it is tried again",
    ),
    Mutation(
        "waits_for_a_replacement_are_counted_for_ever",
        f"{PROTOCOL}/ledger/write/ensemble_change.py",
        "        self.rounds.pop(index, None)\n",
        "",
        "a writer ends after so many short failures of one bookie in its whole life",
    ),
    Mutation(
        "bookie_that_answered_is_named_in_errors",
        f"{PROTOCOL}/ledger/write/ensemble_change.py",
        "        self.rounds.pop(index, None)\n        self.codes.pop(bookie_id, None)\n",
        "        self.rounds.pop(index, None)\n",
        "an error names a bookie that has long been well",
    ),
]

_BUSY = [
    Mutation(
        "reader_counts_pauses_over_a_whole_range",
        f"{PROTOCOL}/ledger/read/reader.py",
        "self._reloads = self._busy_rounds = 0\n",
        "self._reloads = 0\n",
        "a long read ends after twenty single pauses that were not in a row",
    ),
    Mutation(
        "reader_counts_loads_over_a_whole_range",
        f"{PROTOCOL}/ledger/read/reader.py",
        "self._reloads = self._busy_rounds = 0\n",
        "self._busy_rounds = 0\n",
        "a long read ends after three entries that were each looked for again",
    ),
    Mutation(
        "refusals_count_although_something_was_stored",
        f"{PROTOCOL}/ledger/overload.py",
        "        busy.rounds = 0\n",
        "",
        "a bookie that is slow for long and stores all the time ends a writer",
    ),
    Mutation(
        "bookie_without_runs_stays_busy",
        f"{PROTOCOL}/ledger/overload.py",
        "        if not runs:\n            del self.waits[index]\n",
        "",
        "another bookie that refuses alone is not replaced",
    ),
    Mutation(
        "writer_without_changes_replaces_busy",
        "ledgerlog_spark/protocol/ledger/write/writer.py",
        "if self._may_change and self._busy.should_be_replaced(refused.index):",
        "if self._busy.should_be_replaced(refused.index):",
        "a writer that may change no ensemble ends at a busy bookie although its quorum answers",
    ),
]

_ROOM = [
    Mutation(
        "reader_that_is_over_holds_room",
        f"{PROTOCOL}/ledger/read_room.py",
        "        self._of_reader = self._on_room = None\n        self.is_denied",
        "        self._on_room = None\n        self.is_denied",
        "the other ranges of a task wait for room that a reader that failed keeps",
    ),
    Mutation(
        "reader_that_is_over_is_told_of_its_turn",
        f"{PROTOCOL}/ledger/read_room.py",
        "        self._of_reader = self._on_room = None\n        self.is_denied",
        "        self._of_reader = None\n        self.is_denied",
        "a reader that ended is given an event",
    ),
    Mutation(
        "room_keeps_ranges_that_were_left",
        f"{PROTOCOL}/ledger/read_room.py",
        "            self._places.remove(place)\n",
        "            pass\n",
        "a consumer of many ranges keeps something of each",
    ),
]

MUTATIONS = [*_FAILED_BOOKIES, *_BUSY, *_ROOM]
