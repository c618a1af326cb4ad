"""The content of a leader log: records, or rows (`log/leader/rows.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ledgerlog_spark.errors import LogKindError
from ledgerlog_spark.log.entry_codec import EncodedBody, encode_body
from ledgerlog_spark.log.records import checked_record, checked_records
from ledgerlog_spark.protocol.log.state.records import LogContent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from ledgerlog_spark.client.append_queue import Gathered
    from ledgerlog_spark.protocol.ledger.messages import Payload
    from ledgerlog_spark.protocol.log.read.versions import LogState

ENTRY_SIZE_BYTES_MAX = 256 << 10
"""Maximum bytes of records in an entry; a larger record has its own entry (LOGS.md#H1)."""


class LeaderContent(Protocol):
    """Checks appends on any thread, and encodes them as entries on the leader's thread.

    The methods of the other content fail (LOGS.md#H9).
    """

    @property
    def schema(self) -> pa.Schema | None:
        """Schema of the rows; None for records."""

    @property
    def entry_size_bytes_max(self) -> int:
        """Most bytes that are gathered into one entry."""

    def record(self, record: object) -> Payload:
        """A record whose bytes stay as they are.

        Raises:
            LogKindError: The log takes rows; definite.
            LocalProtocolError: Not bytes, or too large; definite.
        """

    def records(self, records: Sequence[Payload]) -> list[Payload]:
        """Records whose bytes stay as they are; errors as of `record`."""

    def pieces(self, rows: object) -> Sequence[Any]:
        """The pieces of an append of rows, in order; none for no rows.

        Raises:
            LogKindError: The log takes records; definite.
            SchemaMismatchError: The rows do not fit the log's schema; definite.
            LocalProtocolError: No rows, or one that is too large; definite.
        """

    def encode(self, gathered: Gathered) -> EncodedBody:
        """The entry of the gathered appends; from here on its waiters count records or rows."""


class LeaderRecords:
    """Records, which are bytes."""

    schema = None
    entry_size_bytes_max = ENTRY_SIZE_BYTES_MAX

    def __init__(self, log: str) -> None:
        """Records of the log of that name."""
        self._log = log

    def record(self, record: object) -> Payload:
        """Implements `LeaderContent.record`."""
        return checked_record(record)

    def records(self, records: Sequence[Payload]) -> list[Payload]:
        """Implements `LeaderContent.records`."""
        return checked_records(records)

    def pieces(self, rows: object) -> Sequence[Any]:
        """Implements `LeaderContent.pieces`."""
        del rows
        raise LogKindError(
            f"log {self._log!r} is a leader log of records: append bytes to it, or make a log of "
            "rows with open_log(name, lead=True, schema=...)",
            log=self._log,
        )

    def encode(self, gathered: Gathered) -> EncodedBody:
        """Implements `LeaderContent.encode`."""
        return encode_body(gathered.payloads)


def content_of(log: str, state: LogState, schema: bytes | None) -> LeaderContent:
    """The content of a leader log; `schema` is that of the rows to append, None for the log's.

    Raises:
        LogKindError: A log of records has no rows.
        SchemaMismatchError: Such rows do not fit the log.
    """
    if schema is None and state.head.content is LogContent.RECORDS:
        return LeaderRecords(log)
    from ledgerlog_spark.log.leader.rows import rows_of  # imports pyarrow

    return rows_of(log, state, schema)
