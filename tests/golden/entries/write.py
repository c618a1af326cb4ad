"""Writes `entries.json`: entries in all compressions with their rows.

`python -m tests.golden.entries.write` rewrites the file. Every reader must return the same rows, so
the file changes only if the format of entries changes.
"""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from ledgerlog_spark.arrow.batch_message import buffer_counts
from ledgerlog_spark.arrow.column_slices import slices_of
from ledgerlog_spark.arrow.stream_codec import (
    COMPRESSIONS,
    BatchEncoder,
    IndexedEntry,
    encode_schema,
)

FILE = Path(__file__).with_name("entries.json")
BATCHES = 3
BATCH_ROWS = 40

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64()),
        pa.field("flag", pa.bool_()),
        pa.field("s", pa.string()),
        pa.field("d", pa.decimal128(12, 2)),
        pa.field("list", pa.list_(pa.field("element", pa.int32()))),
        pa.field("nested", pa.struct([pa.field("x", pa.float64()), pa.field("y", pa.string())])),
        pa.field("nothing", pa.null()),
        pa.field("last", pa.int32()),
    ]
)


def row(number: int) -> dict[str, object]:
    """The row with this number. Every seventh value of most columns is null."""
    value: dict[str, object] = {
        "k": number,
        "flag": number % 3 == 0,
        "s": f"row {number} " + "x" * (number % 5),
        "d": Decimal(number) / 4,
        "list": list(range(number % 4)),
        "nested": {"x": number / 2, "y": None if number % 2 else str(number)},
        "nothing": None,
        "last": -number,
    }
    for place, name in enumerate(SCHEMA.names[1:-1]):
        if number % 7 == place:
            value[name] = None
    return value


def rows() -> list[dict[str, object]]:
    return [row(number) for number in range(BATCHES * BATCH_ROWS)]


def entries(compression: str) -> list[bytes]:
    """The entries of one range, the index entry last."""
    encoder = BatchEncoder(SCHEMA, compression)
    all_rows = rows()
    encoded: list[bytes] = []
    for first in range(0, len(all_rows), BATCH_ROWS):
        batch = pa.RecordBatch.from_pylist(all_rows[first : first + BATCH_ROWS], schema=SCHEMA)
        encoded.append(encoder.encode(batch, first))
    index = [IndexedEntry(BATCH_ROWS, len(entry)) for entry in encoded]
    return [*encoded, encoder.encode_index(index)]


def slices(compression: str) -> list[bytes]:
    """The slices of each entry except the index entry."""
    counts = buffer_counts(SCHEMA)
    return [slices_of(entry, counts) for entry in entries(compression)[:-1]]


def main() -> None:
    def text(data: bytes) -> str:
        return base64.b64encode(data).decode("ascii")

    case = {
        "schema": text(encode_schema(SCHEMA)),
        "rows": [{**each, "d": None if each["d"] is None else str(each["d"])} for each in rows()],
        "entries": {each: [text(entry) for entry in entries(each)] for each in COMPRESSIONS},
        "slices": {each: [text(one) for one in slices(each)] for each in COMPRESSIONS},
    }
    FILE.write_text(json.dumps(case, indent=1) + "\n")


if __name__ == "__main__":
    main()
