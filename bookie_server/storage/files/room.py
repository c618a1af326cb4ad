"""The room of open files: for records, for the index, and for the deletions of a full bookie."""

from __future__ import annotations

from collections.abc import Iterable

from bookie_server.core.index_format import BLOCK_SIZE
from bookie_server.core.pieces import stretches_at_most
from bookie_server.core.record import JournalRecord
from bookie_server.core.record_codec import size_at_most
from bookie_server.storage.files.entry_log_file import OpenFile

CONTROL_RECORD_SIZE = 1_024  # upper bound of the bytes of one more control record in a file
RESERVE_FRACTION = 16
"""Fraction of the last file (1/16) that is reserved for control records and recovery adds."""
DROPS_FRACTION = 64
"""Fraction of a file (1/64) that only deletions may use. A tombstone takes 512 bytes."""
DROPS_FRACTION_MAX = 8
"""Largest fraction of a file (1/8) that only deletions may use. This limit applies to a very small
file, which a start on a full disk may make."""
INDEX_BYTES_PER_PIECE = 48
INDEX_BYTES_BESIDE = 2 * BLOCK_SIZE
PIECES_PER_STRETCH_MAX = 2
"""Maximum number of pieces that a stretch of consecutive ids adds to an index. If the stretch is
within an older piece, it adds one piece and splits the older piece into two."""


def room_left(file: OpenFile) -> int:
    """Return the number of bytes of records that still fit into the file before its index."""
    index_size = INDEX_BYTES_BESIDE + INDEX_BYTES_PER_PIECE * file.index.pieces
    return file.entry.size_bytes - file.end - index_size


def room_for_drops(file: OpenFile, file_size_bytes: int) -> int:
    """Return the bytes of the last file that only deletions may use, because deletions free room.

    `file_size_bytes` is the usual size of a file.
    """
    return min(file_size_bytes // DROPS_FRACTION, file.entry.size_bytes // DROPS_FRACTION_MAX)


def bytes_at_most(records: Iterable[JournalRecord]) -> int:
    """Return an upper bound of the bytes that records take in a file and in its index."""
    return sum(
        size_at_most(record)
        + INDEX_BYTES_PER_PIECE * PIECES_PER_STRETCH_MAX * stretches_at_most(record.entry_ids)
        for record in records
    )
