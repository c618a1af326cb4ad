"""Decides when a scrub begins and which file it reads next. The functions do no I/O.

A scrub is a pass over the files that are finished when it begins, in ascending order of their ids.
Files that are finished later belong to the next pass, so each pass ends. The file `SCRUB` stores
the position of the pass, so a pass continues after a restart (FORMATS.md#scrub).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from struct import Struct

from ledgerlog_spark.wire.digests import crc32c

NAME = "SCRUB"
MAGIC = b"LSCR"
FORMAT_VERSION = 1
TRIES_MAX = 3
"""Maximum number of attempts to read a file in a pass."""
DAMAGED_ENTRIES_MAX = 16_384
DAMAGED_LEDGERS_MAX = 1_000

_position = Struct(">4sHHQQQQ")
_checksum = Struct(">I")
POSITION_SIZE = _position.size + _checksum.size


@dataclass(frozen=True, slots=True)
class ScrubPosition:
    """The progress of the scrubs of a directory. All times are from the computer's clock."""

    began_ms: int = 0  # beginning of the newest pass; 0 if no pass has begun
    ended_ms: int = 0  # end of the last whole pass; 0 if no pass has ended
    upto: int = 0  # largest file id in the newest pass
    done: int = 0  # file id up to which the pass has read its files

    @property
    def is_open(self) -> bool:
        """Whether the newest pass has files that it has not read."""
        return self.done < self.upto

    def begun(self, file_ids: Collection[int], now_ms: int) -> ScrubPosition:
        """Return the position at the beginning of a pass over these files."""
        return replace(self, began_ms=now_ms, upto=max(file_ids, default=0), done=0)

    def left(self, file_ids: Collection[int]) -> set[int]:
        """Return the ids of the files that the pass has not read."""
        return {file_id for file_id in file_ids if self.done < file_id <= self.upto}

    def at(self, left: Collection[int]) -> ScrubPosition:
        """Return the position if the pass has read all its files except the files `left`."""
        return replace(self, done=min(left, default=self.upto + 1) - 1)

    def ended(self, now_ms: int) -> ScrubPosition:
        """Return the position after the last file of the pass."""
        return replace(self, ended_ms=now_ms, done=self.upto)

    def is_due(self, interval_ms: int, now_ms: int) -> bool:
        """Return whether a pass begins or continues now. If the interval is 0, return False.

        If the clock was set back to a time before the newest pass began, a pass is due.
        """
        if not interval_ms:
            return False
        return self.is_open or not 0 <= now_ms - self.began_ms < interval_ms


def encode_position(position: ScrubPosition) -> bytes:
    """Return the content of the file `SCRUB`."""
    data = _position.pack(
        MAGIC,
        FORMAT_VERSION,
        0,
        position.began_ms,
        position.ended_ms,
        position.upto,
        position.done,
    )
    return data + _checksum.pack(crc32c(data))


def decode_position(data: bytes) -> ScrubPosition:
    """Decode the file `SCRUB`. If it is damaged, return the position before the first pass."""
    content = data[: _position.size]
    if len(data) < POSITION_SIZE or _checksum.unpack_from(data, _position.size)[0] != crc32c(
        content
    ):
        return ScrubPosition()
    magic, version, _, began_ms, ended_ms, upto, done = _position.unpack(content)
    if magic != MAGIC or version != FORMAT_VERSION:
        return ScrubPosition()
    return ScrubPosition(began_ms, ended_ms, upto, done)


class DamagedEntries:
    """The damaged entries that no repair has taken yet. Each entry is listed once.

    There are at most `DAMAGED_ENTRIES_MAX` entries of at most `DAMAGED_LEDGERS_MAX` ledgers. If
    there is no room for an entry, the next pass finds the entry again.
    """

    def __init__(self) -> None:
        self._entries: dict[int, set[int]] = {}  # entry ids by ledger id
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, ledger_id: int, entry_ids: Collection[int]) -> None:
        """Add entries of a ledger while there is room."""
        is_full = ledger_id not in self._entries and len(self._entries) >= DAMAGED_LEDGERS_MAX
        room = 0 if is_full else DAMAGED_ENTRIES_MAX - self._count
        entries = self._entries.get(ledger_id, set())
        new = [entry_id for entry_id in entry_ids if entry_id not in entries][:room]
        if new:
            self._entries[ledger_id] = entries.union(new)
            self._count += len(new)

    def take(self) -> list[tuple[int, tuple[int, ...]]]:
        """Remove all entries, and return them by ledger in ascending order."""
        taken, self._entries, self._count = self._entries, {}, 0
        return [(ledger_id, tuple(sorted(taken[ledger_id]))) for ledger_id in sorted(taken)]
