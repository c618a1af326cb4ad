"""Outcome codes to the numbers on the wire and back (WIRE.md#answer-codes)."""

from __future__ import annotations

from ledgerlog_spark.model import Code

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
    # Unknown has one number for everybody. Apache's v2 client dies of 107, so it is never sent.
    Code.DIGEST_MISMATCH: 101,
    Code.TIMEOUT: 101,
    Code.UNAVAILABLE: 101,
}
assert _NUMBERS.keys() == set(Code)

_LOCAL_ONLY = (Code.DIGEST_MISMATCH, Code.TIMEOUT, Code.UNAVAILABLE)
_CODES = {number: code for code, number in _NUMBERS.items() if code not in _LOCAL_ONLY}


def number_of(code: Code) -> int:
    """The number that a bookie sends for `code`; what only a client can see becomes 101."""
    return _NUMBERS[code]


def code_of(number: int) -> Code:
    """What a received number means.

    107 (unknown ledger state) and numbers that no version defines prove nothing, like 101.
    """
    return _CODES.get(number, Code.IO_ERROR)
