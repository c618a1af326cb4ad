"""A full file gets its index while the journal continues in the next file, even after faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bookie_server.core.manifest_codec import FileState
from bookie_server.storage import slices
from bookie_server.storage.files import active_index
from bookie_server.storage.files.keeper import FileKeeper
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, add_request, entry
from tests.sim.runtime import Host

PIECES = 30
SETTINGS = replace(SMALL, file_size_bytes=1 << 18, pieces_max=PIECES, idle_watermark_ms=1_000_000)
LEDGERS = 3
SLICE_MS = 5


@pytest.fixture
def bookie(_slices_take_time: None) -> Iterator[Filled]:
    filled = Filled()
    yield filled
    filled.machine.scheduler.close()


@pytest.fixture(autouse=True)
def _slices_take_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of one piece or ledger. Each slice takes SLICE_MS."""
    for module in (slices, active_index):
        monkeypatch.setattr(module, "UNITS_PER_TURN", 1)
    monkeypatch.setattr(Host, "give_way", lambda host: host.sleep(SLICE_MS))


class Filled:
    """A bookie whose first file has just become full, and all acknowledged entries."""

    def __init__(self, seed: int = 0) -> None:
        self.machine = Machine(seed, settings=SETTINGS)
        self.machine.start()
        self.next = [0] * (LEDGERS + 1)
        self.acknowledged: set[tuple[int, int]] = set()
        number = 0
        while self.keeper.full is None:
            self.add(1 + number % LEDGERS)
            number += 1
        assert number >= PIECES

    @property
    def keeper(self) -> FileKeeper:
        return self.machine.serving._keeper

    def add(self, ledger_id: int) -> int:
        """Add the next entry, and return the duration in ms."""
        machine, entry_id = self.machine, self.next[ledger_id]
        self.next[ledger_id] += 1
        began_us = machine.scheduler.now_us
        assert machine.add(ledger_id, (entry_id,)) is Code.OK
        self.acknowledged.add((ledger_id, entry_id))
        return (machine.scheduler.now_us - began_us) // 1_000

    def check(self) -> None:
        """Check that all acknowledged entries are there, and that no file is in doubt."""
        for ledger_id, entry_id in sorted(self.acknowledged):
            stored = entry(ledger_id, entry_id, b"payload")
            assert self.machine.read(ledger_id, entry_id) == (Code.OK, stored)
        assert self.machine.read(99, 0)[0] is Code.NO_LEDGER
        counters = self.machine.serving.counters
        assert (counters.boot_damaged_records, counters.boot_rebuilt_indexes) == (0, 0)


def test_adds_do_not_wait_for_the_index_of_a_full_file(bookie: Filled) -> None:
    full = bookie.keeper.full
    waits = [bookie.add(1) for _ in range(5)]
    assert bookie.keeper.full is full, "its index was still encoded"
    assert max(waits) <= 2 * SLICE_MS, "and not PIECES times as much"
    bookie.machine.scheduler.run_until(lambda: bookie.keeper.full is None)
    bookie.check()


def test_what_a_full_file_holds_is_read_listed_and_dropped(bookie: Filled) -> None:
    machine = bookie.machine
    bookie.add(2)
    bookie.check()
    assert machine.read_batch(2, 0)[0] is Code.OK
    assert machine.held(2) == [(0, bookie.next[2] - 1)]
    assert machine.drop(3) is Code.OK
    assert bookie.keeper.full is not None
    assert machine.read(3, 0)[0] is Code.NO_ENTRY
    assert machine.held(3) == []
    machine.scheduler.run_until(lambda: bookie.keeper.full is None)
    assert machine.read(3, 0)[0] is Code.NO_ENTRY
    machine.stop()
    machine.start()
    assert machine.read(3, 0)[0] is Code.NO_ENTRY
    assert machine.held(2) == [(0, bookie.next[2] - 1)]


def test_a_dropped_ledger_is_remembered_for_as_long_as_a_full_file_names_it(bookie: Filled) -> None:
    machine = bookie.machine
    assert machine.drop(3) is Code.OK
    machine.host.wall_offset_ms += 1_000 * (SETTINGS.tombstone_keep_s + 1)
    looked = machine.scheduler.run(machine.serving._drops.forget(), machine.host)
    assert looked == 0
    assert bookie.keeper.full is not None
    assert 3 in sorted(machine.serving._states)


def test_another_roll_waits_until_the_index_of_the_full_file_is_durable(bookie: Filled) -> None:
    first = bookie.keeper.full
    assert first is not None
    files = {first.entry.file_id}
    codes: list[Code] = []
    for _ in range(3 * PIECES):
        request = add_request(1, (bookie.next[1],))
        bookie.acknowledged.add((1, bookie.next[1]))
        bookie.next[1] += 1
        bookie.machine.serving.add(request, codes.append)
    while len(codes) < 3 * PIECES:
        assert bookie.machine.scheduler.step()
        full = bookie.keeper.full
        if full is not None and full.entry.file_id not in files:
            assert max(files) in bookie.keeper.finished
            files.add(full.entry.file_id)
    assert set(codes) == {Code.OK}
    assert len(files) >= 3
    bookie.check()


def test_a_clean_stop_leaves_no_full_file_without_its_index(bookie: Filled) -> None:
    bookie.machine.stop()
    assert {file.state for file in bookie.machine.manifest().files} == {FileState.FINISHED}
    bookie.machine.start()
    assert bookie.machine.serving.counters.boot_replayed_records == 0
    bookie.check()


@pytest.mark.parametrize("is_power", [True, False])
@pytest.mark.parametrize("adds", [0, 3])
def test_a_crash_while_a_full_file_gets_its_index_loses_nothing(adds: int, is_power: bool) -> None:
    """The crash comes at an event between the roll and the MANIFEST with the finished file."""
    seed = events = 0
    while True:
        bookie = Filled(seed)
        machine = bookie.machine
        generation = machine.manifest().generation
        for _ in range(adds):
            bookie.add(1)
        for _ in range(events):
            machine.scheduler.step()
        is_over = machine.manifest().generation > generation and bookie.keeper.full is None
        (machine.lose_power if is_power else machine.crash)()
        machine.start()
        bookie.check()
        bookie.add(2)
        machine.stop()
        machine.start()
        bookie.check()
        machine.scheduler.close()
        if is_over:
            break
        seed, events = seed + 1, events + 2
    assert events > PIECES


def test_a_lost_record_at_the_end_of_a_full_file_is_damage_though_its_index_is_missing_too(
    bookie: Filled,
) -> None:
    """The next file begins one sequence later than if only the finish record were missing."""
    machine = bookie.machine
    full = bookie.keeper.full
    assert full is not None
    slot, end = full.entry.slot, full.end
    for _ in range(3):
        bookie.add(1)
    assert bookie.keeper.full is not None
    machine.lose_power()
    machine.disk.flip_bit(slot, end - 512, 1)
    machine.start()
    assert machine.serving.counters.boot_damaged_records >= 1
    assert machine.read(99, 0)[0] is Code.IO_ERROR, "nothing absent is said"
