"""Properties of a frame that decide its lane before it is decoded."""

from __future__ import annotations

from struct import Struct
from typing import Final

from ledgerlog_spark.wire.opcodes import Flag, Opcode

OPCODE_OFFSET: Final = 1
_FLAGS_OFFSET: Final = 3
# Plain numbers: the operators of an IntFlag cost 1.8 us each.
RECOVERY_ADD: Final = int(Flag.RECOVERY_ADD)
HIGH_PRIORITY: Final = int(Flag.HIGH_PRIORITY)
_FENCE_OR_RECOVERY: Final = int(Flag.FENCE | Flag.HIGH_PRIORITY)
ADDS: Final = frozenset((int(Opcode.ADD), int(Opcode.ADD_RUN)))
READ: Final = int(Opcode.READ)
BATCH_READ: Final = int(Opcode.BATCH_READ)
_BATCH_SIZE: Final = Struct(">q")
_BATCH_SIZE_OFFSET: Final = 32


def is_control(body: memoryview) -> bool:
    """Return whether a frame belongs to recovery or fencing, by the lowest byte of its header."""
    if len(body) <= _FLAGS_OFFSET:
        return False
    flags = body[_FLAGS_OFFSET]
    if body[OPCODE_OFFSET] in ADDS:
        return bool(flags & RECOVERY_ADD)
    return bool(flags & _FENCE_OR_RECOVERY)


def size_wanted(body: memoryview, size_bytes_max: int) -> int:
    """Return the maximum of bytes of entries for a batch read: its limit, or all allowed.

    The result for a frame that is too short does not matter: the decoder refuses it.
    """
    if len(body) < _BATCH_SIZE_OFFSET + _BATCH_SIZE.size:
        return size_bytes_max
    (size_bytes,) = _BATCH_SIZE.unpack_from(body, _BATCH_SIZE_OFFSET)
    return size_allowed(size_bytes, size_bytes_max)


def size_allowed(size_bytes: int, size_bytes_max: int) -> int:
    """Return the maximum for a batch read with this limit; a limit of 0 or less is none."""
    return min(size_bytes, size_bytes_max) if size_bytes > 0 else size_bytes_max
