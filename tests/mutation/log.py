"""Mistakes in the machines of logs, and in upkeep."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

MUTATIONS = [
    Mutation(
        "check_confirms_nothing",
        "ledgerlog_spark/log/maintenance/check.py",
        "        await self._confirm(checked, listed, every_entry)\n",
        "",
        "an empty ledger that its leader deletes meanwhile is reported as damage",
    ),
    Mutation(
        "check_drops_what_changes",
        "ledgerlog_spark/log/maintenance/check.py",
        "                if ledger_id not in newer:\n",
        "                if True:\n",
        "damage in a ledger that is truncated meanwhile is not reported",
    ),
    Mutation(
        "commit_without_replay_check",
        "ledgerlog_spark/protocol/log/commit/commit.py",
        "return record.last_batch_id >= self._request.batch_id",
        "return record.last_batch_id > self._request.batch_id",
        "a batch that is committed again is doubled",
    ),
    Mutation(
        "commit_keeps_token",
        "ledgerlog_spark/protocol/log/transaction.py",
        "        self._token = token_after(self._token)\n",
        "        pass\n",
        "a later attempt uses pages that the sweeper touched",
    ),
    Mutation(
        "staged_sweep_marks_listed",
        "ledgerlog_spark/protocol/log/sweep.py",
        "unlisted=tuple(ledger for ledger in some if ledger not in listed),",
        "unlisted=tuple(some),",
        "committed ledgers are deleted",
    ),
    Mutation(
        "floor_of_first_entry",
        "ledgerlog_spark/protocol/log/seal.py",
        "self._floors[item.ledger_id] = item.last_entry_id",
        "self._floors[item.ledger_id] = item.first_entry_id",
        "recovery closes below committed entries",
    ),
    Mutation(
        "expiry_drops_cut_item",
        "ledgerlog_spark/protocol/log/change/expiry.py",
        "item.end_offset <= oldest.start_offset]",
        "item.first_offset < oldest.start_offset]",
        "a range that a version begins within counts as due, and costs a step of its own",
    ),
    Mutation(
        "overwrite_keeps_start",
        "ledgerlog_spark/protocol/log/commit/plan.py",
        "start_offset=head.end_offset if overwrites else head.start_offset,",
        "start_offset=head.start_offset,",
        "an overwrite keeps the old rows",
    ),
    Mutation(
        "epoch_not_raised",
        "ledgerlog_spark/protocol/log/commit/epoch.py",
        "epoch=record.epoch + 1,",
        "epoch=record.epoch,",
        "ledgers of replaced runs are not sealed",
    ),
    Mutation(
        "merge_of_open_ledgers",
        "ledgerlog_spark/upkeep/merging.py",
        "return metadata.password if metadata.is_closed else None",
        "return metadata.password",
        "a ledger in use is unlisted",
    ),
    Mutation(
        "pages_sweep_ends_at_current_schema",
        "ledgerlog_spark/protocol/log/sweep.py",
        "ListWalk(kind, paged, 0, end_key(kind, paged))",
        "ListWalk(kind, paged, 0, "
        "head.schema_id + 1 if paged is head.schemas else end_key(kind, paged))",
        "pages of schemas newer than the current one are deleted",
    ),
    Mutation(
        "upkeep_after_every_commit",
        "ledgerlog_spark/upkeep/upkeep.py",
        "if not version or version % COMMITS_BETWEEN:",
        "if not version:",
        "each batch of a stream begins a pass of upkeep",
    ),
    Mutation(
        "older_run_is_sealed_without_floor",
        "ledgerlog_spark/log/maintenance/older_ledgers.py",
        "floor_entry_id=floors[i]",
        "floor_entry_id=-1",
        "entries that a replaced run committed may be cut off",
    ),
    Mutation(
        "older_run_that_could_not_be_sealed_counts_as_sealed",
        "ledgerlog_spark/log/maintenance/older_ledgers.py",
        "                left.append(ledger_id)\n",
        "",
        "a ledger that could not be sealed stays open, and the seal is not retried",
    ),
    Mutation(
        "page_takes_more_than_it_holds",
        "ledgerlog_spark/protocol/log/state/pages.py",
        "return ref.size_bytes + size_bytes <= PAGE_BODY_SIZE_BYTES_MAX",
        "return ref.size_bytes <= PAGE_BODY_SIZE_BYTES_MAX",
        "a page grows beyond the limit of the store",
    ),
    Mutation(
        "page_is_written_again_without_its_records",
        "ledgerlog_spark/protocol/log/state/pages.py",
        "        recent = (*loaded[kept[-1].token, kept[-1].number], *recent)\n",
        "",
        "the records of the last page are lost when it is written again",
    ),
    Mutation(
        "index_page_is_written_again_without_its_references",
        "ledgerlog_spark/protocol/log/state/pages.py",
        "            moved, index = (*last, *moved), index[:-1]\n",
        "            index = index[:-1]\n",
        "a whole index page of records is lost",
    ),
    Mutation(
        "page_with_both_sides_of_a_cut_is_dropped",
        "ledgerlog_spark/protocol/log/state/pages.py",
        "tuple(ref for ref in paged.pages if ref.end_key > key),",
        "tuple(ref for ref in paged.pages if ref.first_key >= key),",
        "records after the offset of a truncation are lost with the records before it",
    ),
    Mutation(
        "selection_takes_what_ends_at_its_start",
        "ledgerlog_spark/protocol/log/state/pages.py",
        "first = bisect_right(records, first_key, key=kind.end_key)",
        "first = bisect_left(records, first_key, key=kind.end_key)",
        "a version is read with the range before its start",
    ),
    Mutation(
        "truncation_moves_start_back",
        "ledgerlog_spark/protocol/log/change/truncate.py",
        "replace(step.head, start_offset=max(head.start_offset, offset))",
        "replace(step.head, start_offset=offset)",
        "rows that were replaced or dropped come back",
    ),
    Mutation(
        "truncation_beyond_the_end",
        "ledgerlog_spark/protocol/log/change/truncate.py",
        "if not 0 <= self._offset <= head.end_offset:",
        "if self._offset < 0:",
        "a log begins after its end",
    ),
    Mutation(
        "truncation_ends_all_older_versions",
        "ledgerlog_spark/protocol/log/change/truncate.py",
        "return next(v for v in history if v.start_offset >= offset), None",
        "return history[-1], None",
        "versions that have all their rows can no longer be read",
    ),
    Mutation(
        "truncation_is_dated_by_the_clock_alone",
        "ledgerlog_spark/protocol/log/state/records.py",
        "        commit_time_ms=max(head.commit_time_ms + 1, now_ms),\n        token",
        "        commit_time_ms=now_ms,\n        token",
        "commit times fall, so a time names another version",
    ),
    Mutation(
        "retention_keeps_less_than_its_bytes",
        "ledgerlog_spark/protocol/log/change/retention.py",
        """        surplus_bytes -= item.size_bytes
        if surplus_bytes < 0:
            break
