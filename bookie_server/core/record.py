"""A record of the journal: its content, and its place in a file after it is written."""

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
FLAG_RELEASE = 8
"""A tombstone with this flag sets no fence."""
COPIES_FIRST_SEQUENCE = 1
"""Sequence of the first record in a file of copies. The sequences of such a file are used only in
this file."""
_seed_of_file = Struct(">16sQ")
_seed_of_place = Struct(">Q")


class JournalRecordKind(IntEnum):
    """The kind of a record. The numbers are stored in files, so they never change."""

    RUN = 1
    FENCE = 2
    LIMBO = 3
    LAC = 4
    TOMBSTONE = 5
    FINISH = 6
    WATERMARK = 7
    COMPACTION_COPY = 8


KINDS_READ = frozenset(JournalRecordKind) - {JournalRecordKind.COMPACTION_COPY}
"""Kinds that this release writes. If a record has another kind, a later release wrote the file."""


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Identifies a file and seeds its checksums, so that data of earlier files is not accepted."""

    name: str  # name of the slot
    file_id: int  # larger than the ids of all earlier files of the directory
    salt: bytes  # 16 random bytes
    seed: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", crc32c(_seed_of_file.pack(self.salt, self.file_id)))

    def seed_at(self, offset: int) -> int:
        """Return the seed of all checksums of the record at `offset`."""
        return crc32c(_seed_of_place.pack(offset), self.seed)


@dataclass(slots=True, eq=False)
class JournalRecord:
    """A journal record in memory, which is queued, written, or read from a file."""

    kind: JournalRecordKind
    ledger_id: int = 0  # 0 for a kind of record without a ledger
    _: KW_ONLY
    entry_ids: EntryIds = ()  # empty for control records
    lengths: tuple[int, ...] = ()  # bytes of each stored entry
    body: Buffer | None = None  # the stored entries; None if the bytes are only in the file
    body_size: int = field(init=False)
    master_key: bytes = NO_KEY
    flags: int = 0
    value: int = 0  # a LAC, or the time of a tombstone in seconds since the Unix epoch
    epoch: int = 0  # in a limbo record: the ledger is cleared up to this epoch of doubt
    ticket: int = 0  # number from `Journal.submit`; 0 for a record from a file
    sequence: int = 0  # number of the record in the journal; 0 until the record is written
    # Sequence of the original record. If records overlap, the record with the larger number counts.
    origin_sequence: int = 0
    durable_upto: int = 0  # last sequence known to be synced when the record was written
    identity: FileIdentity | None = None  # the file that contains the record; None before the write
    offset: int = -1  # offset of the header in the file; a multiple of 512 bytes
    header_size: int = 0  # bytes of the header; the body follows immediately
    chunk_checksums: tuple[int, ...] = ()  # CRC32C of each 64 KiB of the body
    last_add_confirmed: int = -1  # the largest LAC of the record's entries; -1 without entries
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

    @property
    def is_release(self) -> bool:
        """Whether a tombstone releases its ledger."""
        return bool(self.flags & FLAG_RELEASE)

    def span_of(self, place: int, count: int = 1) -> tuple[int, int]:
        """Return the start and the end of `count` entries in the body, from index `place` on."""
        lengths = self.lengths
        start = sum(lengths[:place])
        return start, start + sum(lengths[place : place + count])
