"""Computes the part of a ledger that a bookie stores."""

from __future__ import annotations

from ledgerlog_spark.model import LedgerMetadata


def is_named(metadata: LedgerMetadata, bookie_id: str) -> bool:
    """Whether a fragment of the ledger names the bookie. Fragments without entries count too."""
    return any(bookie_id in fragment.ensemble for fragment in metadata.fragments)


def bytes_on(metadata: LedgerMetadata, bookie_id: str) -> int:
    """Return the approximate payload bytes of a ledger on a bookie; 0 if the ledger is not closed.

    The estimate assumes that all entries have the same size, and that the copies of a striped
    ledger's entries are distributed equally over its bookies.
    """
    if not metadata.is_closed or metadata.last_entry_id < 0:
        return 0
    ends = [fragment.first_entry_id for fragment in metadata.fragments[1:]]
    end = metadata.last_entry_id + 1
    entries = sum(
        max(0, min(last, end) - fragment.first_entry_id)
        for fragment, last in zip(metadata.fragments, [*ends, end], strict=True)
        if bookie_id in fragment.ensemble
    )
    quorum = metadata.quorum
    copies = metadata.length * entries // end
    return copies * quorum.write_quorum // quorum.ensemble_size