""",
        """        if surplus_bytes < 0:
            break
        surplus_bytes -= item.size_bytes
""",
        "a log holds one item less than it has to",
    ),
    Mutation(
        "retention_ends_versions_for_nothing",
        "ledgerlog_spark/protocol/log/change/retention.py",
        "return offset if gone - kept else 0",
        "return offset",
        "rows are dropped although no ledger becomes free",
    ),
    Mutation(
        "retention_drops_what_has_no_time",
        "ledgerlog_spark/protocol/log/change/retention.py",
        "if 0 < i.newest_ms < since_ms), default=0",
        "if i.newest_ms < since_ms), default=0",
        "items without a time count as old",
    ),
    Mutation(
        "restore_keeps_newest_schema",
        "ledgerlog_spark/protocol/log/commit/restore.py",
        "            schema_id=old.schema_id,\n",
        "            schema_id=head.schema_id,\n",
        "a restored version has columns that it did not have",
    ),
    Mutation(
        "restore_lists_ranges_under_newest_schema",
        "ledgerlog_spark/protocol/log/commit/restore.py",
        "            replace(new, schema_id=item.schema_id) for new, item in zip("
        "again, items, strict=True)",
        "            new for new, item in zip(again, items, strict=True)",
        "old ranges are read with the newest schema",
    ),
    Mutation(
        "restore_lists_whole_range_over_end",
        "ledgerlog_spark/protocol/log/commit/restore.py",
        "        if item.first_offset < start or item.end_offset > end\n",
        "        if item.first_offset < start\n",
        "a merged range that reaches over the version's end is listed whole",
    ),
    Mutation(
        "restore_of_other_columns_does_nothing",
        "ledgerlog_spark/protocol/log/commit/restore.py",
        "if is_same and old.schema_id == head.schema_id:",
        "if is_same:",
        "a version that differs in its columns alone is not restored",
    ),
    Mutation(
        "change_of_unknown_outcome_did_not_happen",
        "ledgerlog_spark/protocol/log/transaction.py",
        "                self._is_unsure = True\n",
        "                pass\n",
        "a change of the head that may have happened is reported as not happened",
    ),
    Mutation(
        "change_keeps_its_token",
        "ledgerlog_spark/protocol/log/transaction.py",
        "        self._attempts += 1\n        self._next_token()\n",
        "        self._attempts += 1\n",
        "a later attempt uses pages that the sweeper touched",
    ),
    Mutation(
        "change_is_tried_for_ever",
        "ledgerlog_spark/protocol/log/transaction.py",
        "        if self._attempts >= ATTEMPTS_MAX:\n",
        "        if False:\n",
        "a change that is always overtaken never ends",
    ),
    Mutation(
        "pages_are_deleted_after_unknown_touch",
        "ledgerlog_spark/protocol/log/sweep.py",
        "            if reply.outcome is MetadataOutcome.OK:\n                touched",
        "            if reply.outcome is not MetadataOutcome.GONE:\n                touched",
        "a commit names pages whose deletion it could not notice",
    ),
    Mutation(
        "ledger_sweep_looks_once",
        "ledgerlog_spark/protocol/log/sweep.py",
        """            return ()
        yield from self._look(self._keep_unlisted)
        deleted = []
""",
        """            return ()
        deleted = []
""",
        "a ledger that was listed again during a sweep is deleted",
    ),
    Mutation(
        "ledger_sweep_goes_on_when_crossed",
        "ledgerlog_spark/protocol/log/sweep.py",
        "        if self.is_crossed:\n            return ()\n",
        "",
        "a ledger is deleted while its producer still commits it",
    ),
]
