"""Decides which files are compacted, and at which speed. The functions do no I/O.

A file is compacted if its live entries are a small part of the entries that it stored. Its live
entries are copied, and then the whole file is freed. The file that frees the most bytes for each
copied byte is compacted first.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bookie_server.core.pieces import Piece, cut
from bookie_server.core.record_codec import CHUNK_SIZE, FIXED_SIZE, aligned
from bookie_server.core.settings import StorageSettings

T = TypeVar("T")

ALL_PERCENT = 100
"""Threshold of a compaction that compacts each file with a dead entry."""
CREDIT_MS = 100
"""If compaction was slower than its rate, it may then be faster to make up for at most this
time."""
MILLISECONDS = 1_000
RETRY_PAUSE_MS = 600_000
"""Pause after which compaction tries an unreadable file again."""
RETRY_PAUSE_MS_MAX = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """The sizes of a finished file that may be compacted."""

    file_id: int
    live_bytes: int  # size of the entries that are not deleted
    data_bytes: int  # size of all entries of the file, live or not

    @property
    def freed_per_copied(self) -> float:
        """Number of bytes that are freed for each copied byte."""
        return (self.data_bytes - self.live_bytes) / max(self.live_bytes, 1)


def chosen(candidates: Iterable[Candidate], live_percent: int) -> list[Candidate]:
    """Return the files of which less than `live_percent` % is live, in the order of compaction."""
    found = [
        file
        for file in candidates
        if ALL_PERCENT * file.live_bytes < live_percent * file.data_bytes
    ]
    return sorted(found, key=lambda file: (-file.freed_per_copied, file.file_id))


def stored_bytes(size_bytes: int, pieces: int) -> int:
    """Estimate the bytes that `pieces` records with `size_bytes` in total take in a file."""
    if not pieces:
        return 0
    body = -(-size_bytes // pieces)
    return pieces * aligned(FIXED_SIZE + 4 * -(-body // CHUNK_SIZE) + body)


@dataclass(slots=True)
class Schedule:
    """The times at which the next minor and the next major compaction are due."""

    settings: StorageSettings
    minor_ms: int  # monotonic time of the last minor compaction
    major_ms: int  # monotonic time of the last major compaction

    def due(self, now_ms: int) -> int:
        """If a compaction is due, record its start and return its threshold. Otherwise return 0.

        A major compaction also counts as a minor compaction.
        """
        settings = self.settings
        if _is_due(now_ms - self.major_ms, settings.compaction_major_interval_ms):
            self.major_ms = self.minor_ms = now_ms
            return settings.compaction_major_percent
        if _is_due(now_ms - self.minor_ms, settings.compaction_minor_interval_ms):
            self.minor_ms = now_ms
            return settings.compaction_minor_percent
        return 0


def _is_due(passed_ms: int, interval_ms: int) -> bool:
    return 0 < interval_ms <= passed_ms


class Withdrawals:
    """The files that could not be read, and the time of the next attempt for each file.

    A later attempt may succeed, because a device error can be temporary, and the damaged entries
    can be deleted. After each failure, the pause doubles, up to `RETRY_PAUSE_MS_MAX`.
    """

    def __init__(self) -> None:
        self._pauses: dict[int, tuple[int, int]] = {}  # end and length of the pause, by file id

    def add(self, file_id: int, now_ms: int) -> None:
        """Record that a file could not be read."""
        _, last_ms = self._pauses.get(file_id, (0, RETRY_PAUSE_MS // 2))
        pause_ms = min(2 * last_ms, RETRY_PAUSE_MS_MAX)
        self._pauses[file_id] = now_ms + pause_ms, pause_ms

    def waiting(self, file_ids: Collection[int], now_ms: int) -> set[int]:
        """Return the files whose pause has not ended. Forget files that are not in `file_ids`."""
        for file_id in self._pauses.keys() - file_ids:
            del self._pauses[file_id]
        return {file_id for file_id, (end_ms, _) in self._pauses.items() if now_ms < end_ms}


class Rate:
    """Limits the bytes that are read and written in a second. The rate 0 means no limit."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._allowed_from_ms = -math.inf

    def pause_ms(self, size_bytes: int, now_ms: int) -> int:
        """Count bytes that were read or written, and return the wait before further bytes."""
        if not self._bytes_per_s:
            return 0
        start = max(self._allowed_from_ms, now_ms - CREDIT_MS)
        self._allowed_from_ms = start + size_bytes * MILLISECONDS / self._bytes_per_s
        return max(0, int(self._allowed_from_ms - now_ms))


def uncovered(piece: Piece[T], newer: Sequence[tuple[int, int]]) -> list[Piece[T]]:
    """Return the parts of a piece that contain no id of `newer`.

    `newer` contains ranges (first, last) in ascending order.
    """
    found: list[Piece[T]] = []
    at = piece.first
    for first, last in newer:
        if at < first and at <= piece.last:
            found.append(cut(piece, at, min(first - 1, piece.last)))
        at = max(at, last + 1)
    if at <= piece.last:
        found.append(cut(piece, at, piece.last))
    return found
