"""The state of a ledger on a bookie, and the file in which the bookie stores these states.

A state does not include the entries of the ledger. The ledger-state file (FORMATS.md#ledger-states)
consists of blocks. Each block begins at a multiple of 512 bytes, and zeros fill the rest up to the
next block. All numbers are big-endian. A block is

    head, 32 bytes      magic "LSTA", format version u16, zero u16, generation u64, ledgers u64,
                        CRC32C u32 of the records, CRC32C u32 of the head before this field
    per ledger, 76      ledger id i64, last add confirmed i64, explicit LAC i64, tombstone (origin
                        sequence) u64, check epoch u32, directory u16, flags u16 (1 fenced,
                        4 has a key, 8 unverified, 16 forgotten, 32 released), master key 20,
                        dropped (seconds since the epoch, 0 without a tombstone) u32, LAC bound +
                        1 u64, cleared epoch u32

If a ledger has several records, the last record is valid. If that record has the flag `forgotten`,
the bookie has no state for the ledger. In a file of version 2, the records have 72 bytes, without
the cleared epoch. A file of version 1 has one head, and records of 64 bytes without the LAC bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from struct import Struct
from typing import Any

from bookie_server.core.record import NO_KEY
from bookie_server.core.record_codec import aligned
from bookie_server.errors import REPLACEMENT_ADVICE, DamagedDirectoryError
from ledgerlog_spark.wire.digests import crc32c

MAGIC = b"LSTA"
FORMAT_VERSION = 3
FORMAT_VERSION_BEFORE = 2
"""The version that `ledgerlog bookie downgrade` writes."""
FLAG_FENCED = 1
FLAG_HAS_KEY = 4
FLAG_UNVERIFIED = 8
FLAG_FORGOTTEN = 16
FLAG_RELEASED = 32

_head = Struct(">4sHHQQI")
_checksum = Struct(">I")
HEAD_SIZE = _head.size + _checksum.size
_record_v1 = Struct(">qqqQIHH20sI")
_record_v2 = Struct(">qqqQIHH20sIQ")
_record = Struct(">qqqQIHH20sIQI")
_RECORDS = {1: _record_v1, FORMAT_VERSION_BEFORE: _record_v2, FORMAT_VERSION: _record}


@dataclass(slots=True, eq=False)
class HeldLedger:
    """The state of one ledger on this bookie."""

    ledger_id: int
    _: KW_ONLY
    check_epoch: int = 0  # epoch of the last metadata check
    directory: int = 0  # number of the directory that holds the ledger's entries
    master_key: bytes | None = None  # set by the first add or fence, never changed
    is_fenced: bool = False  # whether regular adds are refused
    cleared_epoch: int = 0  # the ledger is cleared up to this epoch of doubt
    last_add_confirmed: int = -1  # the largest LAC in any entry so far; -1 without a LAC
    explicit_lac: int = -1  # the largest explicit LAC so far; -1 without an explicit LAC
    lac_bound: int = -1  # largest LAC that damaged entries can have had; -1: no damaged entries
    tombstone: int = 0  # origin sequence below which entries are deleted; 0: no tombstone
    dropped_s: int = 0  # time of the tombstone, in seconds since the Unix epoch
    is_released: bool = False  # whether the tombstone is a release; then the ledger may exist
    is_unverified: bool = False  # whether a fence may be lost; the next add waits for a check
    last_entry_id: int = -1  # largest stored entry id, from the files; -1 without entries
    last_accepted_id: int = -1  # largest accepted entry id, durable or not; -1 without adds
    last_ticket: int = 0  # ticket of the last record accepted since the start; 0 without a record
    drop_ticket: int = 0  # ticket of the last tombstone since the start; 0 without a tombstone
    added_in: int = 0  # number of the period of the last add (core/release.py); 0 without an add
    is_releasing: bool = False  # whether a release has begun that an add would end
    is_hidden: bool = False  # whether a release has begun whose tombstone is not yet durable

    @property
    def lac(self) -> int:
        """The largest last add confirmed so far, from entries and from explicit LACs."""
        return max(self.last_add_confirmed, self.explicit_lac)

    @property
    def is_lac_known(self) -> bool:
        """Whether it is certain that no damaged entry had a larger LAC than `lac`."""
        return self.lac >= self.lac_bound

    @property
    def is_dropped(self) -> bool:
        """Whether a tombstone deletes all entries that were ever accepted."""
        return (self.tombstone > 0 or self.drop_ticket > 0) and self.last_accepted_id < 0

    @property
    def is_deleted(self) -> bool:
        """Whether the ledger is dropped because its metadata was deleted."""
        return self.is_dropped and not self.is_released

    def end_release(self) -> None:
        """End a release if its tombstone was not submitted. The entries stay."""
        if self.is_releasing:
            self.is_releasing = self.is_hidden = False

    def bury(self, origin: int, dropped_s: int, *, is_release: bool = False) -> None:
        """Apply a tombstone. Tombstones and adds may be applied in any order."""
        if is_release:
            self.is_unverified = True
        else:
            self.is_fenced = True
        if origin > self.tombstone:
            self.tombstone, self.dropped_s = origin, dropped_s
            self.is_released = is_release


class HeldLedgers(dict[int, HeldLedger]):
    """A map from ledger ids to the states of the ledgers.

    Code that changes or removes a state must add the ledger id to `changed` before the next await.
    """

    __slots__ = ("changed",)

    def __init__(self) -> None:
        super().__init__()
        self.changed: set[int] = set()

    def tombstone_of(self, ledger_id: int) -> int:
        """Return the tombstone of a ledger. Entries with a smaller origin sequence are deleted."""
        state = self.get(ledger_id)
        return 0 if state is None else state.tombstone


def encode_states(
    generation: int,
    states: Mapping[int, HeldLedger],
    ids: Iterable[int],
    version: int = FORMAT_VERSION,
) -> bytes:
    """Return a block with the states of `ids`. An id without a state gets the flag "forgotten".

    `version` is `FORMAT_VERSION` or `FORMAT_VERSION_BEFORE`, which has no cleared epochs.
    """
    pack = _RECORDS[version].pack
    records = []
    for ledger_id in ids:
        state = states.get(ledger_id)
        if state is None:
            fields: tuple[Any, ...] = (ledger_id, -1, -1, 0, 0, 0, FLAG_FORGOTTEN, NO_KEY, 0, 0)
            cleared_epoch = 0
        else:
            fields = (
                ledger_id,
                state.last_add_confirmed,
                state.explicit_lac,
                state.tombstone,
                state.check_epoch,
                state.directory,
                FLAG_FENCED * state.is_fenced
                + FLAG_HAS_KEY * (state.master_key is not None)
                + FLAG_UNVERIFIED * state.is_unverified
                + FLAG_RELEASED * state.is_released,
                state.master_key or NO_KEY,
                state.dropped_s,
                state.lac_bound + 1,
            )
            cleared_epoch = state.cleared_epoch
        records.append(pack(*fields, *(cleared_epoch,) * (version == FORMAT_VERSION)))
    body = b"".join(records)
    head = _head.pack(MAGIC, version, 0, generation, len(records), crc32c(body))
    block = head + _checksum.pack(crc32c(head)) + body
    return block.ljust(aligned(len(block)), b"\0")


def decode_states(data: bytes, path: str, cleared_epoch: int = 0) -> HeldLedgers:
    """Decode the blocks of a ledger-state file. All blocks must be valid.

    In a file of the previous version, all ledgers have the cleared epoch `cleared_epoch`.
    """
    states = HeldLedgers()
    offset = 0
    while True:
        version, count, body = _checked_block(
            data, offset, path, (FORMAT_VERSION_BEFORE, FORMAT_VERSION)
        )
        record = _RECORDS[version]
        for fields in record.iter_unpack(body):
            if fields[6] & FLAG_FORGOTTEN:
                states.pop(fields[0], None)
            else:
                states[fields[0]] = _state(fields, cleared_epoch)
        end = offset + HEAD_SIZE + count * record.size
        offset = aligned(end)
        if any(data[end:offset]):
            raise _damage(path, "the bytes between two blocks are not zeros")
        if offset >= len(data):
            break
    if offset > len(data):
        raise _damage(path, "its last block is cut off")
    return states


def decode_states_of_version_1(data: bytes, path: str) -> HeldLedgers:
    """Decode a ledger-state file of version 1, which a MANIFEST of version 1 or 2 refers to."""
    states = HeldLedgers()
    _, count, body = _checked_block(data, 0, path, (1,))
    if len(data) != HEAD_SIZE + count * _record_v1.size:
        raise _damage(path, "its length does not fit its number of records")
    for fields in _record_v1.iter_unpack(body):
        states[fields[0]] = _state(fields, 0)
    return states


def _checked_block(
    data: bytes, offset: int, path: str, versions: tuple[int, ...]
) -> tuple[int, int, bytes]:
    """Return the version of the block at `offset`, the number of its records, and their bytes."""
    head = data[offset : offset + _head.size]
    body_offset = offset + HEAD_SIZE
    if len(data) < body_offset or _checksum.unpack_from(data, offset + _head.size)[0] != crc32c(
        head
    ):
        raise _damage(path, "a head is damaged")
    magic, version, _, _, count, checksum = _head.unpack(head)
    if magic != MAGIC or version not in versions:
        wanted = " or ".join(map(str, versions))
        raise _damage(path, f"its version is {version}, but the MANIFEST needs version {wanted}")
    size = count * _RECORDS[version].size
    body = data[body_offset : body_offset + size]
    if len(body) != size or crc32c(body) != checksum:
        raise _damage(path, "its records are damaged")
    return version, count, body


def _state(fields: tuple[Any, ...], cleared_epoch: int) -> HeldLedger:
    ledger_id, lac, explicit, tombstone, epoch, directory, flags, key, dropped_s, *rest = fields
    state = HeldLedger(ledger_id, check_epoch=epoch, directory=directory)
    state.last_add_confirmed, state.explicit_lac, state.tombstone = lac, explicit, tombstone
    state.dropped_s = dropped_s
    state.lac_bound = rest[0] - 1 if rest else -1  # version 1 has no LAC bound
    state.cleared_epoch = rest[1] if len(rest) > 1 else cleared_epoch
    state.is_fenced = bool(flags & FLAG_FENCED)
    state.is_unverified = bool(flags & FLAG_UNVERIFIED)
    state.is_released = bool(flags & FLAG_RELEASED)
    state.master_key = key if flags & FLAG_HAS_KEY else None
    return state


def _damage(path: str, reason: str) -> DamagedDirectoryError:
    return DamagedDirectoryError(
        f"the ledger-state file {path} is damaged: {reason}. The file holds keys and fences, so "
        f"the bookie cannot start with this directory. Keep the files. {REPLACEMENT_ADVICE}",
        path=path,
        reason=reason,
    )
