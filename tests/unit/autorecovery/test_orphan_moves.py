"""The moves of vacations that were cancelled while no process ran them."""

from __future__ import annotations

from typing import Any

import pytest

from ledgerlog_spark.autorecovery.vacate.runner import remove_orphan_moves
from ledgerlog_spark.testing.cluster import memory_metadata
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.wire.repair_notes import (
    Move,
    MoveReason,
    Moves,
    Vacation,
    VacationKind,
    VacationPhase,
)


async def test_moves_of_a_vacation_that_begins_meanwhile_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stores = memory_metadata(MemoryNodes())
    await stores.initialize()
    await stores.moves.add(7, Moves((Move("gone", 0, MoveReason.DRAIN),)))
    load, has_begun = stores.moves.load, False

    async def begin_meanwhile(ledger_id: int) -> Any:
        nonlocal has_begun
        if not has_begun:
            has_begun = True
            new = Vacation(VacationKind.DRAIN, VacationPhase.VACATING)
            await stores.vacations.write("new", new, None)
            await stores.moves.add(8, Moves((Move("new", 0, MoveReason.DRAIN),)))
        return await load(ledger_id)

    monkeypatch.setattr(stores.moves, "load", begin_meanwhile)
    await remove_orphan_moves(stores)
    assert await load(7) is None
    assert await load(8) is not None
    await stores.close()
