"""A crash at each disk operation of a compaction; a full disk that compaction empties."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from bookie_server.core.settings import StorageSettings
from bookie_server.storage.compaction.cycle import Compacted
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, entry

SETTINGS = replace(SMALL, recent_bytes_max=1, pool_files_max=2, pieces_max=40)
SHARED = tuple(range(1, 6))
DROPPED = (1, 2, 4)
LATE = 5
"""The ledger that is dropped while its entries are being copied."""


class PowerCutError(Exception):
    """The moment of a crash."""


@dataclass
class Filled:
    """A machine with five ledgers in shared files, three of them dropped, and the expected entries.

    Attributes:
        stored: The bytes of each entry that was acknowledged and not deleted.
        dropping: A ledger with an unanswered drop: either all of its entries are there, or none.
    """

    seed: int = 0
    settings: StorageSettings = SETTINGS
    stored: dict[tuple[int, int], bytes] = field(default_factory=dict)
    dropping: int | None = None

    def __post_init__(self) -> None:
        self.machine = Machine(self.seed, settings=self.settings)
        self.machine.start()

    def add(self, ledger_id: int, entry_id: int, payload: bytes, **options: Any) -> None:
        code = self.machine.add(ledger_id, (entry_id,), payload, **options)
        assert code is Code.OK, (ledger_id, entry_id, code)
        self.stored[ledger_id, entry_id] = entry(ledger_id, entry_id, payload)

    def fill(self, entries: int = 14) -> None:
        for entry_id in range(entries):
            for ledger_id in SHARED:
                self.add(ledger_id, entry_id, b"%d." % entry_id * 250)
        # Recovery writes other bytes of some entries, which are in a later file.
        for entry_id in range(0, entries, 3):
            self.add(3, entry_id, b"again", is_recovery=True)
        for ledger_id in DROPPED:
            self.drop(ledger_id)
        for entry_id in range(0, entries, 4):
            self.add(4, entry_id, b"back", is_recovery=True)
        for entry_id in range(25):
            self.add(6, entry_id, bytes(2_000))
        self.machine.scheduler.run_for(500)

    def drop(self, ledger_id: int) -> None:
        self.forget(ledger_id)
        assert self.machine.drop(ledger_id) is Code.OK

    def forget(self, ledger_id: int) -> None:
        """Expect nothing of a ledger any more."""
        for key in [key for key in self.stored if key[0] == ledger_id]:
            del self.stored[key]

    def check(self, why: object = "") -> None:
        """Check that only undeleted entries are there, and that the MANIFEST names all slots."""
        machine = self.machine
        if self.dropping is not None:
            if machine.read(self.dropping, 0)[0].is_absent:
                self.forget(self.dropping)
            self.dropping = None
        for ledger_id in (*SHARED, 6):
            for entry_id in range(26):
                found = machine.read(ledger_id, entry_id)
                expected = self.stored.get((ledger_id, entry_id))
                if expected is not None:
                    assert found == (Code.OK, expected), (why, ledger_id, entry_id, found)
                else:
                    assert found[0].is_absent, (why, ledger_id, entry_id, found)
        manifest = machine.manifest()
        named = {file.slot for file in manifest.files} | set(manifest.free_slots)
        assert machine.slots() == named, why


REFUSAL = "no MANIFEST was written: no room, or too many open files"


def operations_of_a_compaction() -> int:
    filled = Filled()
    filled.fill()
    before = filled.machine.disk.counters.operations
    filled.machine.compact()
    assert filled.machine.serving.counters.compaction_bytes_freed > 0
    return filled.machine.disk.counters.operations - before


@pytest.mark.parametrize("way", ["lose_power", "crash"])
@pytest.mark.parametrize("drop_after_ms", [0, 3, 8, None])
def test_a_crash_at_each_operation_of_a_compaction_loses_and_revives_nothing(
    way: str, drop_after_ms: int | None
) -> None:
    total = operations_of_a_compaction()
    assert total > 70
    cuts = 0
    for number in range(1, total + 5):
        filled = Filled(number)
        filled.fill()
        cuts += play_and_cut(filled, number, drop_after_ms)
        getattr(filled.machine, way)()
        filled.machine.start()
        filled.check(number)
        filled.machine.compact()
        filled.check(number)
        filled.machine.stop()
        filled.machine.start()
        filled.check(number)
        filled.machine.scheduler.close()
    assert cuts > total // 2


def play_and_cut(filled: Filled, number: int, drop_after_ms: int | None) -> bool:
    """Compact, and drop a ledger during this. Return whether an operation was interrupted."""
    machine = filled.machine
    crash_at = machine.disk.counters.operations + number

    def cut(operation: int, _name: str) -> None:
        if operation == crash_at:
            raise PowerCutError

    machine.disk.on_operation = cut
    codes: list[Code] = []
    try:
        machine.serving.compactor.request()
        if drop_after_ms is not None:
            machine.scheduler.run_for(drop_after_ms)
            filled.dropping = LATE
            machine.serving.drop(LATE, codes.append)
        machine.scheduler.run_until(lambda: not machine.serving.compactor._is_running)
    except PowerCutError:
        was_cut = True
    else:
        was_cut = False
    machine.disk.on_operation = None
    if codes:
        filled.forget(LATE)
        filled.dropping = None
    return was_cut


# A full disk.

SLOT_BYTES = SMALL.file_size_bytes


def filled_disk(files: int = 9, **options: Any) -> Filled:
    """A bookie that refuses adds. Each of its files has a few entries of a ledger that stays."""
    settings = replace(SETTINGS, pieces_max=50, free_bytes_min=1 << 15, **options)
    filled = Filled(settings=settings)
    machine = filled.machine
    left_bytes = settings.free_bytes_min + files * SLOT_BYTES
    machine.disk.faults.capacity_bytes = machine.disk.used_bytes() + left_bytes
    number = 0
    while True:
        if number % 7 == 0:
            code = machine.add(1, (number,), b"stays")
            if code is Code.OK:
                filled.stored[1, number] = entry(1, number, b"stays")
        else:
            code = machine.add(2, (number,), bytes(1_500))
        if code is not Code.OK:
            break
        number += 1
        assert number < 2_000
        machine.scheduler.run_for(5)
    assert code is Code.READ_ONLY
    assert len(filled.stored) > 10
    return filled


def require_room(filled: Filled) -> None:
    """Check that the bookie accepts adds again, and has all entries that were not deleted."""
    machine = filled.machine
    machine.scheduler.run_for(4 * machine.settings.allocation_retry_ms)
    assert machine.serving.is_writable
    for ledger_id, entry_id in filled.stored:
        stored = filled.stored[ledger_id, entry_id]
        assert machine.read(ledger_id, entry_id) == (Code.OK, stored)
    assert machine.read(2, 1)[0].is_absent
    assert machine.add(3, (0,), bytes(2_000)) is Code.OK


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_full_disk_gets_its_room_back_though_no_file_is_dead(*, is_restarted: bool) -> None:
    filled = filled_disk()
    machine = filled.machine
    assert machine.drop(2) is Code.OK
    if is_restarted:
        machine.stop()
        machine.start()
    machine.reclaim()
    require_room(filled)
    assert machine.serving.counters.compaction_bytes_freed > 2 * SLOT_BYTES
    machine.lose_power()
    machine.start()
    for ledger_id, entry_id in filled.stored:
        assert machine.read(ledger_id, entry_id)[0] is Code.OK


def test_a_disk_that_fills_up_again_and_again_gets_its_room_back_each_time() -> None:
    """Regular adds never take the room of compaction, whichever slots are free."""
    filled = filled_disk()
    machine = filled.machine
    for ledger_id in range(10, 16):
        assert machine.drop(2 if ledger_id == 10 else ledger_id - 1) is Code.OK
        machine.reclaim()
        require_room(filled)
        entry_id = waits = 0
        while waits < 2:
            code = machine.add(ledger_id, (entry_id,), bytes(1_500))
            if code is not Code.OK:
                assert code is Code.READ_ONLY
                waits += 1
                machine.scheduler.run_for(3 * machine.settings.allocation_retry_ms)
                continue
            entry_id += 1
            key = 1, 10_000 * ledger_id + entry_id
            if entry_id % 7 == 0 and machine.add(1, key[1:]) is Code.OK:
                filled.stored[key] = entry(*key, b"payload")
            machine.scheduler.run_for(5)
        assert entry_id > 20, (ledger_id, entry_id)


def test_last_free_slot_is_left_to_compaction() -> None:
    filled = Filled(settings=replace(SETTINGS, free_bytes_min=1 << 15))
    machine = filled.machine
    machine.stop()
    assert len(machine.manifest().free_slots) == 2
    machine.disk.faults.capacity_bytes = machine.disk.used_bytes() + (1 << 15)
    machine.start()
    machine.scheduler.run_for(2 * machine.settings.allocation_retry_ms)
    assert not machine.serving.is_writable
    assert len(machine.manifest().free_slots) == 1


def test_a_compaction_without_room_for_its_first_copy_gives_the_reason() -> None:
    filled = Filled()
    filled.fill()
    machine = filled.machine
    machine.stop()
    for slot in machine.manifest().free_slots:
        del machine.disk.durable_names[slot], machine.disk.seen_names[slot]
    machine.start()
    machine.disk.faults.capacity_bytes = machine.disk.used_bytes() + 4_096
    results: list[Compacted] = []
    machine.serving.compactor.on_compacted = results.append
    machine.compact()
    (result,) = results
    assert (result.files_freed, result.bytes_copied) == (0, 0)
    assert "room" in result.refusal
    filled.check()


@pytest.mark.parametrize("is_brief", [False, True])
def test_without_room_for_a_manifest_the_sources_stay_and_the_copies_go(*, is_brief: bool) -> None:
    filled = Filled()
    filled.fill()
    machine = filled.machine
    files = {file.file_id for file in machine.manifest().files}
    used = machine.disk.used_bytes()
    met: list[int] = []

    def fill_up(_operation: int, _name: str) -> None:
        # The copies are finished when the compaction requests the MANIFEST that lists them.
        handover = machine.serving._keeper.handover
        if handover.due is not None and not met:
            met.append(1)
            machine.disk.faults.capacity_bytes = machine.disk.used_bytes() - (1 << 20)
        elif met and handover.due is None and is_brief:
            # Other MANIFESTs are written while the copies are removed.
            machine.disk.faults.capacity_bytes = None
            machine.serving._keeper.wake()

    results: list[Compacted] = []
    machine.serving.compactor.on_compacted = results.append
    machine.disk.on_operation = fill_up
    machine.compact()
    assert met
    assert [result.refusal for result in results] == [REFUSAL]
    filled.check()
    assert {file.file_id for file in machine.manifest().files} >= files - {0}
    assert machine.serving.counters.compaction_bytes_freed == 0
    machine.disk.on_operation = machine.disk.faults.capacity_bytes = None
    machine.scheduler.run_for(3 * machine.settings.allocation_retry_ms)
    machine.compact()
    assert [result.refusal for result in results][1:] == [""]
    filled.check()
    assert machine.disk.used_bytes() < used
    machine.lose_power()
    machine.start()
    filled.check()
