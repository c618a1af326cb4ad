"""A file in doubt may hold any entry, so no read that began meanwhile denies that an entry
exists.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookie_server.core.manifest_codec import FileState
from bookie_server.core.requests import StoredBatchRead, StoredRead
from bookie_server.storage.shared import Shared
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, entry

LEDGER, SPREAD = 1, 100
ONE_RUN_A_FILE = replace(SMALL, pieces_max=2, recent_bytes_max=1)


@pytest.mark.parametrize("seed", range(10))
def test_reads_that_begin_while_an_index_is_rebuilt_deny_nothing(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The doubt may end after the read of the first file and before the read of the last one."""
    machine = Machine(seed, settings=ONE_RUN_A_FILE)
    machine.start()
    for number in range(20):
        # Every file may have each of these ids, so a read looks into many of them.
        assert machine.add(LEDGER, (number, number + SPREAD), b"%d" % number) is Code.OK
    machine.stop()
    finished = [file for file in machine.manifest().files if file.state is FileState.FINISHED]
    damaged = finished[3]
    content = machine.disk.durable_names[damaged.slot].durable
    end = max(at for at in range(len(content)) if content[at])
    machine.disk.flip_bit(damaged.slot, end, 0)  # in the only block of its index
    machine.start()  # which forgets the blocks that were read
    in_doubt = machine.serving._health.files_in_doubt
    assert machine.read(LEDGER, 3)[0] is Code.IO_ERROR
    assert in_doubt == {damaged.file_id}

    answers: list[tuple[Code, bytes | None]] = []
    asked = 0
    give_way = Shared.give_way

    async def begin_reads(shared: Shared) -> None:
        nonlocal asked
        asked += 2
        machine.serving.read(StoredRead(LEDGER, 3), lambda *answer: answers.append(answer))
        machine.serving.read_batch(
            StoredBatchRead(LEDGER, 3, 1, 1 << 20),
            lambda code, found: answers.append((code, found[0] if found else None)),
        )
        await give_way(shared)

    monkeypatch.setattr(Shared, "give_way", begin_reads)
    machine.scheduler.run_until(lambda: not in_doubt and len(answers) == asked)
    assert asked >= 4
    assert {code for code, _ in answers} <= {Code.OK, Code.IO_ERROR}
    assert machine.read(LEDGER, 3) == (Code.OK, entry(LEDGER, 3, b"3"))


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_reading_that_began_in_doubt_denies_nothing_when_the_doubt_has_ended(
    *, is_batch: bool
) -> None:
    """When the doubt ended, the entry may have been stored in a file that was not read."""
    machine = Machine(3, settings=ONE_RUN_A_FILE)
    machine.disk.cold_part = 1.0
    machine.start()
    for number in range(4):
        assert machine.add(LEDGER, (number, number + SPREAD), b"%d" % number) is Code.OK
    missing, doubts = 50, machine.serving._health.files_in_doubt
    assert machine.read(LEDGER, missing)[0] is Code.NO_ENTRY
    for file in machine.serving._keeper.finished:
        file.blocks.clear()
    doubts.add(99)
    codes: list[Code] = []
    if is_batch:
        request = StoredBatchRead(LEDGER, missing, 1, 1 << 20)
        machine.serving.read_batch(request, lambda code, _found: codes.append(code))
    else:
        machine.serving.read(StoredRead(LEDGER, missing), lambda code, _data: codes.append(code))
    assert not codes, "the reading waits for the device"
    doubts.clear()
    machine.scheduler.run_until(lambda: bool(codes))
    assert codes == [Code.IO_ERROR]
    assert machine.read(LEDGER, missing)[0] is Code.NO_ENTRY
