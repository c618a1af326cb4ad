"""Checks and encodes the records of a leader log. `log/leader/rows.py` checks and encodes rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from ledgerlog_spark.client.append_queue import Gathered
from ledgerlog_spark.errors import LogKindError
from ledgerlog_spark.log.entry_codec import EncodedBody, encode_body
from ledgerlog_spark.log.records import checked_record, checked_records
from ledgerlog_spark.protocol.log.read.versions import LogState
from ledgerlog_spark.protocol.log.state.records import LogContent

if TYPE_CHECKING:
    from ledgerlog_spark.log.leader.rows import LeaderRows

ENTRY_SIZE_BYTES_MAX = 256 << 10
"""Maximum bytes of the records in an entry. A larger record has its own entry (LOGS.md#H1)."""


class LeaderRecords:
    """The content of a log of records, which are bytes.

    The object checks appends on any thread, and encodes appends as entries on the leader's thread.
    `LeaderRows` has the same methods. In this class, the methods for rows raise LogKindError
    (LOGS.md#H9).
    """

    schema = None
    entry_size_bytes_max = ENTRY_SIZE_BYTES_MAX
    record = staticmethod(checked_record)
    records = staticmethod(checked_records)

    def __init__(self, log: str) -> None:
        """Create the content of the log with the name `log`."""
        self._log = log

    def pieces(self, rows: object) -> NoReturn:
        """Raise LogKindError, because the log has no rows."""
        del rows
        raise LogKindError(
            f"log {self._log!r} is a leader log of records: append bytes to it, or create a log of "
            "rows with open_log(name, lead=True, schema=...)",
            log=self._log,
        )

    def encode(self, gathered: Gathered) -> EncodedBody:
        """Encode the records of the gathered appends as the body of one entry."""
        return encode_body(gathered.payloads)


def content_of(log: str, state: LogState, schema: bytes | None) -> LeaderRecords | LeaderRows:
    """Return the object that checks and encodes the appends of a leader log.

    `schema` describes the appended rows. If it is None, the log's own schema is used.
    """
    if state.head.content is LogContent.ROWS:
        from ledgerlog_spark.log.leader.rows import LeaderRows  # imports pyarrow

        return LeaderRows(log, state.schema, schema)
    if schema is not None:
        raise LogKindError(
            f"log {log!r} is a leader log of records, which have no schema: open it without a "
            "schema, or create another log",
            log=log,
        )
    return LeaderRecords(log)
