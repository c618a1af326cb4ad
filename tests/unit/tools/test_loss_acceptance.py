"""The order in which the loss of entries is accepted (ADR 52)."""

from __future__ import annotations

from typing import Any

import pytest

from ledgerlog_spark.errors import LedgerError
from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum
from ledgerlog_spark.testing.cluster import memory_metadata
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.tools.loss_acceptance import accept_loss, reported_loss
from ledgerlog_spark.wire.repair_notes import Unreadable, UnreadableRange

CLOSED = LedgerMetadata(
    Quorum(3, 3, 2), (Fragment(0, ("b0", "b1", "b2")),), has_password=True
).closed(last_entry_id=9, length=10)
WHO: dict[str, Any] = {"accepted_ms": 1, "accepted_by": "op", "reason": "gone", "is_forced": False}


async def test_a_report_is_deleted_only_after_the_acceptance_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stores = memory_metadata(MemoryNodes())
    await stores.initialize()
    await stores.ledgers.create(7, CLOSED)
    lost = UnreadableRange(2, 3, True, (("b0", "no_entry"),))
    await stores.unreadable.add(7, Unreadable((lost,), "worker", 1))
    loss = await reported_loss(stores, 7, is_forced=False)
    stored: list[object] = []

    async def fail(*_: object) -> bool:
        stored.append(await stores.accepted_losses.of_ledger(7))
        return False

    monkeypatch.setattr(stores.unreadable, "delete", fail)
    with pytest.raises(LedgerError, match="is accepted") as refused:
        await accept_loss(stores, loss, **WHO)
    assert not refused.value.definite
    (accepted,) = stored
    assert accepted is not None, "the acceptance was stored before the report was deleted"
    await stores.close()
