"""What a scrub of a bookie's storage finds is fetched from other bookies by the repair."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from bookie_server.core.manifest_codec import FileState
from bookie_server.core.requests import StoredAdd
from bookie_server.core.slot_header import RECORDS_START
from ledgerlog_spark.model import Code
from tests.crash.machine import KEY, SMALL, Machine
from tests.fixtures.repair_world import OPEN, RepairWorld, stored

LEDGER, LAST = 7, 199
PAYLOAD = b"payload" * 100
COLD = replace(SMALL, recent_bytes_max=1, scrub_bytes_per_s=0)


def entry_of(entry_id: int) -> bytes:
    return stored(LEDGER, entry_id, payload=PAYLOAD)


def filled() -> Machine:
    machine = Machine(settings=COLD)
    machine.start()
    machine.disk.cold_part = 0.0
    for entry_id in range(LAST + 1):
        data = entry_of(entry_id)
        request = StoredAdd(LEDGER, (entry_id,), (len(data),), data, KEY)
        assert machine.ask(partial(machine.serving.add, request)) == (Code.OK,)
    machine.scheduler.run_for(500)
    return machine


def offset_of(machine: Machine, entry_id: int) -> tuple[str, int]:
    for file in machine.manifest().files:
        content = bytes(machine.disk.durable_names[file.slot].durable)
        at = content.find(entry_of(entry_id), RECORDS_START)
        if file.state is FileState.FINISHED and at >= 0:
            return file.slot, at
    raise AssertionError("the entry is in no finished file")


@pytest.mark.parametrize("is_header", [False, True])
def test_a_damaged_entry_is_replaced_by_the_copy_of_another_bookie(*, is_header: bool) -> None:
    machine = filled()
    slot, at = offset_of(machine, 5)
    machine.disk.flip_bit(slot, at // 512 * 512 + 50 if is_header else at + 60, 1, is_cached=True)
    assert machine.read(LEDGER, 5) == (Code.OK, entry_of(5)), "its record is in the caches"
    machine.scrub()
    assert machine.read(LEDGER, 5)[0] is Code.IO_ERROR
    world = RepairWorld(storage=machine.serving, host=machine.host)
    world.records.metadata[LEDGER] = OPEN.closed(last_entry_id=LAST, length=9)
    world.peers.entries["b1"] = {(LEDGER, i): entry_of(i) for i in range(LAST + 1)}
    world.repairs.start()
    world.scheduler.run_for(10_000)
    world.repairs.stop()
    assert world.failures == []
    assert machine.read(LEDGER, 5) == (Code.OK, entry_of(5))
    assert world.progress.counters.entries_fetched == 1
    machine.lose_power()
    machine.start()
    for entry_id in range(LAST + 1):
        assert machine.read(LEDGER, entry_id) == (Code.OK, entry_of(entry_id))
    machine.scrub()
    assert machine.serving.take_damaged() == []
