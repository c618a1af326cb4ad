"""A recovery that behaves like Apache's client, as far as this affects a bookie.

It is the shipped recovery with two differences. The LAC of its write-backs moves with them
(PROTOCOL.md#C10 forbids this, because a reader may then see a LAC above the end). It may reopen a
closed ledger first, as Apache's tools do with a forced recovery.
"""

from __future__ import annotations

from typing import Any

from ledgerlog_spark.protocol.ledger.recover.recovery import LedgerRecovery
from ledgerlog_spark.protocol.ledger.write.add_pipeline import AddPipeline


class MovingPipeline(AddPipeline):
    """A pipeline whose write-backs have the newest LAC."""

    __slots__ = ()

    @property
    def header_last_add_confirmed(self) -> int:
        return self.last_add_confirmed


class ApacheRecovery(LedgerRecovery):
    """A recovery of Apache's client."""

    def handle(self, event: Any) -> list[Any]:
        effects = super().handle(event)
        pipeline = self._tail.write_back.pipeline if self._tail is not None else None
        if pipeline is not None and type(pipeline) is AddPipeline:
            pipeline.__class__ = MovingPipeline
        return effects
