"""A scripted run in which one disk operation fails, or all after it.

The script appends, rolls, fences, drops, frees files and commits. It is played once to count the
disk operations, and then with an error at each of them. Then the errors end, the script continues,
and the bookie loses power or is killed. Finally, all earlier answers are checked.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace

from bookie_server.core.bookie_run import BookieWriteMode
from bookie_server.core.settings import ModeSettings
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, entry

ERRORS = (errno.ENOSPC, errno.EIO)
POWER_LOSS_AFTER = 8
PAYLOAD = bytes(14_000)
KEPT, DROPPED, FENCED, AFTER = 1, 2, 3, 4
ALLOCATED = ("slot-", "journal-")
NOTHING_CHANGES = ("lock", "names", "read", "map", "unmap", "drop")
SETTINGS = replace(
    SMALL, pool_files_max=1, state_deltas_bytes_min=1, open_files_max=8, recent_bytes_max=1
)
JOURNAL = ModeSettings(
    write_mode=BookieWriteMode.JOURNAL,
    journal_directory="/journal",
    journal_files=2,
    checkpoint_interval_ms=100,
    checkpoint_bytes=1 << 14,
)
MODES = {"direct": SETTINGS, "journal": replace(SETTINGS, mode_settings=JOURNAL)}


@dataclass(frozen=True, slots=True)
class Fault:
    """Which operation fails, and how.

    Attributes:
        number: The number of the operation; 0 for none.
        errno: The error.
        is_lasting: Later operations fail too, until the script has ended. If the device has no
            room, only operations that need room fail: writes to allocated files and removals
            succeed.
        power_loss_after: Number of operations after the first error, after which the power fails; 0
            for never.
    """

    number: int
    errno: int = errno.ENOSPC
    is_lasting: bool = False
    power_loss_after: int = 0


def faults_of(number: int) -> list[Fault]:
    """All faults at one operation."""
    return [
        *(Fault(number, code, is_lasting) for code in ERRORS for is_lasting in (False, True)),
        *(Fault(number, errno.ENOSPC, power_loss_after=n) for n in range(1, POWER_LOSS_AFTER + 1)),
        *(Fault(number, errno.EIO, power_loss_after=n) for n in (1, 2, 4)),
    ]


class PowerLossError(Exception):
    """Ends the script when the power fails."""


class FaultyRun:
    """One run of the script.

    Attributes:
        operations: Number of operations so far that can fail.
        names: Names of these operations.
        hit: Names of the operations that failed.
        outcome: The state of the bookie before its restart.
    """

    def __init__(self, mode: str, fault: Fault) -> None:
        self.fault = fault
        self.machine = Machine(1, settings=MODES[mode])
        self.operations = 0
        self.names: list[str] = []
        self.hit: list[str] = []
        self.outcome = "lost power"
        self.acked: set[tuple[int, int]] = set()
        self.is_fenced = self.is_dropped = self.was_drop_sent = False
        self.machine.start()
        for disk in (self.machine.disk, self.machine.journal_disk):
            disk.on_operation = self._inject

    def _inject(self, _number: int, name: str) -> None:
        disk = self.machine.disk
        word, _, file = name.partition(" ")
        if word in NOTHING_CHANGES or (word == "open" and file in disk.seen_names):
            return
        self.operations += 1
        self.names.append(name)
        fault = self.fault
        if fault.power_loss_after and self.operations == fault.number + fault.power_loss_after:
            self.machine.scheduler.call_later(0, self._lose_power)
        is_hit = self.operations == fault.number
        if fault.is_lasting and 0 < fault.number < self.operations:
            is_in_place = file.startswith(ALLOCATED) and word in ("write", "sync")
            is_hit = fault.errno == errno.EIO or not (is_in_place or word == "remove")
        if is_hit:
            on = self.machine.journal_disk if file.startswith("journal-") else disk
            on.error = fault.errno
            self.hit.append(name)

    @staticmethod
    def _lose_power() -> None:
        raise PowerLossError

    def add(self, ledger_id: int, entry_id: int, *, is_recovery: bool = False) -> Code:
        code = self.machine.add(ledger_id, (entry_id,), PAYLOAD, is_recovery=is_recovery)
        if code is Code.OK:
            self.acked.add((ledger_id, entry_id))
        else:
            assert self.hit, f"add of {entry_id} to {ledger_id} answered {code} without a fault"
            assert code in (Code.READ_ONLY, Code.IO_ERROR), code
        return code

    def play(self) -> None:
        """Play the script."""
        machine = self.machine
        for number in range(5):
            self.add(DROPPED, number)
        for number in range(5):
            self.add(KEPT, number)
        code, _ = machine.fence(FENCED)
        self.is_fenced = code.is_absent
        self.add(FENCED, 0, is_recovery=True)
        self.was_drop_sent = True
        code = machine.drop(DROPPED)
        self.is_dropped = code is Code.OK
        self.was_drop_sent = code is not Code.READ_ONLY
        machine.scheduler.run_for(200)
        machine.reclaim()
        for number in range(5, 12):
            self.add(KEPT, number)
        machine.scheduler.run_for(200)

    def end_faults(self) -> None:
        """From now on, no operation fails."""
        self.fault = Fault(0)
        for disk in (self.machine.disk, self.machine.journal_disk):
            disk.error = 0

    def go_on(self) -> None:
        """End the errors. The bookie must serve then, unless its storage has ended."""
        machine = self.machine
        self.end_faults()
        machine.scheduler.run_for(2 * SETTINGS.allocation_retry_ms)
        self.outcome = "goes on" if machine.serving.failure is None else "ended"
        if machine.serving.failure is not None:
            syncs = machine.disk.counters.syncs
            assert self.add(KEPT, 12) is Code.IO_ERROR
            assert machine.disk.counters.syncs == syncs, "synced after a failure"
            return
        assert machine.serving.is_writable
        for number in range(5):
            assert self.add(AFTER, number) is Code.OK
        self.check()

    def end(self) -> None:
        """End the bookie in one of three ways."""
        machine = self.machine
        way = self.machine.disk.random.randrange(3)
        if way == 0:
            machine.stop()
        elif way == 1:
            machine.crash()
        else:
            machine.lose_power()

    def check(self) -> None:
        """Check that all earlier answers are still true."""
        machine = self.machine
        for ledger_id, entry_id in sorted(self.acked):
            code, data = machine.read(ledger_id, entry_id)
            expected = (Code.OK, entry(ledger_id, entry_id, PAYLOAD))
            if ledger_id != DROPPED or not self.was_drop_sent:
                assert (code, data) == expected, (ledger_id, entry_id, code)
            elif self.is_dropped:
                assert code.is_absent, (entry_id, code)
            else:
                assert code.is_absent or (code, data) == expected, (entry_id, code)
        assert machine.read(99, 0)[0] is Code.NO_LEDGER, "in doubt"
        counters = machine.serving.counters
        assert (counters.boot_damaged_records, counters.boot_damaged_headers) == (0, 0)
        if self.is_fenced:
            assert machine.add(FENCED, (1,)) is Code.FENCED
        if self.is_dropped:
            assert machine.add(DROPPED, (99,)) is Code.FENCED

    def check_files(self) -> None:
        """Check that the directory has no more files than the MANIFEST names."""
        manifest = self.machine.manifest()
        named = {file.slot for file in manifest.files} | set(manifest.free_slots)
        assert self.machine.slots() == named


def play_fault(mode: str, fault: Fault) -> FaultyRun:
    """Play one run with a fault and check it."""
    run = FaultyRun(mode, fault)
    try:
        run.play()
        run.go_on()
        run.end()
    except PowerLossError:
        run.end_faults()
        run.machine.lose_power()
    for _ in range(2):
        run.machine.start()
        run.check()
        run.check_files()
        run.end()
    run.machine.start()
    assert run.machine.add(5, (0,)) is Code.OK
    run.machine.scheduler.close()
    return run


def names_of(mode: str) -> list[str]:
    """The operations that can fail, from a run of the script without errors."""
    run = FaultyRun(mode, Fault(0))
    run.play()
    counters = run.machine.serving.counters
    assert counters.files_freed, "a file is dropped"
    assert counters.files_recycled, "a freed file is used again"
    assert run.machine.serving._keeper.active.entry.file_id > 4, "files become full"
    run.machine.scheduler.close()
    return run.names
