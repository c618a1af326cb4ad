"""Reports of failed reads and adds: each has the ledger, the entry, the peer and the reason."""

from __future__ import annotations

from typing import Any

import pytest

from bookie_server.core.requests import (
    StoredAdd,
    StoredBatchRead,
    StoredRead,
    StoredReads,
    StoredSliceRead,
)
from bookie_server.core.slot_header import RECORDS_START
from bookie_server.errors import CorruptRecordError, StorageError
from bookie_server.ports import Standing
from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.requests import encode_batch_read, encode_read
from ledgerlog_spark.wire.slice_requests import encode_read_slices
from tests.crash.machine import Machine, add_request
from tests.fixtures.v2_machine import V2Machine

LEDGER, DAMAGED = 7, 3
PEER = ("10.0.0.1", 4711)
IDS = (LEDGER, DAMAGED, PEER)


class Reports(list[tuple[int, int, object, StorageError]]):
    """The reports since the last call of `taken`."""

    def taken(self) -> list[tuple[int, int, object]]:
        ids = [report[:3] for report in self]
        self.clear()
        return ids


def reports_of(machine: Machine) -> Reports:
    reports = Reports()
    shared = machine.serving._shared
    shared.on_failed_read = shared.on_failed_add = lambda *report: reports.append(report)
    return reports


def read_each_way(machine: Machine, entry_id: int, peer: object = PEER) -> list[Code]:
    storage = machine.serving
    together: list[Code] = []
    storage.read_together(
        StoredReads(LEDGER, (entry_id, entry_id), peer=peer),
        lambda code, ids, _entries: together.extend([code] * len(ids)),
    )
    machine.scheduler.run_until(lambda: len(together) == 2)
    alone = [
        machine.ask(lambda done: storage.read(StoredRead(LEDGER, entry_id, peer=peer), done)),
        machine.ask(
            lambda done: storage.read_batch(
                StoredBatchRead(LEDGER, entry_id, 1, 1 << 20, peer=peer), done
            )
        ),
        machine.ask(
            lambda done: storage.read_slices(
                StoredSliceRead(LEDGER, ((entry_id, ((0, 2_000),)),), 1 << 20, peer), done
            )
        ),
    ]
    return together + [code for code, _ in alone]


@pytest.fixture
def machine() -> Machine:
    """A bookie with one entry, whose bytes are damaged."""
    machine = Machine()
    machine.start()
    assert machine.add(LEDGER, (DAMAGED,), bytes(3_000)) is Code.OK
    machine.stop()
    machine.disk.flip_bit("slot-00000001", RECORDS_START + 1_500, 2)
    machine.start()
    return machine


def test_each_kind_of_read_is_reported(machine: Machine) -> None:
    reports = reports_of(machine)
    assert set(read_each_way(machine, DAMAGED)) == {Code.IO_ERROR}
    assert all(isinstance(error, CorruptRecordError) for *_, error in reports)
    assert reports.taken() == [IDS] * 5


def test_an_entry_that_does_not_exist_is_no_failure(machine: Machine) -> None:
    reports = reports_of(machine)
    assert set(read_each_way(machine, 9)) == {Code.NO_ENTRY}
    assert machine.read(8, 0) == (Code.NO_LEDGER, None)
    assert machine.read(LEDGER, -1)[0] is Code.IO_ERROR, "the last entry is the damaged one"
    assert reports.taken() == [(LEDGER, DAMAGED, None)]


def test_an_entry_that_may_be_in_a_file_in_doubt_is_reported(machine: Machine) -> None:
    reports = reports_of(machine)
    machine.serving._health.files_in_doubt.add(99)
    assert set(read_each_way(machine, 9)) == {Code.IO_ERROR}
    (reason,) = {str(error) for *_, error in reports}
    assert reason.startswith("the entries of ledger 7 on this bookie are unknown: ")
    assert reports.taken() == [(LEDGER, 9, PEER)] * 5
    unknown: list[Any] = []
    machine.serving.read_together(
        StoredReads(8, (5, 6), peer=PEER), lambda *some: unknown.append(some)
    )
    assert unknown == [(Code.IO_ERROR, (5, 6), ())]
    assert machine.ask(lambda done: machine.serving.read(StoredRead(8, 5, peer=PEER), done)) == (
        Code.IO_ERROR,
        None,
    )
    assert reports.taken() == [(8, 5, PEER)] * 2


@pytest.mark.parametrize(
    ("standing", "reason"),
    [
        (Standing.UNKNOWN, "the metadata store did not answer in time"),
        (Standing.OPEN_WITHOUT_ME, "another bookie has replaced this bookie in the ledger"),
    ],
)
def test_an_add_that_the_metadata_check_did_not_allow_is_reported(
    standing: Standing, reason: str
) -> None:
    machine = Machine(standing=standing)
    machine.start()
    machine.serving._health.check_epoch += 1
    reports = reports_of(machine)
    assert added(machine, (4, 5)) is Code.IO_ERROR
    assert [str(error) for *_, error in reports] == [f"an add to ledger 7 was not stored: {reason}"]
    assert reports.taken() == [(LEDGER, 4, PEER)]


def test_an_add_that_could_not_be_compared_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    machine.start()
    assert added(machine, (4, 5)) is Code.OK
    reports = reports_of(machine)
    monkeypatch.setattr(machine.serving._reader, "compare", failing)
    assert added(machine, (4, 5)) is Code.IO_ERROR
    assert reports.taken() == [(LEDGER, 4, PEER)]


def test_the_peer_of_each_v2_request_is_in_the_report(machine: Machine) -> None:
    machine.stop()
    bookie = V2Machine(machine)  # starts the machine again
    reports = reports_of(machine)
    read = encode_read(LEDGER, DAMAGED)
    frames = {
        "alone": read,
        "together": read + read,
        "batch": encode_batch_read(
            LEDGER, DAMAGED, request_id=1, count_max=1, size_bytes_max=1 << 20
        ),
        "slices": encode_read_slices(
            LEDGER, [(DAMAGED, [(0, 2_000)])], request_id=2, size_bytes_max=1 << 20
        ),
    }
    for frame in frames.values():
        bookie.receive(frame)
        bookie.finish()
    assert reports.taken() == [(LEDGER, DAMAGED, ("10.0.0.1", 1))] * 5


def failing(_request: StoredAdd) -> Any:
    yield None
    raise StorageError("the device is gone", path="slot-00000001")


def added(machine: Machine, ids: tuple[int, ...]) -> Code:
    request = add_request(LEDGER, ids)
    request.peer = PEER
    code: Code = machine.ask(lambda done: machine.serving.add(request, done))[0]
    return code
