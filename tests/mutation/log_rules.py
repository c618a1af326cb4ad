"""Mistakes against the rules of logs: ranges, versions, grace, clocks, unknown outcomes."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

PROTOCOL = "ledgerlog_spark/protocol"
LOG = "ledgerlog_spark/log"
METADATA = "ledgerlog_spark/metadata"

_COMMITS = [
    Mutation(
        "overwrite_does_not_see_one_commit",
        f"{PROTOCOL}/log/commit/plan.py",
        "changed = head.version != request.planned_version",
        "changed = head.version > request.planned_version + 1",
        "an overwrite replaces one commit that was made after its planning",
    ),
    Mutation(
        "replay_of_a_stream_is_stale",
        f"{PROTOCOL}/log/commit/epoch.py",
        "if record.last_batch_id > self._batch_id:",
        "if record.last_batch_id >= self._batch_id:",
        "a stream that starts again with its last batch is refused",
    ),
    Mutation(
        "first_run_is_no_zombie",
        f"{PROTOCOL}/log/commit/epoch.py",
        "return self._run_id in record.runs[:-1]",
        "return self._run_id in record.runs[1:-1]",
        "the first run of a producer takes it over again",
    ),
    Mutation(
        "known_log_of_another_run",
        f"{PROTOCOL}/log/commit/result.py",
        "return record.current_run == request.run and record.last_batch_id < request.batch_id",
        "return record.last_batch_id < request.batch_id",
        "a replaced run commits from the state that its successor left",
    ),
    Mutation(
        "producer_record_keeps_its_batch",
        f"{PROTOCOL}/log/commit/commit.py",
        "            last_batch_id=request.batch_id,\n",
        "",
        "a batch that is committed again is not recognised",
    ),
    Mutation(
        "transaction_is_sent_again_when_the_head_moved",
        f"{PROTOCOL}/log/commit/commit.py",
        "unmoved = self._head is not None and self._head.version == write.head_version",
        "unmoved = self._head is not None",
        "a commit whose answer was lost repeats a transaction that must be refused, until it fails",
    ),
    Mutation(
        "last_look_keeps_its_token",
        f"{PROTOCOL}/log/transaction.py",
        """        self._next_token()
        if self._attempts >= ATTEMPTS_MAX:
""",
        """        if self._attempts < ATTEMPTS_MAX:
            self._next_token()
        if self._attempts >= ATTEMPTS_MAX:
