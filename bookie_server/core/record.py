"""One record of the journal: its content, and its place once it is written."""

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
    """The kind of a record. All numbers are reserved since the first version."""

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
"""Kinds that this version writes. A file with other kinds was written by a later version."""


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """The file in a slot. It seeds all checksums, so stale sectors never pass.

    Attributes:
        name: Name of the slot in its directory.
        file_id: Increases over the life of the directory.
        file_id: Rising over the life of the directory.
        salt: 16 random bytes.
        seed: CRC32C of salt and file id.
    """

    name: str
    file_id: int
    salt: bytes
    seed: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", crc32c(_seed_of_file.pack(self.salt, self.file_id)))

    def seed_at(self, offset: int) -> int:
        """Return the seed of all checksums of the record at `offset`."""
        return crc32c(_seed_of_place.pack(offset), self.seed)


@dataclass(slots=True, eq=False)
class JournalRecord:
    """A record in memory: queued, written, or read back.

    Attributes:
        ledger_id: 0 if the kind does not concern a ledger.
        entry_ids: Empty for control records.
        lengths: Bytes of each stored entry.
        body: The stored entries; None when they are in the file only.
        body_size: Bytes.
        value: The last add confirmed of a LAC record; the time of a tombstone, in seconds since
            the epoch; 0 otherwise.
        ticket: Counts submissions; answers wait for tickets. 0 for records read back.
        sequence: Place in the journal's order; 0 until it is written.
        origin_sequence: The same, except in copies; overlaps compare it.
        durable_upto: Sequence known to be synced when the record was written.
        identity: The file of the record; None until it is written.
        offset: Offset of its header in that file; a multiple of 512.
        header_size: Bytes; the body follows immediately.
        chunk_checksums: CRC32C of each 64 KiB of the body.
        last_add_confirmed: The largest that its entries carry, -1 for none.
        on_done: Called once with the result.
    """

    kind: JournalRecordKind
    ledger_id: int = 0
    _: KW_ONLY
    entry_ids: EntryIds = ()
    lengths: tuple[int, ...] = ()
    body: Buffer | None = None
    body_size: int = field(init=False)
    master_key: bytes = NO_KEY
    flags: int = 0
    value: int = 0
    ticket: int = 0
    sequence: int = 0
    origin_sequence: int = 0
    durable_upto: int = 0
    identity: FileIdentity | None = None
    offset: int = -1
    header_size: int = 0
    chunk_checksums: tuple[int, ...] = ()
    last_add_confirmed: int = -1
    on_done: Callable[[Code], None] | None = None

    def __post_init__(self) -> None:
        self.body_size = 0 if self.body is None else len(self.body)

    @property
    def size(self) -> int:
        """Bytes of the record in the file without padding; valid once its header size is set."""
        return self.header_size + self.body_size

    @property
    def is_recovery(self) -> bool:
        """Whether it was a recovery add."""
        return bool(self.flags & FLAG_RECOVERY_ADD)

    def span_of(self, place: int, count: int = 1) -> tuple[int, int]:
        """Return first byte and end byte, in the body, of the `count` entries from `place`."""
        lengths = self.lengths
        start = sum(lengths[:place])
        return start, start + sum(lengths[place : place + count])
