"""Operations, flags and the packet header of v2 frames (WIRE.md#frames)."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

VERSION_MIN: Final = 1
VERSION: Final = 2
"""What our client sends; a bookie answers with the version of the request."""


class Opcode(IntEnum):
    """Operations that v2 frames carry; from 64 on they are ledgerlog's own."""

    ADD = 1
    READ = 2
    AUTH = 3
    BATCH_READ = 7
    ADD_RUN = 64
    TELL_LAC = 65


class Flag(IntFlag):
    """Bits of the packet header's lower half; answers carry none."""

    NONE = 0
    FENCE = 1
    RECOVERY_ADD = 2
    HIGH_PRIORITY = 4


def packet_header(opcode: int, flags: int = 0, version: int = VERSION) -> int:
    """The 32-bit packet header: version in 8 bits, opcode in 8, flags in 16."""
    return version << 24 | opcode << 16 | flags
