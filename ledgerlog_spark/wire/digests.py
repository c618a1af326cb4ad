"""The digests of entries (WIRE.md#entry), and the keys that are computed from a password.

CRC32C is also the checksum of a bookie's files.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from collections.abc import Callable
from struct import Struct

from crc32c import crc32c as _crc32c_of

from ledgerlog_spark.model import DigestType

Buffer = bytes | bytearray | memoryview
DigestFunction = Callable[[Buffer, Buffer], bytes]
"""A function of the header and the payload, which returns the stored form of the digest."""

_pack_crc32c = Struct(">I").pack

DIGEST_SIZE_BYTES: dict[DigestType, int] = {
    DigestType.CRC32: 8,
    DigestType.HMAC: 20,
    DigestType.CRC32C: 4,
    DigestType.DUMMY: 0,
}


def crc32c(data: Buffer, seed: int = 0) -> int:
    """CRC32C (Castagnoli) of `data`, continued from `seed`, as an unsigned 32-bit number."""
    checksum: int = _crc32c_of(data, seed)
    return checksum


def master_key(password: bytes) -> bytes:
    """Return the 20-byte key that is sent with every add and every fencing read (WIRE.md#keys)."""
    return hashlib.sha1(b"ledger" + password, usedforsecurity=False).digest()


def _crc32c(header: Buffer, payload: Buffer) -> bytes:
    return _pack_crc32c(_crc32c_of(payload, _crc32c_of(header)))


def _crc32(header: Buffer, payload: Buffer) -> bytes:
    # BookKeeper stores the 32 bits in a field of 64 bits, after 32 zero bits.
    return zlib.crc32(payload, zlib.crc32(header)).to_bytes(8, "big")


def _none(_header: Buffer, _payload: Buffer) -> bytes:
    return b""


def digest_function(digest_type: DigestType, password: bytes) -> DigestFunction:
    """Return the function that computes a ledger's digests. Only HMAC uses the password."""
    if digest_type is DigestType.HMAC:
        key = hashlib.sha1(b"mac" + password, usedforsecurity=False).digest()

        def keyed(header: Buffer, payload: Buffer) -> bytes:
            mac = hmac.new(key, header, hashlib.sha1)
            mac.update(payload)
            return mac.digest()

        return keyed
    return {DigestType.CRC32C: _crc32c, DigestType.CRC32: _crc32, DigestType.DUMMY: _none}[
        digest_type
    ]
