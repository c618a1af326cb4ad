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
    Mutation(
        "expiry_drops_cut_item",
        "ledgerlog_spark/protocol/log_expiry.py",
        "item.end_offset <= oldest.start_offset]",
        "item.first_offset < oldest.start_offset]",
        "rows of retained versions are dropped",
    ),
    Mutation(
        "overwrite_keeps_start",
        "ledgerlog_spark/protocol/log_commit_plan.py",
        "start_offset=head.end_offset if overwrites else head.start_offset,",
        "start_offset=head.start_offset,",
        "an overwrite keeps the old rows",
    ),
    Mutation(
        "epoch_not_raised",
        "ledgerlog_spark/protocol/log_epoch.py",
        "epoch=record.epoch + 1,",
        "epoch=record.epoch,",
        "ledgers of replaced runs are not sealed",
    ),
    Mutation(
        "registration_unchecked",
        "ledgerlog_spark/metadata/log_producers.py",
        "            CheckNode(self._paths.producer(log_id, app), version),\n",
        "",
        "a zombie registers ledgers",
    ),
    Mutation(
        "clock_not_counted_on",
        "ledgerlog_spark/metadata/store_clock.py",
        "return self._store_ms + age_ms",
        "return self._store_ms",
        "the clock stands still",
    ),
    Mutation(
        "merge_of_open_ledgers",
        "ledgerlog_spark/upkeep/merge_plan.py",
        "if ledger is None or not ledger.is_closed or not is_small:",
        "if ledger is None or not is_small:",
        "a ledger in use is let go",
    ),
    Mutation(
        "pages_sweep_ends_at_current_schema",
        "ledgerlog_spark/protocol/log_sweep.py",
        "Walk(SCHEMAS, head.schemas, 0, end_key(SCHEMAS, head.schemas)),",
        "Walk(SCHEMAS, head.schemas, 0, head.schema_id + 1),",
        "pages of schemas newer than the current one are deleted",
    ),
]
