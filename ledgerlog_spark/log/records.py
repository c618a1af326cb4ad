"""Records of a leader log, with their positions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple, overload

from ledgerlog_spark.client.payloads import check_several, checked_payload
from ledgerlog_spark.client.settings import PAYLOAD_SIZE_BYTES_MAX
from ledgerlog_spark.errors import ConfigurationError, LogKindError
from ledgerlog_spark.model import Position
from ledgerlog_spark.protocol.leader.entry import HEADER_SIZE_BYTES
from ledgerlog_spark.protocol.ledger.messages import Payload
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind

RECORD_SIZE_BYTES_MAX = PAYLOAD_SIZE_BYTES_MAX - HEADER_SIZE_BYTES - 4
"""Maximum size of a record in bytes, a little less than 5 MiB."""


class Record(NamedTuple):
    """One record of a leader log.

    Attributes:
        offset: Offset of the record. Offsets have no gaps and are never reused.
        value: The appended bytes.
        append_time_ms: The time when the leader accepted the record, by the store's clock, in
            milliseconds since 1970-01-01 UTC. A later record never has an earlier time.
        ledger_id: Id of the ledger that stores the record.
        entry_id: The entry that stores the record, perhaps together with other records.
        log_id: Id of the log.
    """

    offset: int
    value: bytes
    append_time_ms: int
    ledger_id: int
    entry_id: int
    log_id: str

    @property
    def position(self) -> Position:
        """Position of the record."""
        return Position(self.log_id, self.offset, self.ledger_id, self.entry_id)


class RecordEntry(NamedTuple):
    """An entry, and the offset of its first record."""

    first_offset: int
    ledger_id: int
    entry_id: int


class Positions(Sequence[Position]):
    """The positions of the records of one call of `append_many`.

    Each `Position` object is created when it is accessed. A position stays valid after rolls,
    ensemble changes, recoveries and new leaders. After its record was truncated, a read from the
    position fails with `PositionNotAvailableError`.

    Attributes:
        offsets: Offsets of all these records.
    """

    # LOGS.md#H2 defines the parts of a position.
    __slots__ = ("_entries", "_firsts", "_log_id", "offsets")

    def __init__(self, log_id: str, offsets: range, entries: Iterable[RecordEntry]) -> None:
        """Create the positions of `offsets`.

        `entries` contain their records, in ascending order.
        """
        self.offsets = offsets
        self._log_id = log_id
        self._entries = tuple(entries)
        self._firsts = [entry.first_offset for entry in self._entries]

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, index: int) -> Position: ...
    @overload
    def __getitem__(self, index: slice) -> Positions: ...
    def __getitem__(self, index: int | slice) -> Position | Positions:
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise ValueError(f"a slice of positions must have the step 1, got {index.step}")
            return Positions(self._log_id, self.offsets[index], self._entries)
        offset = self.offsets[index]
        _, ledger_id, entry_id = self._entries[bisect_right(self._firsts, offset) - 1]
        return Position(self._log_id, offset, ledger_id, entry_id)

    def __repr__(self) -> str:
        if not self.offsets:
            return "Positions(none)"
        return f"Positions({self.offsets.start}..{self.offsets.stop - 1})"


def offset_of(place: object, log_id: str, log: str) -> int:
    """Return the offset of `place`, which is a position or an offset."""
    if isinstance(place, Position):
        if place.log_id != log_id:
            raise ConfigurationError(
                f"the position {place.offset} belongs to log {place.log_id}, not to {log!r} "
                f"({log_id}); after a log was deleted and created again, its positions are invalid",
                log=log,
            )
        return place.offset
    if isinstance(place, bool) or not isinstance(place, int) or place < 0:
        raise ConfigurationError(
            f"{place!r} is not a position in log {log!r}: pass a position, or an offset of 0 or "
            "more",
            log=log,
        )
    return place


def checked_records(records: Iterable[Payload]) -> list[Payload]:
    """Return the records with immutable bytes.

    Raises the errors of `checked_record`, and LocalProtocolError if `records` is a single record.
    """
    check_several(records, "a record", "records")
    listed = list(records)
    if set(map(type, listed)) <= {bytes}:
        longest = max(map(len, listed), default=0)
        if longest <= RECORD_SIZE_BYTES_MAX:
            return listed  # ten times faster than a check of each record
    return [checked_record(record) for record in listed]


def checked_record(record: object) -> Payload:
    """Return the record with immutable bytes. Raises the errors of `checked_payload`."""
    return checked_payload(record, what="a record", size_bytes_max=RECORD_SIZE_BYTES_MAX)


def check_leader_log(log: str, kind: LogKind) -> None:
    """Raise LogKindError unless this is a leader log."""
    if kind is not LogKind.LEADER:
        raise LogKindError(
            f"log {log!r} is a {kind.name.lower()} log, which has no leader: read and "
            'write it with Spark, format("ledger")',
            log=log,
        )


def check_holds(log: str, kind: LogKind, content: LogContent, wanted: LogContent) -> None:
    """Raise LogKindError unless this is a leader log with the content `wanted`."""
    check_leader_log(log, kind)
    if content is not wanted:
        how = "read and tail" if content is LogContent.RECORDS else "read_rows and tail_rows"
        raise LogKindError(
            f"log {log!r} is a leader log of {content.name.lower()}: use {how}", log=log
        )
