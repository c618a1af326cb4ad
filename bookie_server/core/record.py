"""One record of the journal: its content, and its place in a file after it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from enum import IntEnum
from struct import Struct

from bookie_server.core.requests import Buffer, EntryIds
from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.digests import crc32c

NO_KEY = bytes(20)
FLAG_RECOVERY_ADD = 1
_seed_of_file = Struct(">16sQ")
_seed_of_place = Struct(">Q")


class JournalRecordKind(IntEnum):
    """The kind of a record. All these numbers are reserved since the first release."""

    RUN = 1
    FENCE = 2
    LIMBO = 3
    LAC = 4
    TOMBSTONE = 5
    FINISH = 6
    WATERMARK = 7
    COMPACTION_COPY = 8


KINDS_READ = frozenset(
    (
        JournalRecordKind.RUN,
        JournalRecordKind.FENCE,
        JournalRecordKind.LAC,
        JournalRecordKind.TOMBSTONE,
        JournalRecordKind.FINISH,
        JournalRecordKind.WATERMARK,
    )
)
"""Kinds that this release writes. A later release wrote a file with other kinds."""


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Identifies the file in a slot.

    The identity seeds all checksums of the file, so data of an earlier file never passes.
    """

    name: str  # of the slot
    file_id: int  # increases over the life of the directory
    salt: bytes  # 16 random bytes
    seed: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", crc32c(_seed_of_file.pack(self.salt, self.file_id)))

    def seed_at(self, offset: int) -> int:
        """Return the seed of all checksums of the record at `offset`."""
        return crc32c(_seed_of_place.pack(offset), self.seed)


@dataclass(slots=True, eq=False)
class JournalRecord:
    """A record in memory: queued, written, or read back."""

    kind: JournalRecordKind
    ledger_id: int = 0  # 0 if the kind does not concern a ledger
    _: KW_ONLY
    entry_ids: EntryIds = ()  # empty for control records
    lengths: tuple[int, ...] = ()  # bytes of each stored entry
    body: Buffer | None = None  # the stored entries; None when only the file has them
    body_size: int = field(init=False)
    master_key: bytes = NO_KEY
    flags: int = 0
    value: int = 0  # a LAC; the time of a tombstone (seconds since the epoch)
    ticket: int = 0  # number of the submission, for which answers wait; 0 for records read back
    sequence: int = 0  # number of the record in the journal; 0 until it is written
    origin_sequence: int = 0  # sequence of the original record; overlaps are decided by it
    durable_upto: int = 0  # last sequence known to be synced when the record was written
    identity: FileIdentity | None = None  # the file of the record; None until it is written
    offset: int = -1  # offset of its header in its file; a multiple of 512
    header_size: int = 0  # bytes; the body follows immediately
    chunk_checksums: tuple[int, ...] = ()  # CRC32C of each 64 KiB of the body
    last_add_confirmed: int = -1  # the largest LAC of its entries, -1 for none
    on_done: Callable[[Code], None] | None = None

    def __post_init__(self) -> None:
        self.body_size = 0 if self.body is None else len(self.body)

    @property
    def size(self) -> int:
        """Bytes of the record in the file without padding; valid after `header_size` is set."""
        return self.header_size + self.body_size

    @property
    def is_recovery(self) -> bool:
        """Whether the record stores a recovery add."""
        return bool(self.flags & FLAG_RECOVERY_ADD)

    def span_of(self, place: int, count: int = 1) -> tuple[int, int]:
        """Return the first byte and the end byte, in the body, of `count` entries from `place`."""
        lengths = self.lengths
        start = sum(lengths[:place])
        return start, start + sum(lengths[place : place + count])
