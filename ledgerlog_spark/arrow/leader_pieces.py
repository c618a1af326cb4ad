"""Converts rows to entries of a leader log (LOGS.md#G10, LOGS.md#H7).

A leader log of rows has one schema. It is nullable at every level and has no dictionaries, so that
Spark can read the log. Appended rows are converted to the schema and cut into pieces. A large piece
becomes the body of an entry. Small pieces are joined into one body when they are sent.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from ledgerlog_spark.arrow.conform import Conformer
from ledgerlog_spark.arrow.entry_cutter import CutEntry, EntryCutter
from ledgerlog_spark.arrow.schema_evolution import merge, storable
from ledgerlog_spark.arrow.spark_types import schema_json_of, spark_schema, stored_schema
from ledgerlog_spark.arrow.stream_codec import (
    ENTRY_ROWS_MAX,
    ENTRY_SIZE_BYTES_MAX,
    TARGET_ENTRY_BYTES_DEFAULT,
    BatchEncoder,
    decode_schema,
)
from ledgerlog_spark.errors import ConfigurationError, LocalProtocolError, SchemaMismatchError
from ledgerlog_spark.protocol.leader.entry import HEADER_SIZE_BYTES

BODY_SIZE_BYTES_MAX = ENTRY_SIZE_BYTES_MAX - HEADER_SIZE_BYTES
"""Maximum size of a body, which is the part of an entry after the header."""

PIECE_SIZE_BYTES_MAX = TARGET_ENTRY_BYTES_DEFAULT
"""Maximum sum of the sizes of pieces that share an entry.

A large piece counts as this size, so that no other piece shares its entry.
"""

SHARED_SIZE_BYTES_MAX = 64 << 10
"""Maximum uncompressed size of a piece that can share an entry with other pieces."""

PLAIN_SIZE_BYTES_MAX = 4 << 10
"""Maximum size of a body that is not compressed.

The compression of such a body takes longer than sending the uncompressed bytes.
"""

_ROW_SIZE_BYTES_MIN = PIECE_SIZE_BYTES_MAX // ENTRY_ROWS_MAX
"""Minimum size for which a row counts, so that an entry has at most the maximum number of rows."""


@dataclass(frozen=True, slots=True)
class RowPiece:
    """Consecutive rows of one append, as a batch that can share a body, or as a separate body."""

    rows: int
    append_rows: int  # number of rows of the append to which this piece belongs
    size_bytes: int  # the size for which the piece counts in the limit of an entry
    batch: pa.RecordBatch | None = None
    body: bytes | None = None

    def __len__(self) -> int:
        """Return the size of the piece in bytes."""
        return self.size_bytes


def leader_schema(schema: object) -> bytes:
    """Return the stored schema of a leader log for rows of `schema`.

    The stored schema contains the metadata of Spark's fields.
    """
    if not isinstance(schema, pa.Schema):
        raise ConfigurationError(
            f"the schema of a log must be a pyarrow.Schema, not {type(schema).__name__}: create "
            "one with pyarrow.schema, or use the schema of a table"
        )
    return stored_schema(storable(schema_json_of(schema)))


class RowSplitter(threading.local):
    """Cuts a log's rows into pieces, and joins pieces into bodies.

    Each thread has its own state.
    """

    def __init__(self, log: str, schema: bytes) -> None:
        super().__init__()
        self.schema = decode_schema(schema)
        self._log = log
        self._schema_json = spark_schema(schema)
        self._checked: pa.Schema | None = None
        self._conformer = Conformer(self.schema)
        self._plain = BatchEncoder(self.schema, "none")
        self._packed = BatchEncoder(self.schema)
        self._cutter = EntryCutter(self._packed.encode_rows, size_bytes_max=BODY_SIZE_BYTES_MAX)

    def check(self, schema: pa.Schema) -> None:
        """Raise SchemaMismatchError if a column of `schema` does not fit the log's columns."""
        if self._checked is not None and schema.equals(self._checked):
            return
        merged = merge(
            self._schema_json,
            schema_json_of(schema),
            log=self._log,
            add_columns=True,
            ignores_case=False,
        )
        if merged != self._schema_json:
            raise self._has_more(merged)
        self._checked = schema

    def split(self, rows: object) -> list[RowPiece]:
        """Return the pieces of an append, in order. An append without rows has no piece."""
        if not isinstance(rows, pa.Table | pa.RecordBatch):
            raise LocalProtocolError(
                f"rows must be a pyarrow.Table or a pyarrow.RecordBatch, not {type(rows).__name__}:"
                " create one, for example with pyarrow.Table.from_pylist",
                type=type(rows).__name__,
            )
        self.check(rows.schema)
        if not rows.num_rows:
            return []
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        chunks = table.to_batches(max_chunksize=ENTRY_ROWS_MAX)
        batches = [self._conformer.conform(batch) for batch in chunks]
        # `nbytes` takes seven times as long as this call, and would slow down small appends.
        size_bytes = sum(map(pa.ipc.get_record_batch_size, batches))
        counted_bytes = max(size_bytes, rows.num_rows * _ROW_SIZE_BYTES_MIN)
        if counted_bytes > SHARED_SIZE_BYTES_MAX:
            return self._large(batches, rows.num_rows)
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        return [RowPiece(rows.num_rows, rows.num_rows, counted_bytes, batch)]

    def join(self, pieces: Sequence[RowPiece]) -> bytes:
        """Return the body of an entry: a single piece's body, or the joined batches of `pieces`."""
        alone = pieces[0].body
        if alone is not None:
            assert len(pieces) == 1
            return alone
        batches = [piece.batch for piece in pieces]
        size_bytes = sum(piece.size_bytes for piece in pieces)
        encoder = self._plain if size_bytes <= PLAIN_SIZE_BYTES_MAX else self._packed
        return encoder.encode_rows(batches[0] if len(batches) == 1 else pa.concat_batches(batches))

    def _large(self, batches: list[pa.RecordBatch], rows: int) -> list[RowPiece]:
        cut: list[CutEntry] = []
        try:
            for batch in batches:
                cut += self._cutter.add(batch)
            cut += self._cutter.finish()
        finally:
            self._cutter.release()
        return [
            RowPiece(batch.num_rows, rows, PIECE_SIZE_BYTES_MAX, body=body) for batch, body in cut
        ]

    def _has_more(self, merged: str) -> SchemaMismatchError:
        known = {field["name"]: field for field in json.loads(self._schema_json)["fields"]}
        fields = json.loads(merged)["fields"]
        more = [field["name"] for field in fields if known.get(field["name"]) != field]
        names = ", ".join(map(repr, more))
        return SchemaMismatchError(
            f"the rows have {names}, which log {self._log!r} does not have. The log's columns "
            f"are {', '.join(known)}, and the schema of a leader log cannot change. Leave the new "
            f"columns out, or create another log.",
            log=self._log,
            column=more[0],
            expected="a column of the log",
            got=str(next(field["type"] for field in fields if field["name"] == more[0])),
        )
