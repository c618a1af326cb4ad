"""Mistakes in the machines and hosts of logs."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

MUTATIONS = [
    Mutation(
        "commit_without_replay_check",
        "ledgerlog_spark/protocol/log_commit.py",
        "return record.last_batch_id >= self._request.batch_id",
        "return record.last_batch_id > self._request.batch_id",
        "a batch that is committed again is doubled",
    ),
    Mutation(
        "commit_keeps_token",
        "ledgerlog_spark/protocol/log_commit.py",
        "        self._token = token_after(self._token)\n",
        "        pass\n",
        "a later attempt uses pages that the sweeper touched",
    ),
    Mutation(
        "staged_sweep_marks_listed",
        "ledgerlog_spark/protocol/log_sweep.py",
        "unlisted=tuple(ledger for ledger in some if ledger not in listed),",
        "unlisted=tuple(some),",
        "committed ledgers are deleted",
    ),
    Mutation(
        "floor_of_first_entry",
        "ledgerlog_spark/protocol/log_floor.py",
        "self._floors[item.ledger_id] = item.last_entry_id",
        "self._floors[item.ledger_id] = item.first_entry_id",
        "recovery closes below committed entries",
    ),
    Mutation(
        "range_buffer_unbounded",
        "ledgerlog_spark/log/range_writer.py",
        "while self._pending_size_bytes > PENDING_SIZE_BYTES_MAX:",
        "while False:",
        "memory grows with the range",
    ),
]
