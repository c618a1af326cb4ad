"""The appended, acknowledged and read records of one log."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import LedgerLogError
from tests.sim.leader.leader import Append

if TYPE_CHECKING:
    from ledgerlog_spark.log.records import Positions
    from ledgerlog_spark.model import Position
    from tests.sim.leader.hosts.view import LeaderView

CLOCK_MS = 3
"""Maximum time by which a process's estimate of the store's clock is behind this clock."""


@dataclass
class Truth:
    """Checks that records keep their offsets, and that acknowledged and failed appends are true.

    Attributes:
        values: By offset, the values that any reader or leader reported.
        places: By value, the offsets of `values`.
        appends: By value, the acknowledged appends with their times.
        failed: Values whose append failed with a definite error.
        times_ms: By offset, the append time in the entry that was sent last.
        shown: The largest end of the log that a reader saw.
    """

    view: LeaderView
    values: dict[int, object] = field(default_factory=dict)
    places: dict[object, int] = field(default_factory=dict)
    appends: dict[object, Append] = field(default_factory=dict)
    failed: set[object] = field(default_factory=set)
    times_ms: dict[int, int] = field(default_factory=dict)
    shown: int = 0

    def see(self, offset: int, value: object) -> None:
        """Record that a reader or a leader reported this value at this offset."""
        known = self.values.setdefault(offset, value)
        self.view.require(known == value, f"{known!r} and {value!r} are at offset {offset}")
        place = self.places.setdefault(value, offset)
        self.view.require(place == offset, f"{value!r} is at {place} and at {offset}")
        self.view.require(value not in self.failed, f"{value!r} failed for certain, and is there")

    def acknowledged(self, place: Position, value: object, started_ms: int) -> None:
        """Check an acknowledged append: its place is listed, and its time is that of the call."""
        offset, view = place.offset, self.view
        self.see(offset, value)
        ledger = view.ledgers.by_id[place.ledger_id]
        is_listed = place.ledger_id in view.checks.listed_ever
        view.require(is_listed, f"{value!r} was acknowledged in an unlisted ledger (LOGS.md#M6)")
        view.require(
            place.entry_id < ledger.readable, f"{value!r} is not safe at {place} (LOGS.md#M2)"
        )
        entry = ledger.stored[place.entry_id]
        is_there = entry.first_offset <= offset < entry.end_offset
        view.require(is_there, f"{value!r} is not at {place}, where {entry.first_offset} is")
        late_ms = self.times_ms[offset] - started_ms
        view.require(late_ms >= -CLOCK_MS, f"{value!r} is dated {-late_ms} ms before its append")
        append = Append(started_ms, 1, offset)
        append.acknowledged_ms = self.view.host.now_ms()
        self.appends[value] = append

    def joined(self, positions: Positions) -> None:
        """Check that the records of one call are in consecutive entries."""
        for piece, following in itertools.pairwise(positions._entries):
            entry = self.view.ledgers.by_id[piece.ledger_id].stored[piece.entry_id]
            self.view.require(
                entry.end_offset == following.first_offset,
                f"{positions} has {piece}, which ends at {entry.end_offset}, before {following}",
            )

    def refused(self, value: object, error: LedgerLogError) -> None:
        """Record that an append failed."""
        if error.definite:
            self.view.require(value not in self.places, f"{value!r} is there: {error!r}")
            self.failed.add(value)

    @property
    def end_offset(self) -> int:
        """The offset after the last acknowledged record."""
        return max((append.offset + 1 for append in self.appends.values()), default=0)

    def check_all(self, records: list[tuple[int, object]]) -> None:
        """Check the whole log, as it was read at the end."""
        offsets = [offset for offset, _ in records]
        first = self.view.head.start_offset
        self.view.require(
            offsets == list(range(first, first + len(offsets))), "records are missing in the log"
        )
        for offset, value in records:
            self.see(offset, value)
        for value, append in self.appends.items():
            is_there = append.offset < first or append.offset - first < len(records)
            self.view.require(is_there, f"{value!r} was acknowledged and is lost")
        self.view.checks.order(self.appends.values())
