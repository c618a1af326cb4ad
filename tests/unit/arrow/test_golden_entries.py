"""Entries that earlier versions wrote, in each compression (tests/golden/entries)."""

from __future__ import annotations

import base64
import json
from decimal import Decimal

import pytest

from ledgerlog_spark.arrow.stream_codec import COMPRESSIONS, decode_entries, decode_schema
from tests.golden.entries.write import BATCH_ROWS, BATCHES, FILE, SCHEMA, rows

CASE = json.loads(FILE.read_text())


def test_the_golden_rows_are_those_of_the_writer() -> None:
    written = [
        {**each, "d": None if each["d"] is None else Decimal(each["d"])} for each in CASE["rows"]
    ]
    assert written == rows()
    assert decode_schema(base64.b64decode(CASE["schema"])).equals(SCHEMA)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_golden_entries_have_the_golden_rows(compression: str) -> None:
    entries = [base64.b64decode(entry) for entry in CASE["entries"][compression]]
    *batches, last = decode_entries(base64.b64decode(CASE["schema"]), entries)
    assert [row for batch in batches for row in batch.batch.to_pylist()] == rows()
    assert last.index is not None
    assert [entry.rows for entry in last.index] == [BATCH_ROWS] * BATCHES
