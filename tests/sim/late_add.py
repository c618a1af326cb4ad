"""Entries that no machine sends: a late add, and a copy with another header."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from crc32c import crc32c

from bookie_server.core.requests import StoredAdd
from ledgerlog_spark.model import NO_ENTRY, DigestType
from ledgerlog_spark.wire.digests import master_key
from ledgerlog_spark.wire.entry import EntryCodec, decode_entry_header

if TYPE_CHECKING:
    from tests.sim.checker import Checker

CODEC = EntryCodec(DigestType.CRC32C, b"")
KEY = master_key(b"")


def under_lac(stored: bytes, last_add_confirmed: int) -> bytes:
    """Return a copy of an entry with another LAC in its header, as Apache's worker makes it."""
    ledger_id, entry_id, _, length = decode_entry_header(stored)
    header = Struct(">qqqq").pack(ledger_id, entry_id, last_add_confirmed, length)
    payload = stored[CODEC.overhead_bytes :]
    return header + crc32c(payload, crc32c(header)).to_bytes(4, "big") + payload


def late_add(checker: Checker, ledger_id: int) -> StoredAdd:
    """Return an add that the writer of a ledger sent before the fence, and that arrives now."""
    entry_id = max(checker.payloads, default=NO_ENTRY) + 1
    ((head, payload),) = CODEC.encode_run(
        ledger_id=ledger_id,
        first_entry_id=entry_id,
        last_add_confirmed=checker.last_confirmed,
        length=checker.length_of(entry_id - 1),
        payloads=(b"late",),
    )
    stored = head + bytes(payload)
    return StoredAdd(ledger_id, (entry_id,), (len(stored),), stored, KEY, is_recovery=False)
