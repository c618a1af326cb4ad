"""Decodes entries of leader logs in order, beginning at an offset."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from itertools import repeat
from typing import Any, Generic, TypeVar

from ledgerlog_spark.errors import DataLossError
from ledgerlog_spark.log.entry_codec import decode_entry
from ledgerlog_spark.log.ports import LedgerReaderHandle
from ledgerlog_spark.log.reading.open_ends import read_one
from ledgerlog_spark.log.records import Record
from ledgerlog_spark.protocol.leader.entry import LeaderEntryHeader, decode_entry_header

T = TypeVar("T")


async def entry_holding(handle: LedgerReaderHandle, offset: int, end_entry_id: int) -> int:
    """Return the first entry before `end_entry_id` that has a record at or after `offset`.

    If no entry has such a record, return `end_entry_id`. The search is binary, so it reads few
    entries.
    """
    low, high = 0, end_entry_id
    while low < high:
        middle = (low + high) // 2
        header = decode_entry_header((await read_one(handle, middle)).payload)
        if header.first_offset <= offset < header.end_offset:
            return middle
        if header.first_offset > offset:
            high = middle
        else:
            low = middle + 1
    return low


class EntryCursor(ABC, Generic[T]):
    """Decodes entries in order, beginning at an offset, and checks that no record is missing.

    The cursor skips the records before `next_offset`, and the records from `end_offset` on. If
    `end_offset` is None, the cursor has no end.
    """

    def __init__(
        self, log: str, log_id: str, *, next_offset: int, end_offset: int | None = None
    ) -> None:
        self.next_offset = next_offset
        self.end_offset = end_offset
        self._log = log
        self._log_id = log_id

    @property
    def is_done(self) -> bool:
        """Whether all records before `end_offset` were returned."""
        return self.end_offset is not None and self.next_offset >= self.end_offset

    async def taken(
        self, ledger_id: int, entries: AsyncGenerator[Sequence[Any], None]
    ) -> AsyncGenerator[list[T], None]:
        """Yield the non-empty results of `take` for these entries, until `is_done` is true."""
        async with contextlib.aclosing(entries):
            async for batch in entries:
                for entry in batch:
                    if taken := self.take(ledger_id, entry):
                        yield taken
                    if self.is_done:
                        return

    @abstractmethod
    def take(self, ledger_id: int, entry: Any) -> list[T]:
        """Decode the ledger's next entry.

        Return its records or rows, without those that the cursor skips.
        """

    def _kept(self, header: LeaderEntryHeader, ledger_id: int, entry_id: int) -> range:
        """Return the indexes within an entry of its records or rows that are not skipped."""
        first = header.first_offset
        skipped = self.next_offset - first
        if skipped < 0:
            raise DataLossError(
                f"entry {entry_id} of ledger {ledger_id} of log {self._log!r} begins at offset "
                f"{first}, but offset {self.next_offset} is next",
                log=self._log,
                ledger_id=ledger_id,
                first_entry_id=entry_id,
                last_entry_id=entry_id,
            )
        end = header.count
        if self.end_offset is not None:
            end = min(end, self.end_offset - first)
        return range(skipped, end)


class RecordCursor(EntryCursor[Record]):
    """An `EntryCursor` that decodes entries to records."""

    def take(self, ledger_id: int, entry: Any) -> list[Record]:
        """Return the entry's records that are not skipped, as `EntryCursor.take` requires."""
        header, values = decode_entry(entry.payload)
        time_ms, entry_id = header.append_time_ms, entry.entry_id
        kept = self._kept(header, ledger_id, entry_id)
        if not kept:
            return []
        first = self.next_offset
        taken = values[kept.start : kept.stop]
        columns = zip(
            range(first, first + len(taken)),
            map(bytes, taken),
            repeat(time_ms),
            repeat(ledger_id),
            repeat(entry_id),
            repeat(self._log_id),
            strict=False,  # `repeat` has no end
        )
        # `tuple.__new__` takes half as long as a call of the class `Record`.
        records: list[Record] = list(map(tuple.__new__, repeat(Record), columns))
        self.next_offset = first + len(records)
        return records
