"""The claim of a leader log: the token of the client that may seal the log's open ledgers.

A client claims the log before it seals a ledger of another leader (LOGS.md#J14). So a leader whose
ledger was fenced can find out from the head whether another client takes over the log, or whether
only the ledger was recovered. The claim is a property of the head, because an older release can
read a head with an unknown property, but not a head with an unknown field.
"""

from __future__ import annotations

from dataclasses import replace

from ledgerlog_spark.protocol.log.state.records import LogHead

LEADER_CLAIM = "leaderClaim"
"""Name of the property that contains the claim. The head also lists this name as a writer feature.
A program that does not support a writer feature must not write to the log."""


def claim_of(head: LogHead) -> str:
    """Return the token of the client that claimed the log last; empty if no client claimed it."""
    return head.properties.get(LEADER_CLAIM, "")


def with_claim(head: LogHead, claim: str) -> LogHead:
    """Return the head with this claim."""
    return replace(
        head,
        properties={**head.properties, LEADER_CLAIM: claim},
        writer_features=tuple(sorted({*head.writer_features, LEADER_CLAIM})),
    )
