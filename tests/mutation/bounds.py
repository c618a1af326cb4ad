"""Mistakes in the ends of open ledgers and in what upkeep reads of long lists."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

MUTATIONS = [
    Mutation(
        "known_end_not_kept",
        "ledgerlog_spark/client/reader_handle.py",
        "            self._ends.rise(self.id, last_add_confirmed)\n",
        "",
        "the end falls when a bookie that lags answers the next look",
    ),
    Mutation(
        "known_end_not_used_by_looks",
        "ledgerlog_spark/client/reader_handle.py",
        "        self._raise_lac(self._ends.last_add_confirmed(self.id))\n",
        "",
        "a handle asks again and sees less than another one of its client",
    ),
    Mutation(
        "known_close_not_used",
        "ledgerlog_spark/client/reader_handle.py",
        "        metadata = self._ends.newest(self.id, metadata)\n",
        "",
        "a ledger that was seen closed is open again",
    ),
    Mutation(
        "made_up_end_kept",
        "ledgerlog_spark/client/reader_handle.py",
        "            self._ends.forget_from(self.id, reading.reader.next_entry_id)\n",
        "",
        "one wrong answer of a bookie spoils a ledger's end for good",
    ),
    Mutation(
        "seen_end_ignored",
        "ledgerlog_spark/log/open_ends.py",
        "while end_offset < seen_offset and not handle.is_closed:",
        "while False:",
        "a stream that starts again takes a bookie that lags for a loss",
    ),
    Mutation(
        "seen_end_of_an_old_list",
        "ledgerlog_spark/log/newest_view.py",
        "seen = seen_offset if is_fresh else 0",
        "seen = seen_offset",
        "entries of a ledger that was closed before them count as the log's",
    ),
    Mutation(
        "lost_records_are_an_error",
        "ledgerlog_spark/log/open_ends.py",
        "        except EntryNotFoundError:\n            break",
        "        except LedgerNotFoundError:\n            break",
        "a log that lost records cannot be looked at any more",
    ),
    Mutation(
        "cut_walk_takes_the_head",
        "ledgerlog_spark/protocol/log_walk.py",
        "        if not self.is_cut:\n            everything",
        "        if True:\n            everything",
        "the oldest items are followed by the newest, as if nothing lay between",
    ),
    Mutation(
        "expiry_ends_with_what_was_read",
        "ledgerlog_spark/protocol/log_expiry.py",
        "if walked[0].is_cut and oldest is history[-1]:",
        "if False:",
        "of very many versions the first few thousand expire in a pass, the others an hour later",
    ),
    Mutation(
        "retention_forgets_what_it_did_not_read",
        "ledgerlog_spark/protocol/log_retention.py",
        "if oldest.is_cut and not younger:",
        "if False:",
        "a long log's old ranges stay until the age of the log has passed once more",
    ),
    Mutation(
        "partial_page_counts_whole",
        "ledgerlog_spark/protocol/log_retention.py",
        "                page = select(ITEMS, page, self._first_key, self._end_key)\n",
        "",
        "retention by size counts ranges that are dropped, and drops more than it may",
    ),
    Mutation(
        "page_sizes_not_used",
        "ledgerlog_spark/protocol/log_retention.py",
        "if not self._is_known(ref)",
        "if True",
        "each pass of retention by size reads the whole list",
    ),
    Mutation(
        "truncation_within_versions_stops_early",
        "ledgerlog_spark/protocol/log_truncate.py",
        "if newest.start_offset >= offset or not self._history.is_cut:",
        "if True:",
        "a truncation to where an old version begins fails when there are many",
    ),
]
