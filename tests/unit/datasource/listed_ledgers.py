"""Ledgers as lists of payloads, which count the reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import DataLossError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ledgerlog_spark.protocol.ledger.read_room import ReadRoom
from ledgerlog_spark.protocol.ledger.slices import SliceSource


@dataclass(frozen=True)
class Entry:
    entry_id: int
    payload: bytes


@dataclass
class Ledgers:
    """Ledgers by id, in place of the logs of a cluster.

    Attributes:
        entries: Payloads of each ledger, by entry id.
        lost: Entries that no bookie has.
        read: Entries that were read, in order.
    """

    entries: dict[int, dict[int, bytes]] = field(default_factory=dict)
    lost: set[tuple[int, int]] = field(default_factory=set)
    read: list[tuple[int, int]] = field(default_factory=list)

    def open_by_id(self, _name: str, _log_id: str) -> Ledgers:
        return self

    def begin_ranges(
        self,
        ranges: Sequence[tuple[int, int, int]],
        *,
        password: bytes,
        room: ReadRoom | None = None,  # noqa: ARG002
        slices: Sequence[SliceSource | None] | None = None,
    ) -> list[Reading]:
        assert password == b"secret"
        assert not any(slices or ()), "these ranges are too small for slices"
        return [Reading(self, *each) for each in ranges]


@dataclass
class Reading:
    ledgers: Ledgers
    ledger_id: int
    first_entry_id: int
    last_entry_id: int

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for entry_id in range(self.first_entry_id, self.last_entry_id + 1):
            if (self.ledger_id, entry_id) in self.ledgers.lost:
                raise DataLossError("gone", ledger_id=self.ledger_id)
            self.ledgers.read.append((self.ledger_id, entry_id))
            yield (Entry(entry_id, self.ledgers.entries[self.ledger_id][entry_id]),)

    def close(self) -> None:
        """Do nothing, because no request is pending."""
