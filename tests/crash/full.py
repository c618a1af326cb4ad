"""Random runs on a small device that fills up, and gets its room back when ledgers are deleted.

Adds are refused before anything is lost, and a bookie whose entries are mostly deleted accepts adds
again. Starts, crashes and power losses happen while the device is full.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from bookie_server.core.disk_use import NO_THRESHOLDS, DiskSettings
from ledgerlog_spark.model import Code
from tests.crash.invariants import check_files, check_origins
from tests.crash.machine import SMALL, Machine, entry
from tests.crash.model import ViolationError
from tests.crash.modes import SYNCED

KEPT = 1
SLOT_BYTES = 1 << 18
"""Larger than the smallest file, which a start on a full device and compaction may take."""
ADDS_MAX = 2_000
RETRY_MS = 50
CHECK_MS = 1_000


class FullDiskRun:
    """One seeded run.

    Attributes:
        stored: The expected entries of the ledger that is kept.
        seen: Situations that occurred.
    """

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.seen: Counter[str] = Counter()
        self.stored: dict[tuple[int, int], bytes] = {}
        self.thresholds = random.choice(
            (NO_THRESHOLDS, NO_THRESHOLDS, DiskSettings(0.5, 0.75, 0.6, CHECK_MS))
        )
        mode = random.choice(SYNCED)
        settings = replace(
            SMALL,
            file_size_bytes=SLOT_BYTES,
            recent_bytes_max=1,
            pieces_max=random.choice((50, 1_000)),
            pool_files_max=random.choice((0, 1, 2, 4)),
            free_bytes_min=random.choice((1 << 15, 1 << 17)),
            allocation_retry_ms=RETRY_MS,
            disk=self.thresholds,
            mode_settings=mode.settings(random, (100,)),
        )
        self.machine = Machine(seed, settings=settings)
        self.machine.start()
        left_bytes = settings.free_bytes_min + random.randrange(8, 13) * SLOT_BYTES
        faults = self.machine.disk.faults
        faults.capacity_bytes = self.capacity = self.machine.disk.used_bytes() + left_bytes
        self.ledger_id = KEPT
        self.next_id = 0

    def play(self, rounds: int = 3) -> None:
        """Fill the device and delete most of its ledgers, several times."""
        for _ in range(rounds):
            self.ledger_id += 1
            self.fill()
            self.use_the_reserve()
            self.may_start_again()
            self.delete()
            self.may_start_again()
            self.require_room()
            self.check()
            if self.thresholds is not NO_THRESHOLDS:
                self.change_the_device()

    def fill(self) -> None:
        """Add entries until adds are refused. A few of them are kept."""
        machine, random = self.machine, self.random
        part, size = random.choice((10, 20)), random.choice((4_000, 9_000, 12_000))
        refused = entry_id = 0
        while refused < 2:
            ledger_id = KEPT if entry_id % part == 0 else self.ledger_id
            code = self.add(ledger_id, size)
            if code is Code.OK:
                entry_id += 1
                assert entry_id < ADDS_MAX, "the device is never full"
                machine.scheduler.run_for(random.choice((0, 5)))
                continue
            if code is not Code.READ_ONLY:
                raise ViolationError(f"an add without room is answered {code}")
            refused += 1
            machine.scheduler.run_for(3 * max(RETRY_MS, CHECK_MS))
        self.seen["full"] += 1
        self.require_level()

    def add(self, ledger_id: int, size: int) -> Code:
        """Add the next entry of a ledger."""
        number, self.next_id = self.next_id, self.next_id + 1
        payload = b"stays" if ledger_id == KEPT else bytes(size)
        code = self.machine.add(ledger_id, (number,), payload)
        if code is Code.OK and ledger_id == KEPT:
            self.stored[KEPT, number] = entry(KEPT, number, payload)
        return code

    def use_the_reserve(self) -> None:
        """Send recovery adds and fences.

        They may have room. An add with the answer OK must be kept.
        """
        machine = self.machine
        for _ in range(self.random.choice((0, 3, 30))):
            number, self.next_id = self.next_id, self.next_id + 1
            code = machine.add(KEPT, (number,), b"late", is_recovery=True)
            if code is Code.OK:
                self.stored[KEPT, number] = entry(KEPT, number, b"late")
                self.seen["from the reserve"] += 1
            elif code is not Code.READ_ONLY:
                raise ViolationError(f"a recovery add without room is answered {code}")

    def may_start_again(self) -> None:
        """Stop or kill the process, and start it on the full device."""
        machine = self.machine
        way = self.random.randrange(5)
        if way > 2:
            return
        (machine.stop, machine.crash, machine.lose_power)[way]()
        machine.start()
        self.check()
        self.seen["started full"] += 1

    def delete(self) -> None:
        """Delete the ledger with most entries."""
        machine = self.machine
        deadline = 40
        while machine.drop(self.ledger_id) is not Code.OK:
            deadline -= 1
            assert deadline, "a deletion has no room"
            machine.scheduler.run_for(RETRY_MS)
        if self.random.random() < 0.5:
            machine.reclaim()

    def require_room(self) -> None:
        """Check that the bookie accepts adds again."""
        machine = self.machine
        machine.scheduler.run_for(20 * CHECK_MS)
        if not machine.serving.is_writable:
            raise ViolationError("most entries are deleted, and adds are refused")
        code = self.add(KEPT, 0)
        if code is not Code.OK:
            raise ViolationError(f"most entries are deleted, and an add is answered {code}")
        self.require_level()
        if not machine.serving.compactor._is_running:
            check_files(machine)
        self.seen["has room"] += 1

    @property
    def used_part(self) -> float:
        """The part of the device that is used, without freed files that are kept."""
        disk = self.machine.disk
        assert disk.faults.capacity_bytes is not None
        kept = sum(disk.seen_names[slot].taken_bytes for slot in self.machine.manifest().free_slots)
        return (disk.used_bytes() - kept) / disk.faults.capacity_bytes

    def require_level(self) -> None:
        """Check that adds are refused above the maximum, and not below the low-water mark."""
        self.machine.scheduler.run_for(2 * CHECK_MS)
        health, used_part = self.machine.serving._health, self.used_part
        if used_part > self.thresholds.full and self.machine.serving.is_writable:
            raise ViolationError(f"{used_part} of the device is used, and adds are accepted")
        if used_part < self.thresholds.low_water and health.is_disk_full:
            raise ViolationError(f"{used_part} of the device is used, and adds are refused")

    def change_the_device(self) -> None:
        """Change the free space of the device, as other programs do. The level must follow."""
        machine, random = self.machine, self.random
        is_full = machine.serving._health.is_disk_full
        for _ in range(6):
            used_bytes = self.used_part * (machine.disk.faults.capacity_bytes or 0)
            wanted = random.choice((0.4, 0.55, 0.65, 0.7, 0.8))
            capacity = int(used_bytes / wanted)
            if capacity < machine.disk.used_bytes():
                continue
            machine.disk.faults.capacity_bytes = capacity
            machine.scheduler.run_for(2 * CHECK_MS)
            if abs(self.used_part - wanted) < 0.01:
                is_full = wanted > self.thresholds.full or (
                    is_full and wanted >= self.thresholds.low_water
                )
                if machine.serving._health.is_disk_full != is_full:
                    raise ViolationError(f"{wanted} of the device is used, full: {not is_full}")
                self.seen["levels"] += 1
            else:
                is_full = machine.serving._health.is_disk_full
        machine.disk.faults.capacity_bytes = self.capacity
        machine.scheduler.run_for(2 * CHECK_MS)

    def check(self) -> None:
        """Check that the bookie has everything that was acknowledged and not deleted."""
        machine = self.machine
        for (ledger_id, entry_id), data in self.stored.items():
            found = machine.read(ledger_id, entry_id)
            if found != (Code.OK, data):
                raise ViolationError(f"entry {entry_id} of ledger {ledger_id}: {found[0]}")
        check_origins(machine)