""",
        "the attempt after the last one uses its pages, which the sweeper may have touched",
    ),
    Mutation(
        "merged_range_is_as_young_as_its_oldest_row",
        f"{PROTOCOL}/log/commit/merge.py",
        "newest_ms = max(item.newest_ms for item in replaced)",
        "newest_ms = min(item.newest_ms for item in replaced)",
        "retention drops merged rows that are young",
    ),
]

_LETTING_GO = [
    Mutation(
        "version_expires_by_when_it_was_made",
        f"{PROTOCOL}/log/change/expiry.py",
        "if following.commit_time_ms > since_ms:",
        "if version.commit_time_ms > since_ms:",
        "an old version expires immediately after it was replaced",
    ),
    Mutation(
        "expiry_goes_one_version_too_far",
        f"{PROTOCOL}/log/change/expiry.py",
        "        if following.commit_time_ms > since_ms:\n            return version\n",
        "        if following.commit_time_ms > since_ms:\n            return following\n",
        "the oldest version that is to be kept expires",
    ),
    Mutation(
        "grace_of_staged_ledgers_the_wrong_way",
        f"{PROTOCOL}/log/sweep.py",
        "if reply.now_ms - at_ms[i] > self._staging_ttl_ms",
        "if reply.now_ms - at_ms[i] < self._staging_ttl_ms",
        "ledgers of jobs at work are swept, and old ones stay",
    ),
    Mutation(
        "index_pages_are_swept",
        f"{PROTOCOL}/log/sweep.py",
        "            for ref in (*paged.index, *refs):\n",
        "            for ref in refs:\n",
        "the index of a long list is deleted",
    ),
    Mutation(
        "first_named_page_of_a_token_alone_is_kept",
        f"{METADATA}/logs/store.py",
        "            if int(number) not in kept:\n",
        "            if int(number) not in kept[:1]:\n",
        "of several pages that one commit wrote all but the first are deleted",
    ),
    Mutation(
        "young_pages_alone_are_swept",
        f"{LOG}/maintenance/sweeper.py",
        "if now_ms - created_ms[token] > grace_ms]",
        "if now_ms - created_ms[token] < grace_ms]",
        "pages that no head names stay forever",
    ),
    Mutation(
        "truncation_reads_a_version_twice",
        f"{PROTOCOL}/log/change/truncate.py",
        "            first = newest.version + 1\n",
        "            first = newest.version\n",
        "a truncation over many versions looks at the last one again and again",
    ),
    Mutation(
        "dropped_record_at_the_cut",
        f"{PROTOCOL}/log/state/pages.py",
        "tuple(record for record in paged.recent if kind.end_key(record) > key),",
        "tuple(record for record in paged.recent if kind.first_key(record) >= key),",
        "a range that reaches over the cut is dropped with those before it",
    ),
    Mutation(
        "newest_version_is_retained_by_bytes_of_all",
        f"{PROTOCOL}/log/change/retention.py",
        "ITEMS, head.items, head.start_offset, head.end_offset, records_min=ITEMS_AT_ONCE",
        "ITEMS, head.items, head.oldest_offset, head.end_offset, records_min=ITEMS_AT_ONCE",
        "rows of old versions count as the log's, so that it keeps too little",
    ),
    Mutation(
        "floor_of_the_last_pages_alone",
        f"{PROTOCOL}/log/seal.py",
        "        self._note(head.items.recent)\n",
        "",
        "a seal misses the newest commits",
    ),
    Mutation(
        "remembered_dues_of_an_older_list",
        f"{LOG}/maintenance/sweep_memory.py",
        "            due.starts, due.versions = starts, 0\n",
        "            due.starts = starts\n",
        "the rest of a truncation waits until the next version expires",
    ),
]

_STORES = [
    Mutation(
        "kept_pages_are_mixed_up",
        f"{LOG}/host.py",
        "pages.update(zip(map(_key_of, missing), read, strict=True))",
        "pages.update(zip(map(_key_of, ask.pages), read, strict=False))",
        "pages that were already read get the records of other pages",
    ),
    Mutation(
        "missing_page_is_an_empty_one",
        f"{LOG}/host.py",
        "                return m.PagesRead(effect.request, _gone(outcome, read), ())\n",
        "                return m.PagesRead(effect.request, outcome, ((),) * len(effect.pages))\n",
        "the records of a page that was merged away are left out",
    ),
    Mutation(
        "clock_counts_in_microseconds",
        f"{METADATA}/store_clock.py",
        "age_ms = (self._elapsed_ns() - self._noted_ns) // 1_000_000",
        "age_ms = (self._elapsed_ns() - self._noted_ns) // 1_000",
        "the clock runs ahead of the store",
    ),
    Mutation(
        "ended_registrations_are_all_marked",
        f"{METADATA}/logs/producers.py",
        "marks = await self.marks(log_id, deregistered, STAGED)",
        "marks = await self.marks(log_id, (*deregistered, *released), STAGED)",
        "listed ledgers count as staged, so their time of grace is lost once they are unlisted",
    ),
    Mutation(
        "registration_of_the_epoch_before",
        f"{METADATA}/logs/producers.py",
        "            znodes.CreateNode(registration, str(epoch).encode()),\n",
        "            znodes.CreateNode(registration, str(epoch - 1).encode()),\n",
        "a run's own ledgers are sealed under it",
    ),
    Mutation(
        "stream_ledgers_of_any_password",
        f"{LOG}/committing/stream_ledgers.py",
        "        password=job.password,\n",
        '        password=b"",\n',
        "rows go into a ledger of another password",
    ),
    Mutation(
        "stream_ledgers_of_any_schema",
        f"{LOG}/committing/stream_ledgers.py",
        "        schema=job.schema,\n",
        '        schema=b"",\n',
        "rows of new columns go into a ledger with the old schema message",
    ),
    Mutation(
        "stream_goes_on_with_what_is_fenced",
        f"{LOG}/committing/stream_ledgers.py",
        "            or not ledger.is_writable\n",
        "",
        "every batch begins with a ledger that takes no more",
    ),
    Mutation(
        "range_cut_forgets_what_was_not_acknowledged",
        f"{LOG}/committing/range_writer.py",
        "        again = tuple(sent.payload for sent in self._pending if sent.rows)\n",
        "        again = tuple(sent.payload for sent in list(self._pending)[1:] if sent.rows)\n",
        "the first entry that a fenced ledger did not acknowledge is lost",
    ),
]

_TRUNCATION = [
    Mutation(
        "truncation_keeps_the_token",
        "ledgerlog_spark/protocol/log/transaction.py",
        "lambda token, _: (replace(head, token=token), ())",
        "lambda _token, _: (head, ())",
        "a reader takes the shortened head for the one that it read, and reports lost data",
    ),
]

MUTATIONS = [*_COMMITS, *_LETTING_GO, *_STORES, *_TRUNCATION]
