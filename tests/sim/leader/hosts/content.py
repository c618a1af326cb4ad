"""What leaders append and readers get: records, or rows of one column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ledgerlog_spark.arrow.leader_pieces import leader_schema
from ledgerlog_spark.log.reading.record_log import RecordLog
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable
    from random import Random

    from ledgerlog_spark.log.leader.leader import Leader
    from ledgerlog_spark.log.log import Log

SCHEMA = pa.schema([("value", pa.string())])
OTHER_SCHEMA = pa.schema([("value", pa.int64())])


class Records:
    """A log of records."""

    content = LogContent.RECORDS
    schema = b""
    wrong_schema = leader_schema(SCHEMA)
    """Rows do not fit a log of records."""

    def append(self, leader: Leader, values: list[str], random: Random) -> Awaitable[Any]:
        """Append with one of the possible calls. The result has `offsets` or `offset`."""
        records = [value.encode() for value in values]
        if len(records) == 1 and random.random() < 0.5:
            wait = random.random() < 0.5
            return leader.append(records[0]) if wait else leader.append_async(records[0])
        if random.random() < 0.3:
            return leader.append_many(records)
        return leader.append_many_async(records)

    def tail(self, log: Log, start: int) -> AsyncIterator[list[tuple[int, str]]]:
        return self._each(self._reader(log).tail_batches(start))

    def read(
        self, log: Log, start: int | None, end: int | None
    ) -> AsyncIterator[list[tuple[int, str]]]:
        return self._each(self._reader(log).read_batches(start, end))

    def _reader(self, log: Log) -> RecordLog:
        return RecordLog(log, LogKind.LEADER, self.content)

    async def _each(self, batches: Any) -> AsyncIterator[list[tuple[int, str]]]:
        try:
            async for batch in batches:
                yield [(record.offset, record.value.decode()) for record in batch]
        finally:
            await batches.aclose()


class Rows(Records):
    """A log of rows."""

    content = LogContent.ROWS
    schema = leader_schema(SCHEMA)
    wrong_schema = leader_schema(OTHER_SCHEMA)

    def append(self, leader: Leader, values: list[str], random: Random) -> Awaitable[Any]:
        rows = pa.table([values], schema=SCHEMA)
        if random.random() < 0.3:
            return leader.append_rows(rows)
        return leader.append_rows_async(rows)

    def tail(self, log: Log, start: int) -> AsyncIterator[list[tuple[int, str]]]:
        return self._each_row(self._rows_of(log).tail_rows(start))

    def read(
        self, log: Log, start: int | None, end: int | None
    ) -> AsyncIterator[list[tuple[int, str]]]:
        return self._each_row(self._rows_of(log).read_rows(start, end))

    def _rows_of(self, log: Log) -> RecordLog:
        return RecordLog(log, LogKind.LEADER, self.content, self.schema)

    async def _each_row(self, batches: Any) -> AsyncIterator[list[tuple[int, str]]]:
        try:
            async for batch in batches:
                values = batch.rows.column(0).to_pylist()
                yield list(enumerate(values, batch.offset))
        finally:
            await batches.aclose()
