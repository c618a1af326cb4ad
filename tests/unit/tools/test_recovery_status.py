"""Why a ledger is not healed, in words."""

from __future__ import annotations

import pytest

from ledgerlog_spark.tools.recovery_status import LedgerStatus
from ledgerlog_spark.wire.repair_notes import Hole


@pytest.mark.parametrize("is_queued", [False, True])
def test_a_ledger_that_does_not_exist_has_one_reason(is_queued: bool) -> None:
    status = LedgerStatus(
        ledger_id=7,
        metadata=None,
        lost_bookies=(),
        marked_ms=None,
        holes=(Hole("b0", 0),) if is_queued else (),
        moves=(),
        unreadable=(),
        losses=None,
        attempts=None,
        lock_holder=None,
        worker=None,
        is_enabled=True,
        auditor=None,
        workers_count=0,
    )
    (reason,) = status.reasons()
    assert reason.startswith("the ledger does not exist")
    assert ("a worker deletes" in reason) is is_queued
