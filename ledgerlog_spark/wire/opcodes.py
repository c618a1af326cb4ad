"""Numbers in v2 frames: operations, flags, packet headers and codes (WIRE.md#frames)."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

from ledgerlog_spark.model import Code

VERSION_MIN: Final = 1
VERSION: Final = 2
"""The version that our client sends. A bookie answers with the version of the request."""

# WIRE.md#answer-codes
_NUMBERS: dict[Code, int] = {
    Code.OK: 0,
    Code.NO_LEDGER: 1,
    Code.NO_ENTRY: 2,
    Code.BAD_REQUEST: 100,
    Code.IO_ERROR: 101,
    Code.UNAUTHORIZED: 102,
    Code.BAD_VERSION: 103,
    Code.FENCED: 104,
    Code.READ_ONLY: 105,
    Code.BUSY: 106,
    # All unknown outcomes have the number 101, because Apache's v2 client cannot decode 107.
    Code.DIGEST_MISMATCH: 101,
    Code.TIMEOUT: 101,
    Code.UNAVAILABLE: 101,
}
assert _NUMBERS.keys() == set(Code)

_LOCAL_ONLY = (Code.DIGEST_MISMATCH, Code.TIMEOUT, Code.UNAVAILABLE)
_CODES = {number: code for code, number in _NUMBERS.items() if code not in _LOCAL_ONLY}


class Opcode(IntEnum):
    """Operations of v2 frames. The numbers from 64 on are ledgerlog's own operations."""

    ADD = 1
    READ = 2
    AUTH = 3
    BATCH_READ = 7
    ADD_RUN = 64
    TELL_LAC = 65
    READ_SLICES = 66


class Flag(IntFlag):
    """Bits of the lower half of the packet header. Answers have no flags."""

    NONE = 0
    FENCE = 1
    RECOVERY_ADD = 2
    HIGH_PRIORITY = 4


def packet_header(opcode: int, flags: int = 0, version: int = VERSION) -> int:
    """Return the 32-bit packet header: 8 bits of version, 8 bits of opcode and 16 bits of flags."""
    return version << 24 | opcode << 16 | flags


def number_of(code: Code) -> int:
    """Return the number that a bookie sends for `code`: 101 for codes that only a client uses."""
    return _NUMBERS[code]


def code_of(number: int) -> Code:
    """Return the code of a received number.

    The number 107 (unknown ledger state) and undefined numbers have the same code as 101, because
    these numbers do not prove anything.
    """
    return _CODES.get(number, Code.IO_ERROR)
