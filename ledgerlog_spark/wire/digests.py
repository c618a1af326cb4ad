"""The digests that stand between an entry's header and its payload (WIRE.md#entry)."""

from __future__ import annotations

import hashlib
import hmac
import zlib
from collections.abc import Callable
from struct import Struct

from crc32c import crc32c

from ledgerlog_spark.model import DigestType
from ledgerlog_spark.wire.master_key import digest_key

Buffer = bytes | bytearray | memoryview
DigestFunction = Callable[[Buffer, Buffer], bytes]
"""Takes header and payload, returns the digest as it is stored."""

_pack_crc32c = Struct(">I").pack

DIGEST_SIZE_BYTES: dict[DigestType, int] = {
    DigestType.CRC32: 8,
    DigestType.HMAC: 20,
    DigestType.CRC32C: 4,
    DigestType.DUMMY: 0,
}


def _crc32c(header: Buffer, payload: Buffer) -> bytes:
    return _pack_crc32c(crc32c(payload, crc32c(header)))


def _crc32(header: Buffer, payload: Buffer) -> bytes:
    # BookKeeper keeps the 32 bits in a 64-bit field, zero-extended.
    return zlib.crc32(payload, zlib.crc32(header)).to_bytes(8, "big")


def _none(_header: Buffer, _payload: Buffer) -> bytes:
    return b""


def digest_function(digest_type: DigestType, password: bytes) -> DigestFunction:
    """The function that computes a ledger's digests; only HMAC depends on the password."""
    if digest_type is DigestType.HMAC:
        key = digest_key(password)

        def keyed(header: Buffer, payload: Buffer) -> bytes:
            mac = hmac.new(key, header, hashlib.sha1)
            mac.update(payload)
            return mac.digest()

        return keyed
    return {DigestType.CRC32C: _crc32c, DigestType.CRC32: _crc32, DigestType.DUMMY: _none}[
        digest_type
    ]
