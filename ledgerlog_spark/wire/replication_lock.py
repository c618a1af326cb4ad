r"""The lock of a ledger that re-replication takes (WIRE.md#znodes).

Apache's auto-recovery creates an ephemeral node for each ledger that a worker handles. The node has
a `LockDataFormat` message as text: `bookieId`, the holder.
"""

from __future__ import annotations

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.wire.protobuf.text import quoted
from ledgerlog_spark.wire.znodes import LEDGER_ID_MAX

LOCKS = "/underreplication/locks"
"""The parent of all locks, below the ledgers root."""


def lock_path(ledger_id: int) -> str:
    """The path of a ledger's lock below the ledgers root."""
    if not 0 <= ledger_id <= LEDGER_ID_MAX:
        raise WireFormatError(f"ledger id {ledger_id} is not between 0 and {LEDGER_ID_MAX}")
    return f"{LOCKS}/urL{ledger_id:010d}"


def encode_lock(holder: str) -> bytes:
    """The data of a lock."""
    return f"bookieId: {quoted(holder.encode())}\n".encode()
