"""A client with version 3 of the protocol gets an answer that it can decode."""

from __future__ import annotations

import pytest

from ledgerlog_spark.wire.requests import encode_read
from ledgerlog_spark.wire.version_3 import refusal_of_version_3

# Request { header { version: VERSION_THREE operation: READ_ENTRY txnId: 300 }
#           readRequest { ledgerId: 5 entryId: 0 } }
READ = bytes.fromhex("0a07 0803 1001 18ac02 a206 04 0805 1000".replace(" ", ""))


def test_a_request_is_refused_with_its_own_header_and_bad_version() -> None:
    refusal = refusal_of_version_3(memoryview(READ))
    # Response { header as above, status: EBADVERSION (503) }
    assert refusal == bytes.fromhex("0000000c 0a07 0803 1001 18ac02 10f703".replace(" ", ""))


def test_an_add_is_refused_with_what_ends_it_at_once() -> None:
    """After EBADVERSION, Apache's client would replace the bookie and resend the add, forever."""
    add = bytes.fromhex("0a0708031002 18ac02 aa06 04 0805 1000".replace(" ", ""))
    refusal = refusal_of_version_3(memoryview(add))
    # Response { header as above, status: EUA (502) }
    assert refusal == bytes.fromhex("0000000c 0a07 0803 1002 18ac02 10f603".replace(" ", ""))


def test_a_priority_in_the_header_is_echoed() -> None:
    header = bytes.fromhex("08031002180120 64".replace(" ", ""))
    refusal = refusal_of_version_3(memoryview(bytes([0x0A, len(header)]) + header))
    assert refusal is not None
    assert refusal[6:-3] == header


@pytest.mark.parametrize(
    "body",
    [
        encode_read(1, 2)[4:],
        b"",
        b"\x0a",
        b"\x0a\x07\x08\x03",
        READ[:8],
        b"\x0a\x07\x08\x02" + READ[4:],
        b"\x0a\x02\x08\x03" + READ[9:],
        b"\x0a\x0c" + b"\xff" * 12,
        b"\x0a\x03\x08\x80\x80",
        b"\x0a\xff" + READ[2:] * 30,
    ],
)
def test_what_is_no_request_of_version_3_is_left_alone(body: bytes) -> None:
    assert refusal_of_version_3(memoryview(body)) is None
