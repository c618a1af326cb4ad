"""An add that arrives after its writer has stopped waiting for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bookie_server.core.requests import StoredAdd
from ledgerlog_spark.model import NO_ENTRY, DigestType
from ledgerlog_spark.wire.digests import master_key
from ledgerlog_spark.wire.entry import EntryCodec

if TYPE_CHECKING:
    from tests.sim.checker import Checker

CODEC = EntryCodec(DigestType.CRC32C, b"")
KEY = master_key(b"")


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
