"""Entries of leader logs, decoded in order from some offset on."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import DataLossError
from ledgerlog_spark.log.leader_entry_codec import decode_entry
from ledgerlog_spark.log.open_ends import read_one
from ledgerlog_spark.log.records import Record
from ledgerlog_spark.protocol.leader_entry import decode_entry_header

if TYPE_CHECKING:
    from ledgerlog_spark.log.ports import LedgerReaderHandle


async def entry_holding(handle: LedgerReaderHandle, offset: int, end_entry_id: int) -> int:
    """The first of the entries [0, end_entry_id) that ends behind `offset`, else `end_entry_id`.

    Looks at a few entries, at most as many as the logarithm of their number.
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


class RecordCursor:
    """Turns entries into records, from an offset on, and sees that none is missing.

    Attributes:
        next_offset: Of the next record to be given; what comes before it is passed over.
        end_offset: Records from here on are not given; None for no such end.
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
        """Whether everything before `end_offset` was given."""
        return self.end_offset is not None and self.next_offset >= self.end_offset

    def take(self, ledger_id: int, entry: Any) -> list[Record]:
        """The records of the next entry of a ledger, without those passed over.

        Raises:
            DataLossError: Records are missing between what was given and this entry.
            WireFormatError: The entry is none of records.
        """
        header, values = decode_entry(entry.payload)
        first, time_ms, entry_id = header.first_offset, header.append_time_ms, entry.entry_id
        skipped = self.next_offset - first
        if skipped < 0:
            raise DataLossError(
                f"entry {entry_id} of ledger {ledger_id} of log {self._log!r} begins at offset "
                f"{first}, but {self.next_offset} is next",
                log=self._log,
                ledger_id=ledger_id,
                first_entry_id=entry_id,
                last_entry_id=entry_id,
            )
        if skipped >= header.count:
            return []
        if self.end_offset is not None and header.end_offset > self.end_offset:
            values = values[: self.end_offset - first]
        first = self.next_offset
        taken = values[skipped:]
        columns = zip(
            range(first, first + len(taken)),
            map(bytes, taken),
            repeat(time_ms),
            repeat(ledger_id),
            repeat(entry_id),
            repeat(self._log_id),
            strict=False,  # the repeated ones have no end
        )
        # Half the price of calling the class.
        records: list[Record] = list(map(tuple.__new__, repeat(Record), columns))
        self.next_offset = first + len(records)
        return records
