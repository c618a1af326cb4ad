"""Mistakes in reads of slices: what is requested, what is sent, and what is believed."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

SLICES = "ledgerlog_spark/arrow/column_slices.py"
REQUESTS = "ledgerlog_spark/wire/slice_requests.py"
READER = "ledgerlog_spark/protocol/ledger/read/reader.py"
READS = "bookie_server/storage/reading/reads.py"

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
        "bytes that nobody verified are part of an entry",
    ),
    Mutation(
        "slices_are_kept_in_every_index",
        SLICES,
        "    if size_bytes < SLICED_SIZE_BYTES_MIN or not all(slices):\n",
        "    if not all(slices):\n",
        "the index of a small range has slices that nobody reads",
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
        "                self._slices = None  # some bookie of the ledger has no READ_SLICES\n",
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
        "            if at == 0:\n                self._check_head(found, data, *ids)\n",
        "",
        "a wrong index of a file answers with the bytes of another entry",
    ),
    Mutation(
        "slices_behind_the_end_are_those_of_the_next_entry",
        READS,
        "        end = min(offset + length, size_bytes)\n",
        "        end = offset + length\n",
        "a range behind the end of an entry has the bytes of its neighbour",
    ),
]
