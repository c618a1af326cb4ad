"""Mistakes in reads of slices: in the requests, in the answers, and in their verification."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

SLICES = "ledgerlog_spark/arrow/column_slices.py"
REQUESTS = "ledgerlog_spark/wire/slice_requests.py"
READER = "ledgerlog_spark/protocol/ledger/read/reader.py"
READS = "bookie_server/storage/reading/reads.py"
SPANS = "bookie_server/storage/reading/entry_spans.py"
OPERATIONS = "bookie_server/service/v2/operations.py"
CODEC = "ledgerlog_spark/arrow/stream_codec.py"
CHOICE = "ledgerlog_spark/datasource/scan/slice_choice.py"
TASK_ROWS = "ledgerlog_spark/datasource/scan/task_rows.py"

MUTATIONS = [
    Mutation(
        "slice_is_not_compared_with_its_checksum",
        SLICES,
        "            if crc32c(view[at : at + length]) != checksum:\n",
        "            if length > len(view):\n",
        "a damaged column is read as rows",
    ),
    Mutation(
        "slices_may_have_more_bytes",
        SLICES,
        "        if at != len(view):\n            return None\n",
        "",
        "bytes that were not verified are part of an entry",
    ),
    Mutation(
        "slices_are_kept_in_every_index",
        SLICES,
        "    if size_bytes < SLICED_SIZE_BYTES_MIN or not all(slices):\n",
        "    if not all(slices):\n",
        "the index of a small range has slices that are never read",
    ),
    Mutation(
        "slices_need_not_add_up",
        SLICES,
        """        if sum(unpack(f">{2 * each}I", one)[::2]) != size_bytes:\n""",
        "        if not one:\n",
        "an index describes bytes that an entry does not have",
    ),
    Mutation(
        "ranges_of_a_request_may_overlap",
        REQUESTS,
        "            if offset < end or length < 1:\n",
        "            if offset < 0 or length < 1:\n",
        "a small request gets an answer that is larger than the entry",
    ),
    Mutation(
        "slices_are_read_although_a_bookie_refuses_them",
        READER,
        "                self._slices = None  # a bookie does not support READ_SLICES\n",
        "                pass\n",
        "a ledger with one older bookie is read entry by entry",
    ),
    Mutation(
        "slices_stand_for_an_hmac",
        READER,
        "        self._slices = None if metadata.digest_type is DigestType.HMAC else slices\n",
        "        self._slices = slices\n",
        "a forged column of a ledger with an HMAC is believed",
    ),
    Mutation(
        "slices_of_another_entry_are_sent",
        READS,
        "                    self.check_head(found, head, *ids)\n",
        "                    pass\n",
        "a wrong index of a file answers with the bytes of another entry",
    ),
    Mutation(
        "slices_behind_the_end_are_those_of_the_next_entry",
        READS,
        "            until = min(edge, end)\n",
        "            until = edge\n",
        "a range after the end of an entry has the bytes of the next entry",
    ),
    Mutation(
        "slices_behind_the_end_are_read",
        SPANS,
        "        end = min(offset + length, size_bytes)\n",
        "        end = offset + length\n",
        "a range after the end of an entry reads the chunks of other entries",
    ),
    Mutation(
        "slices_of_a_freed_file_are_lost",
        READS,
        "        return (yield from again(lambda: self._read_slices(request)))\n",
        "        return (yield from self._read_slices(request))\n",
        "a read of slices fails because a file was freed, although another file has the entry",
    ),
    Mutation(
        "slices_of_a_span_are_read_at_once",
        SPANS,
        "edge = min((at // CHUNK_SIZE + 1) * CHUNK_SIZE, body_size)",
        "edge = min(-(-(start + end) // CHUNK_SIZE) * CHUNK_SIZE, body_size)",
        "a small request has up to 5 MB in memory that no lane counts",
    ),
    Mutation(
        "slices_of_a_head_in_two_chunks_have_half_of_it",
        READS,
        "            if len(head) < HEAD_SIZE_BYTES:  # the head may be in two chunks\n",
        "            if not head:\n",
        "if the head of an entry is in two chunks, the head is not checked",
    ),
    Mutation(
        "slices_may_use_the_cost_of_their_request",
        OPERATIONS,
        "min(taken_bytes - cost_bytes - REQUEST_OVERHEAD_BYTES, size_bytes_max)",
        "min(taken_bytes - REQUEST_OVERHEAD_BYTES, size_bytes_max)",
        "answer and request together take more memory than the lane counts",
    ),
    Mutation(
        "slices_are_copied_from_memory_that_no_lane_counts",
        OPERATIONS,
        "    return decoded + CHUNK_SIZE\n",
        "    return decoded\n",
        "many small requests for slices take more memory than the lane counts",
    ),
    Mutation(
        "slices_count_as_whole_entries",
        OPERATIONS,
        "        if opcode is Opcode.READ_SLICES:\n            counters.slice_entries",
        "        if opcode is Opcode.READ:\n            counters.slice_entries",
        "the metrics of a bookie do not show how many entries were sent whole",
    ),
    Mutation(
        "slices_that_end_too_early_end_the_connection",
        REQUESTS,
        "    except error:\n        return None  # the frame ends before its list does\n",
        "    except error:\n        raise\n",
        "one malformed request ends all requests of its connection",
    ),
    Mutation(
        "slices_of_a_request_may_have_bytes_behind_them",
        REQUESTS,
        "    return entries if at == len(view) else []\n",
        "    return entries\n",
        "a bookie answers a request that its sender meant otherwise",
    ),
    Mutation(
        "slices_may_begin_with_another_entry_than_their_request",
        REQUESTS,
        "    if not _are_valid(entries) or entries[0][0] != first_entry_id:\n",
        "    if not _are_valid(entries):\n",
        "an answer with the first id of its request has the slices of another entry",
    ),
    Mutation(
        "slices_of_a_message_with_more_bytes",
        SLICES,
        " or parts.body_start + parts.body_size != len(payload):",
        ":",
        "an index describes bytes that are no part of a column",
    ),
    Mutation(
        "slices_of_more_columns_than_a_request_may_have",
        SLICES,
        "        if not is_known or len(self._wanted) > SLICE_RANGES_MAX:\n",
        "        if not is_known:\n",
        "a scan of very many columns fails, because its requests are refused",
    ),
    Mutation(
        "slices_of_any_size_are_kept_in_an_index",
        CODEC,
        "        if slices and len(slices) * 4 // 3 <= INDEX_SIZE_BYTES_MAX:\n",
        "        if slices:\n",
        "the index of a range with many entries is larger than a bookie accepts",
    ),
    Mutation(
        "slices_of_all_columns_are_looked_up",
        CHOICE,
        "    is_pruned = len(places) < len(schema) and 1 + len(places) <= SLICE_RANGES_MAX\n",
        "    is_pruned = 1 + len(places) <= SLICE_RANGES_MAX\n",
        "a scan of all columns reads the index of each range in vain",
    ),
    Mutation(
        "slices_of_too_many_columns_are_looked_up",
        CHOICE,
        "    is_pruned = len(places) < len(schema) and 1 + len(places) <= SLICE_RANGES_MAX\n",
        "    is_pruned = len(places) < len(schema)\n",
        "a scan of very many columns reads the index of each range in vain",
    ),
    Mutation(
        "slices_pay_whatever_the_index_costs",
        CHOICE,
        "        return index + needed < size_bytes * NEEDED_SHARE_MAX\n",
        "        return needed < size_bytes * NEEDED_SHARE_MAX\n",
        "each of many small tasks of a range reads the whole index",
    ),
    Mutation(
        "slices_that_were_left_out_are_looked_up",
        CHOICE,
        "            return False  # the writer stored no slices\n",
        "            pass\n",
        "a task reads an index that lists no slices",
    ),
    Mutation(
        "slices_that_no_bookie_sent_are_not_counted",
        READER,
        "        self.slices_given_up += is_sliced\n",
        "",
        "a wrong index makes scans slow, and no metric shows the reason",
    ),
    Mutation(
        "slices_that_bookies_refused_are_not_counted",
        READER,
        "            self.slices_given_up += is_refused\n",
        "",
        "old bookies make scans slow, and no metric shows the reason",
    ),
    Mutation(
        "slices_given_up_are_not_reported",
        TASK_ROWS,
        "        if slices is not None and slices.given_up:\n",
        "        if slices is not None and slices.given_up < 0:\n",
        "a wrong index makes scans slow, and no log line shows the reason",
    ),
]
