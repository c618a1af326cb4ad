"""Starts that are cut at each of their disk operations, after a kill, a power loss or damage.

What a start notices must not be hidden from the next start by what the cut start wrote. The disk
also refuses what a power loss would show later, see `tests/sim/disk_rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest

from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, entry
from tests.sim.disk import tear_tail

SETTINGS = replace(SMALL, recent_bytes_max=1, idle_watermark_ms=3_600_000)
LEDGER = 1
PAYLOAD = b"acknowledged"
OPERATIONS_MIN = 25
"""Number of disk operations of a start at least."""
Make = Callable[[], Machine]


class CutError(Exception):
    """Raised at the chosen operation of the disk."""


def is_cut(machine: Machine, at: int) -> bool:
    """Start a bookie up to its disk operation with this number; False if it has less."""
    begun = machine.disk.counters.operations

    def cut(number: int, _name: str) -> None:
        if number - begun == at:
            raise CutError

    machine.disk.on_operation = cut
    try:
        machine.start()
    except CutError:
        return True
    finally:
        machine.disk.on_operation = None
    return False


def cut_at_each_operation(make: Make, way: str, check: Callable[[Machine, int], None]) -> None:
    """Cut the next start of a bookie at each operation, and check the bookie after one more
    start.
    """
    for number in count(1):
        machine = make()
        if not is_cut(machine, number):
            assert number > OPERATIONS_MIN
            return
        getattr(machine, way)()
        machine.start()
        check(machine, number)
        machine.scheduler.close()


def killed() -> Machine:
    """A bookie with two entries, the second one in its last record."""
    machine = Machine(5, settings=SETTINGS)
    machine.start()
    assert machine.add(LEDGER, (0,), PAYLOAD) is Code.OK
    assert machine.add(LEDGER, (1,), PAYLOAD) is Code.OK
    return machine


def torn() -> Machine:
    """A power loss left a part of one more record."""
    machine = killed()
    slot = machine.serving._keeper.active.entry.slot
    machine.crash()
    content = machine.disk.seen_names[slot]
    tear_tail(content, len(content.durable))
    return machine


def damaged() -> Machine:
    """The last record has rotted, and the MANIFEST proves that it was synced."""
    machine = killed()
    active = machine.serving._keeper.active
    piece = active.index.find(LEDGER, 1)
    assert piece is not None
    machine.scheduler.run(machine.serving._keeper.commit_soon(), machine.host)
    machine.crash()
    machine.disk.flip_bit(active.entry.slot, piece.target.offset + 20, 3)
    return machine


@pytest.mark.parametrize("way", ["crash", "lose_power"])
def test_a_cut_start_loses_nothing(way: str) -> None:
    def make() -> Machine:
        machine = killed()
        machine.crash()
        return machine

    def check(machine: Machine, number: int) -> None:
        for entry_id in (0, 1):
            stored = entry(LEDGER, entry_id, PAYLOAD)
            assert machine.read(LEDGER, entry_id) == (Code.OK, stored), number
        assert machine.read(LEDGER, 2)[0] is Code.NO_ENTRY
        counters = machine.serving.counters
        assert (counters.boot_damaged_records, counters.boot_torn_tails) == (0, 0), number

    cut_at_each_operation(make, way, check)


@pytest.mark.parametrize("way", ["crash", "lose_power"])
def test_a_cut_start_hides_no_torn_record(way: str) -> None:
    """The start writes the index of the file over the torn record, which may have been a fence."""

    def check(machine: Machine, number: int) -> None:
        assert machine.add(LEDGER, (2,)) is Code.OK
        assert machine.metadata.asked == [LEDGER], number
        assert machine.read(LEDGER, 0) == (Code.OK, entry(LEDGER, 0, PAYLOAD)), number

    cut_at_each_operation(torn, way, check)


@pytest.mark.parametrize("way", ["crash", "lose_power"])
def test_a_cut_start_hides_no_lost_record(way: str) -> None:
    """The start writes the index of the file over the lost record."""

    def check(machine: Machine, number: int) -> None:
        assert machine.read(LEDGER, 1)[0] is Code.IO_ERROR, number
        assert machine.read(LEDGER, 0) == (Code.OK, entry(LEDGER, 0, PAYLOAD)), number
        assert machine.serving.doubt.epoch >= 1, number
        assert machine.serving._health.damaged_files, number

    cut_at_each_operation(damaged, way, check)
