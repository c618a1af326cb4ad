"""A crash at each disk operation while ledgers are released, added to again and compacted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from bookie_server.ports import Standing
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, add_request, entry
from tests.crash.modes import JOURNAL, SYNCED, WEAK, Mode

WAIT_MS = 64
RELEASED, FENCED, AGAIN, KEPT = 1, 2, 3, 4
ENTRIES = 12


class PowerCutError(Exception):
    """The moment of a crash."""


class Releasing:
    """A machine that releases three of its four ledgers. Two ledgers are fenced first.

    Attributes:
        answered: Ledgers whose release was answered with OK.
        begun: Ledgers whose drop was submitted.
        again: The add to a released ledger was acknowledged.
    """

    def __init__(self, seed: int, mode: Mode) -> None:
        settings = replace(
            SMALL,
            recent_bytes_max=1,
            release_wait_ms=WAIT_MS,
            mode_settings=mode.settings(Random(seed), (10,)),
        )
        self.machine = Machine(seed, settings=settings, standing=Standing.NOT_WRITABLE)
        self.machine.start()
        self.begun: list[int] = []
        self.answered: list[int] = []
        self.again = False

    def fill(self) -> None:
        machine = self.machine
        for entry_id in range(ENTRIES):
            for ledger_id in (RELEASED, FENCED, AGAIN, KEPT):
                assert machine.add(ledger_id, (entry_id,), b"%d." % entry_id * 300) is Code.OK
        for ledger_id in (FENCED, AGAIN):
            assert machine.fence(ledger_id)[0] is Code.OK
        for _ in range(80):
            machine.scheduler.run(machine.serving.releasable(), machine.host)
            machine.scheduler.run_for(WAIT_MS // 32)
        machine.scheduler.run_for(500)

    def release_all(self) -> None:
        """Release the ledgers, and add to one of them again, before and after its drop."""
        storage = self.machine.serving
        for ledger_id in (RELEASED, FENCED, AGAIN):
            assert storage.hide(ledger_id)
            self._release(ledger_id)
        request = add_request(AGAIN, (1,), b"again", is_recovery=True)

        def added(code: Code) -> None:
            self.again = code is Code.OK

        storage.add(request, added)
        self.machine.scheduler.run_until(lambda: self.again and len(self.answered) == 3)
        self.machine.reclaim()
        self.machine.compact()

    def _release(self, ledger_id: int) -> None:
        self.begun.append(ledger_id)

        def done(code: Code) -> None:
            assert code is Code.OK
            self.answered.append(ledger_id)

        self.machine.serving.release(ledger_id, done)

    def check(self, why: object) -> None:
        """Check that a ledger is whole or empty, empty if this was answered, and not fenced."""
        machine = self.machine
        for ledger_id in (RELEASED, FENCED, AGAIN, KEPT):
            held = [self._holds(ledger_id, entry_id, why) for entry_id in range(ENTRIES)]
            others = held[:1] + held[2:] if ledger_id == AGAIN else held
            assert len(set(others)) == 1, (why, ledger_id, held)
            if ledger_id == KEPT:
                assert all(held), why
            if ledger_id in self.answered:
                assert not any(others), (why, ledger_id)
            if ledger_id not in self.begun:
                assert all(others), (why, ledger_id)
        if self.again:
            expected = (Code.OK, entry(AGAIN, 1, b"again"))
            assert machine.read(AGAIN, 1) == expected, why
        assert machine.serving.is_fenced(FENCED), why
        assert machine.serving.is_fenced(AGAIN), why
        assert not machine.serving.is_fenced(RELEASED), why
        assert not machine.serving.is_fenced(KEPT), why

    def _holds(self, ledger_id: int, entry_id: int, why: object) -> bool:
        code, data = self.machine.read(ledger_id, entry_id)
        if code.is_absent:
            return False
        written = {entry(ledger_id, entry_id, b"%d." % entry_id * 300), entry(AGAIN, 1, b"again")}
        assert code is Code.OK, (why, ledger_id, entry_id, code)
        assert data in written, (why, ledger_id, entry_id)
        return True

    def require_check(self, why: object) -> None:
        """Check that a regular add of a released ledger waits for the metadata check."""
        if RELEASED not in self.answered:
            return
        self.machine.metadata.asked.clear()
        assert self.machine.add(RELEASED, (ENTRIES,)) is Code.FENCED, why
        assert self.machine.metadata.asked == [RELEASED], why


def cut(releasing: Releasing, number: int) -> bool:
    """Release, and crash at an operation. Return whether an operation was interrupted."""
    disks = releasing.machine.disks
    left = number

    def count(_operation: int, _name: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise PowerCutError

    for disk in disks:
        disk.on_operation = count
    try:
        releasing.release_all()
    except PowerCutError:
        was_cut = True
    else:
        was_cut = False
    for disk in disks:
        disk.on_operation = None
    return was_cut


WAYS: tuple[Callable[[Machine], None], ...] = (Machine.lose_power, Machine.crash)


@pytest.mark.parametrize("mode", SYNCED, ids=lambda mode: mode.write_mode.value)
@pytest.mark.parametrize("way", WAYS)
def test_a_crash_at_each_operation_of_releases_takes_whole_ledgers_or_nothing(
    way: Callable[[Machine], None], mode: Mode
) -> None:
    number = cuts = 0
    while True:
        number += 1
        releasing = Releasing(number, mode)
        releasing.fill()
        was_cut = cut(releasing, number)
        way(releasing.machine)
        releasing.machine.start()
        releasing.check(number)
        releasing.machine.compact()
        releasing.check(number)
        releasing.machine.stop()
        releasing.machine.start()
        releasing.check(number)
        releasing.require_check(number)
        releasing.machine.scheduler.close()
        cuts += was_cut
        if not was_cut:
            break
    assert cuts > 15


@pytest.mark.parametrize("mode", [*WEAK, *JOURNAL])
def test_a_release_that_was_answered_outlives_a_power_loss_in_every_mode(mode: Mode) -> None:
    releasing = Releasing(1, mode)
    releasing.fill()
    releasing.release_all()
    releasing.machine.lose_power()
    releasing.machine.start()
    for ledger_id in (RELEASED, FENCED):
        for entry_id in range(ENTRIES):
            assert releasing.machine.read(ledger_id, entry_id)[0] is not Code.OK
