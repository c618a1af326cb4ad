"""Checks and encodes the rows of a leader log: tables and record batches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NoReturn

from ledgerlog_spark.arrow.leader_pieces import PIECE_SIZE_BYTES_MAX, RowSplitter
from ledgerlog_spark.arrow.stream_codec import decode_schema
from ledgerlog_spark.client.append_queue import Gathered
from ledgerlog_spark.errors import LogKindError, SchemaMismatchError
from ledgerlog_spark.log.entry_codec import EncodedBody
from ledgerlog_spark.protocol.leader.entry import LeaderCodec

if TYPE_CHECKING:
    import pyarrow as pa


class LeaderRows:
    """The content of a log of rows with one schema.

    The class has the methods of `LeaderRecords`.
    """

    entry_size_bytes_max = PIECE_SIZE_BYTES_MAX

    def __init__(self, log: str, schema: bytes | None, appended: bytes | None) -> None:
        """Create the content of the log `log`, whose encoded schema is `schema`.

        `appended` is the schema of the rows to append. If it is None, the log's own schema is used.
        Raises SchemaMismatchError if such rows cannot be appended (LOGS.md#H8).
        """
        if schema is None:
            raise SchemaMismatchError(
                f"log {log!r} was created without a schema, so it accepts no rows: create another "
                "log with open_log(name, lead=True, schema=...)",
                log=log,
            )
        self._log = log
        self._splitter = RowSplitter(log, schema)
        if appended is not None:
            self._splitter.check(decode_schema(appended))

    @property
    def schema(self) -> pa.Schema:
        """Schema of the log."""
        return self._splitter.schema

    def record(self, record: object) -> NoReturn:
        """Raise LogKindError: the log has no records."""
        del record
        raise LogKindError(
            f"log {self._log!r} is a leader log of rows: append a table or a record batch to it "
            "with append_rows",
            log=self._log,
        )

    def records(self, records: object) -> NoReturn:
        """Raise LogKindError: the log has no records."""
        self.record(records)

    def pieces(self, rows: object) -> Sequence[Any]:
        """Split the rows of an append into pieces, in order.

        If there are no rows, the result is empty.
        """
        return self._splitter.split(rows)

    def encode(self, gathered: Gathered) -> EncodedBody:
        """Encode the gathered pieces as the body of one entry.

        Replace each waiter's number of pieces by its number of rows.
        """
        pieces: list[Any] = gathered.payloads
        ends = list(accumulate(piece.rows for piece in pieces))
        gathered.waiters = [
            (waiter, ends[at] - 1, pieces[at].append_rows) for waiter, at, _ in gathered.waiters
        ]
        body = self._splitter.join(pieces)
        return EncodedBody(ends[-1], LeaderCodec.ARROW, body, len(body))
