"""Writes `leader_entries.json`: entries of records and of rows, and searches for rows.

`python -m tests.golden.leader_entries.write` rewrites the file. Every reader must return the same
values, so the file changes only if the format of entries or the search changes.
"""

from __future__ import annotations

import base64
import json
import random
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from ledgerlog_spark.arrow.stream_codec import BatchEncoder
from ledgerlog_spark.datasource.scan.ranges import ScanRange, entries_between
from ledgerlog_spark.log.entry_codec import encode_body
from ledgerlog_spark.log.reading.listed_rows import EntryForm
from ledgerlog_spark.protocol.leader.entry import (
    LeaderCodec,
    LeaderEntryHeader,
    encode_entry_header,
)
from tests.golden.entries.write import BATCH_ROWS, SCHEMA, rows

FILE = Path(__file__).with_name("leader_entries.json")
OFFSET = 5_000
TIME_MS = 1_700_000_000_000
COMPRESSIONS = ("zstd", "none")
SEARCHES = 60


def records() -> list[list[bytes]]:
    """The records of three entries. Only the second is compressible."""
    return [
        [b"ab", b"", b"cde"],
        [b"record %d" % number for number in range(200)],
        [bytes(range(256))],
    ]


def record_entries() -> list[bytes]:
    """Consecutive entries of a log of records."""
    encoded = []
    offset = OFFSET
    for place, values in enumerate(records()):
        body = encode_body(values)
        encoded.append(body.entry(first_offset=offset, append_time_ms=TIME_MS + place))
        offset += len(values)
    return encoded


def row_entries(compression: str) -> list[bytes]:
    """Consecutive entries of a log of rows. The rows are those of `tests/golden/entries`."""
    encoder = BatchEncoder(SCHEMA, compression)
    all_rows = rows()
    encoded = []
    for first in range(0, len(all_rows), BATCH_ROWS):
        batch = pa.RecordBatch.from_pylist(all_rows[first : first + BATCH_ROWS], schema=SCHEMA)
        body = encoder.encode_rows(batch)
        header = LeaderEntryHeader(
            LeaderCodec.ARROW, OFFSET + first, TIME_MS + first, batch.num_rows, len(body)
        )
        encoded.append(encode_entry_header(header) + body)
    return encoded


def searches() -> list[dict[str, Any]]:
    """Searches for rows in ranges and in pieces of ranges, and their results."""
    chosen = random.Random(7)
    found = []
    for number in range(SEARCHES):
        counts = [chosen.randint(1, 40) for _ in range(chosen.randint(1, 30))]
        edges = list(accumulate(counts, initial=OFFSET))
        start, end = sorted(chosen.sample(range(OFFSET, edges[-1] + 1), 2))
        first, last = 0, len(counts) - 1
        if number % 3 == 0:
            first, last = sorted(chosen.choices(range(len(counts)), k=2))
        found.append(_search(counts, (start, end), (first, last)))
    return found


def _search(
    counts: list[int], offsets: tuple[int, int], entries: tuple[int, int]
) -> dict[str, Any]:
    edges = list(accumulate(counts, initial=OFFSET))
    is_whole = entries == (0, len(counts) - 1)
    scanned = ScanRange(
        "events", 7, *entries, offsets[1] - offsets[0], 0, -1, OFFSET, *offsets, (),
        entry_rows=(0, edges[-1] - OFFSET) if is_whole else None,
        form=EntryForm.LEADER_RECORDS, is_searched=True,
    )  # fmt: skip
    read: list[int] = []

    def header_of(entry_id: int) -> LeaderEntryHeader:
        read.append(entry_id)
        first, end = list(pairwise(edges))[entry_id]
        return LeaderEntryHeader(LeaderCodec.PLAIN, first, 0, end - first, 4 * (end - first))

    span = entries_between(scanned, header_of)
    return {
        "counts": counts,
        "start_offset": offsets[0],
        "end_offset": offsets[1],
        "first_entry_id": entries[0],
        "last_entry_id": entries[1],
        "read": read,
        "found": [span.first_entry_id, span.last_entry_id],
        "rows": None if span.rows is None else list(span.rows),
    }


def main() -> None:
    def text(data: bytes) -> str:
        return base64.b64encode(data).decode("ascii")

    case = {
        "offset": OFFSET,
        "time_ms": TIME_MS,
        "records": [[text(each) for each in values] for values in records()],
        "record_entries": [text(each) for each in record_entries()],
        "row_entries": {each: [text(one) for one in row_entries(each)] for each in COMPRESSIONS},
        "searches": searches(),
    }
    FILE.write_text(json.dumps(case, indent=1) + "\n")


if __name__ == "__main__":
    main()
