"""The directory of a bookie that loses records: the records, a MANIFEST, and shared memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from bookie_server.core.doubt import Doubt
from ledgerlog_spark.model import NO_ENTRY

FAILED = -1
"""Value of the surviving number after a failed sync."""


@dataclass(slots=True, eq=False)
class Record:
    """One record of the directory.

    Attributes:
        kind: entry, fence, lac, cleared, state or drop.
        lac: The last add confirmed.
        epoch: The epoch that a `cleared` or `state` record clears its ledger up to.
        checked: The check epoch of the ledger.
        is_only_cached: Whether its sync failed: the page is clean, but the device does not have it.
    """

    kind: str
    ledger_id: int
    entry_id: int = NO_ENTRY
    stored: bytes = b""
    key: bytes | None = None
    lac: int = NO_ENTRY
    epoch: int = 0
    checked: int = 0
    is_only_cached: bool = False


@dataclass(frozen=True, slots=True)
class Manifest:
    """The values that one commit of the MANIFEST makes durable."""

    doubt: Doubt = field(default_factory=Doubt)
    starts: int = 0
    owes_sync: bool = False


@dataclass(eq=False)
class Directory:
    """The parts of a bookie that outlive its processes.

    Attributes:
        records: All records that a read finds, in the order of their writes.
        manifest: None for an empty directory.
        number: Number of records that the run acknowledged, in memory that a power loss clears;
            None if there is none.
        has_damage: Whether a record was lost, and its ledger is unknown.
    """

    records: list[Record] = field(default_factory=list)
    manifest: Manifest | None = None
    number: int | None = None
    has_damage: bool = False
    dirty: set[int] = field(default_factory=set)  # places in `records` without a sync

    def append(self, record: Record) -> None:
        self.dirty.add(len(self.records))
        self.records.append(record)

    def sync(self, end: int) -> None:
        """Make the records before `end` durable."""
        self.dirty = {place for place in self.dirty if place >= end}

    def fail_sync(self, end: int) -> None:
        """Fail to write the records before `end`. Nevertheless, their pages become clean."""
        for place in self.dirty:
            if place < end:
                self.records[place].is_only_cached = True
        self.sync(end)

    def _keep(self, kept: list[Record]) -> bool:
        """Keep these records. Return whether others are lost."""
        is_lost = len(kept) < len(self.records)
        self.records, self.dirty = kept, set()
        return is_lost

    def drop_cache(self) -> bool:
        """Drop all records that are only in the page cache. Return whether records are lost."""
        return self._keep([one for one in self.records if not one.is_only_cached])

    def lose_power(self, random: Random) -> bool:
        """Lose a random part of the records that are not durable.

        Return whether records are lost.
        """
        self.number = None
        kept_part = random.choice((0.0, 0.0, 0.5, 0.9))
        return self._keep(
            [
                one
                for place, one in enumerate(self.records)
                if not one.is_only_cached
                and (place not in self.dirty or random.random() < kept_part)
            ]
        )

    def copied(self) -> Directory:
        """Return a copy of the durable records, as a backup has them."""
        durable = [
            replace(one)
            for place, one in enumerate(self.records)
            if place not in self.dirty and not one.is_only_cached
        ]
        return Directory(durable, self.manifest, None, self.has_damage)
