"""Decides in which ranges the tasks of a scan read slices instead of whole entries (LOGS.md#G14).

To read slices, a task first reads the whole index entry of the range, even if the task needs only a
small piece of the range. So a task reads slices only if the index and the wanted columns together
have less than 60 % of the bytes of the whole entries. In this module, slices "pay" if this
condition is true. The planner has the sizes of ranges, and estimates the sizes of columns:

    column of fixed width     the width of its type for each row
    column of varying width   4 bytes for each row, and an equal part of the remaining bytes of the
                              range, without the headers and all other columns
    header of an entry        200 bytes, and 60 bytes for each column
    index, for each entry     20 bytes, 11 bytes for the length and the CRC32C of each slice, and
                              the statistics of each column: 28 bytes for a column of fixed width,
                              and 76 bytes for a column of varying width

If a range is smaller than its columns of fixed width, it is compressed. In this case, 16 bytes are
counted for each row of a column of varying width, and the same compression ratio is assumed for all
columns. A wrong estimate changes only the cost: a task reads an index that it does not need, or
reads whole entries although slices pay. The index has the exact sizes, and a task that reads the
index decides again by these sizes. If a query has a filter, a task may read the columns of the
filter before the other columns. In this case, the task always reads the index, and decides by the
sizes in the index.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from ledgerlog_spark.arrow.batch_message import buffer_counts
from ledgerlog_spark.arrow.column_slices import (
    NEEDED_SHARE_MAX,
    SLICE_SIZE_BYTES,
    SLICES_SHARE_MAX,
)
from ledgerlog_spark.arrow.stream_codec import INDEX_SIZE_BYTES_MAX, decode_schema, places_of
from ledgerlog_spark.datasource.scan.ranges import ScanRange
from ledgerlog_spark.model import NO_ENTRY, SLICE_RANGES_MAX
from ledgerlog_spark.protocol.log.state.statistics import COLUMNS_MAX

OFFSET_SIZE_BYTES = 4
COMPRESSED_VALUE_SIZE_BYTES = 12
HEADER_SIZE_BYTES = 200
HEADER_COLUMN_SIZE_BYTES = 60
INDEX_ENTRY_SIZE_BYTES = 20
INDEX_FIXED_SIZE_BYTES = 28
INDEX_VARYING_SIZE_BYTES = 76


class _Columns(NamedTuple):
    """The widths of some columns of a schema."""

    fixed_size_bytes: float  # of all columns with a fixed width, in each row
    varying: int  # number of columns without a fixed width

    def size_bytes(self, varying_size_bytes: float) -> float:
        """Return the number of bytes of these columns in a row, without compression."""
        return self.fixed_size_bytes + self.varying * (OFFSET_SIZE_BYTES + varying_size_bytes)


class _Pruning(NamedTuple):
    """A schema from which a scan reads only some columns, or reads some columns first."""

    columns: int
    every: _Columns
    wanted: _Columns
    has_first: bool


FirstColumns = Callable[[bytes], Collection[int]]
"""Returns, for an encoded schema, the places of the columns that a task may read first."""


def no_columns(schema: bytes) -> Collection[int]:
    """Return no places. If a query has no filter, a task reads all columns at once."""
    del schema
    return ()


class SliceChoice:
    """Chooses the ranges of a scan in which tasks read slices.

    `schemas` maps a log name and a schema id to the encoded schema.
    """

    def __init__(
        self,
        schemas: Mapping[tuple[str, int], bytes],
        columns: Sequence[str],
        first_columns: FirstColumns = no_columns,
    ) -> None:
        """Prepare the choice for a scan of `columns`. The case of these names does not matter."""
        self._prunings = {
            key: _pruning(schema, columns, first_columns) for key, schema in schemas.items()
        }

    def chosen(self, ranges: Sequence[ScanRange]) -> tuple[ScanRange, ...]:
        """Return the ranges of one task.

        If slices do not pay for a range, its `slices_entry_id` is NO_ENTRY.
        """
        of_index: dict[tuple[int, int], list[ScanRange]] = {}
        for scanned in ranges:
            of_index.setdefault((scanned.ledger_id, scanned.slices_entry_id), []).append(scanned)
        pays = {key: key[1] != NO_ENTRY and self._pay(some) for key, some in of_index.items()}
        return tuple(
            scanned
            if pays[scanned.ledger_id, scanned.slices_entry_id]
            else replace(scanned, slices_entry_id=NO_ENTRY)
            for scanned in ranges
        )

    def _pay(self, pieces: Sequence[ScanRange]) -> bool:
        """Whether slices pay for the pieces of one listed range that one task reads."""
        first = pieces[0]
        pruning = self._prunings[first.log, first.schema_id]
        if pruning is None or first.index_entry_id != NO_ENTRY:
            # The task reads the index anyway, to find its rows.
            return pruning is not None
        size_bytes = sum(piece.size_bytes for piece in pieces)
        entries = sum(piece.last_entry_id - piece.first_entry_id + 1 for piece in pieces)
        slices = first.index_entries * (1 + pruning.columns) * SLICE_SIZE_BYTES * 4 / 3
        range_size_bytes = size_bytes * first.index_entries / entries
        if slices > min(INDEX_SIZE_BYTES_MAX, range_size_bytes * SLICES_SHARE_MAX):
            return False  # the writer stored no slices
        if pruning.has_first:
            return True  # the task decides by the exact sizes in the index
        headers = entries * (HEADER_SIZE_BYTES + HEADER_COLUMN_SIZE_BYTES * pruning.columns)
        body = max(0, size_bytes - headers)
        needed = headers + body * _share(pruning, body / max(1, sum(map(_rows_of, pieces))))
        index = slices + _index_size_bytes(pruning, first.index_entries)
        return index + needed < size_bytes * NEEDED_SHARE_MAX


def _rows_of(piece: ScanRange) -> int:
    """Return the number of rows in all entries of a piece.

    `piece.rows` counts only the rows between the offsets of the scan.
    """
    return piece.rows if piece.entry_rows is None else piece.entry_rows[1] - piece.entry_rows[0]


def _index_size_bytes(pruning: _Pruning, entries: int) -> float:
    """Return the estimated size of an index without its slices."""
    varying = pruning.every.varying
    fixed = pruning.columns - varying
    of_entry = fixed * INDEX_FIXED_SIZE_BYTES + varying * INDEX_VARYING_SIZE_BYTES
    bounds = entries * of_entry * min(1, COLUMNS_MAX / pruning.columns)
    has_bounds = bounds <= INDEX_SIZE_BYTES_MAX  # otherwise, the writer stored no bounds
    return entries * INDEX_ENTRY_SIZE_BYTES + bounds * has_bounds


def _share(pruning: _Pruning, row_size_bytes: float) -> float:
    """Return the estimated share of the wanted columns in the body of an entry."""
    every = pruning.every
    rest = row_size_bytes - every.size_bytes(0)
    varying = rest / every.varying if every.varying and rest > 0 else COMPRESSED_VALUE_SIZE_BYTES
    return pruning.wanted.size_bytes(varying) / max(1, every.size_bytes(varying))


def _pruning(
    encoded: bytes, columns: Sequence[str], first_columns: FirstColumns
) -> _Pruning | None:
    """Return the columns that a scan reads of each entry, or None if it reads whole entries."""
    if not encoded:
        return None  # the schema of records
    schema = decode_schema(encoded)
    places = places_of(schema, columns)
    if buffer_counts(schema) is None:
        return None  # single columns cannot be requested
    first = frozenset(first_columns(encoded))
    has_first = bool(first) and not first.issuperset(places)
    is_pruned = len(places) < len(schema) and 1 + len(places) <= SLICE_RANGES_MAX
    if not is_pruned and not has_first:
        return None
    kinds = [field.type for field in schema]
    wanted = [kinds[place] for place in places]
    return _Pruning(len(kinds), _columns(kinds), _columns(wanted), has_first)


def _columns(kinds: Sequence[pa.DataType]) -> _Columns:
    bits = [_bits_of(kind) for kind in kinds]
    return _Columns(sum(each or 0 for each in bits) / 8, bits.count(None))


def _bits_of(kind: pa.DataType) -> int | None:
    """Return the number of bits of a value, or None if the number varies."""
    try:
        return int(kind.bit_width)
    except ValueError:
        return 0 if pa.types.is_null(kind) else None
