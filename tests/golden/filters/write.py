"""Writes `filters.json`: rows of all types, filters for them, and the rows that pass.

`python -m tests.golden.filters.write` rewrites the file. It changes only if the form of filters
changes, or their types and operators.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from random import Random
from typing import Any

from ledgerlog_spark.arrow.stream_codec import BatchEncoder, encode_schema
from ledgerlog_spark.datasource.skipping.row_filters import row_filter
from ledgerlog_spark.datasource.skipping.row_runs import StoredColumns
from tests.unit.datasource.filters import random_columns, random_filter, table_of

FILE = Path(__file__).with_name("filters.json")
WORLDS = 6
FILTERS = 60
ROWS = 40


def world(number: int) -> dict[str, Any]:
    """An entry, and filters. `passes` has a character for each row.

    A filter with an unknown part may keep rows that do not pass.
    """
    dice = Random(f"filters {number}")
    columns = random_columns(dice, ROWS)
    batch = table_of(columns)
    schema = encode_schema(batch.schema)
    stored = StoredColumns(schema, include_metadata=False)
    filters: list[dict[str, Any]] = []
    while len(filters) < FILTERS:
        chosen = random_filter(dice, columns)
        resolved = row_filter([chosen.expression], stored)
        if resolved is None:
            continue
        rows = [{name: each.values[row] for name, each in columns.items()} for row in range(ROWS)]
        filters.append(
            {
                "filter": resolved,
                "is_known": all("op" in part for part in _parts(resolved)),
                "passes": "".join("1" if chosen.of(row) is True else "0" for row in rows),
            }
        )
    entry = BatchEncoder(batch.schema, "none").encode(batch, 0)
    return {"schema": _text(schema), "entry": _text(entry), "filters": filters}


def written() -> str:
    """The contents of the file."""
    worlds = [json.dumps(world(number), separators=(",", ":")) for number in range(WORLDS)]
    return "[\n" + ",\n".join(worlds) + "\n]\n"


def _parts(resolved: Any) -> list[Any]:
    return [resolved, *(part for each in resolved.get("of", []) for part in _parts(each))]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


if __name__ == "__main__":
    FILE.write_text(written())
