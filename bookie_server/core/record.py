"""One record of the journal: its content, and its place once it has one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct

from bookie_server.core.requests import Buffer, EntryIds
from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.castagnoli import crc32c

NO_KEY = bytes(20)
FLAG_RECOVERY_ADD = 1
_seed_of_file = Struct(">16sQ")
_seed_of_place = Struct(">Q")


class RecordKind(IntEnum):
    """What a record says. All numbers are taken from the first version on."""

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
        RecordKind.RUN,
        RecordKind.FENCE,
        RecordKind.LAC,
        RecordKind.TOMBSTONE,
        RecordKind.FINISH,
        RecordKind.WATERMARK,
    )
)
"""Kinds that this version writes; a file with others was written by a later one."""


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Which file a slot holds. Checksums are seeded with it, so stale sectors never pass.

    Attributes:
        name: Of the slot, in its directory.
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
        """Seed of all checksums of the record at `offset`."""
        return crc32c(_seed_of_place.pack(offset), self.seed)


class JournalRecord:
    """A record in memory: queued, written, or read back.

    Attributes:
        ledger_id: 0 where the kind is about no ledger.
        entry_ids: Empty for control records.
        lengths: Of each stored entry, bytes.
        body: The stored entries; None when they are in the file only.
        body_size: Bytes.
        value: The last add confirmed of a LAC record; when the ledger was dropped, in seconds
            since the epoch, of a tombstone; 0 otherwise.
        ticket: Counts submissions; answers wait for tickets. 0 for records read back.
        sequence: Place in the journal's order; 0 until it is written.
        origin_sequence: The same, except in copies; overlaps compare it.
        durable_upto: Sequence known to be synced when the record was written.
        identity: File that it lies in; None until it is written.
        offset: Of its header in that file; a multiple of 512.
        header_size: Bytes; the body follows at once.
        chunk_checksums: CRC32C of each 64 KiB of the body.
        last_add_confirmed: The largest that its entries carry, -1 for none.
        on_done: Told once what became of it.
    """

    __slots__ = (
        "body",
        "body_size",
        "chunk_checksums",
        "durable_upto",
        "entry_ids",
        "flags",
        "header_size",
        "identity",
        "kind",
        "last_add_confirmed",
        "ledger_id",
        "lengths",
        "master_key",
        "offset",
        "on_done",
        "origin_sequence",
        "sequence",
        "ticket",
        "value",
    )

    def __init__(
        self,
        kind: RecordKind,
        ledger_id: int = 0,
        *,
        entry_ids: EntryIds = (),
        lengths: tuple[int, ...] = (),
        body: Buffer | None = None,
        master_key: bytes = NO_KEY,
        flags: int = 0,
        value: int = 0,
        origin_sequence: int = 0,
    ) -> None:
        self.kind = kind
        self.ledger_id = ledger_id
        self.entry_ids = entry_ids
        self.lengths = lengths
        self.body = body
        self.body_size = 0 if body is None else len(body)
        self.master_key = master_key
        self.flags = flags
        self.value = value
        self.origin_sequence = origin_sequence
        self.ticket = 0
        self.sequence = 0
        self.durable_upto = 0
        self.identity: FileIdentity | None = None
        self.offset = -1
        self.header_size = 0
        self.chunk_checksums: tuple[int, ...] = ()
        self.last_add_confirmed = -1
        self.on_done: Callable[[Code], None] | None = None

    @property
    def size(self) -> int:
        """Bytes it takes in the file without padding, once its header size is known."""
        return self.header_size + self.body_size

    @property
    def is_recovery(self) -> bool:
        """Whether it was a recovery add."""
        return bool(self.flags & FLAG_RECOVERY_ADD)

    def span_of(self, place: int, count: int = 1) -> tuple[int, int]:
        """Where in the body the `count` entries from `place` lie: first byte, end byte."""
        lengths = self.lengths
        start = sum(lengths[:place])
        return start, start + sum(lengths[place : place + count])
