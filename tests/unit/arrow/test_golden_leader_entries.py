"""Entries of leader logs that earlier versions wrote (tests/golden/leader_entries)."""

from __future__ import annotations

import base64
import json

import pytest

from ledgerlog_spark.arrow.leader_batches import decode_row_entries
from ledgerlog_spark.arrow.stream_codec import encode_schema
from ledgerlog_spark.log.entry_codec import decode_entry
from ledgerlog_spark.protocol.leader.entry import LeaderCodec
from tests.golden.entries.write import BATCH_ROWS, BATCHES, SCHEMA, rows
from tests.golden.leader_entries.write import (
    COMPRESSIONS,
    FILE,
    OFFSET,
    TIME_MS,
    records,
    searches,
)

CASE = json.loads(FILE.read_text())


def test_golden_entries_have_the_golden_records() -> None:
    decoded = [decode_entry(base64.b64decode(entry)) for entry in CASE["record_entries"]]
    assert [list(map(bytes, values)) for _, values in decoded] == records()
    assert [header.codec for header, _ in decoded] == [
        LeaderCodec.PLAIN,
        LeaderCodec.LZ4,
        LeaderCodec.PLAIN,
    ]
    assert [header.first_offset for header, _ in decoded] == [OFFSET, OFFSET + 3, OFFSET + 203]
    assert [header.append_time_ms for header, _ in decoded] == [TIME_MS, TIME_MS + 1, TIME_MS + 2]
    texts = [[base64.b64decode(each) for each in values] for values in CASE["records"]]
    assert texts == records()


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_golden_entries_have_the_golden_rows(compression: str) -> None:
    entries = [base64.b64decode(entry) for entry in CASE["row_entries"][compression]]
    batches = list(decode_row_entries(encode_schema(SCHEMA), entries))
    assert [row for batch in batches for row in batch.batch.to_pylist()] == rows()
    assert [batch.first_offset for batch in batches] == [
        OFFSET + BATCH_ROWS * number for number in range(BATCHES)
    ]


def test_searches_find_and_read_the_golden_entries() -> None:
    assert searches() == CASE["searches"]
