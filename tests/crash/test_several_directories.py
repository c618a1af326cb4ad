"""A start of several directories that is cut after each disk operation hides no loss."""

from __future__ import annotations

import pytest

from ledgerlog_spark.model import Code
from tests.crash.several import Several, start_is_cut

LEDGERS = range(6)
UNKNOWN = 1_000
HOW = ("crash", "lose_power")


def filled() -> Several:
    """A bookie with two directories, which has stopped, and ledgers of two entries in both."""
    several = Several()
    several.start()
    for ledger_id in LEDGERS:
        assert several.front.add(ledger_id, [0]) is Code.OK
    several.end("crash")
    several.start()
    for ledger_id in LEDGERS:
        assert several.front.add(ledger_id, [1]) is Code.OK
    assert {several.home_of(ledger_id) for ledger_id in LEDGERS} == {0, 1}
    several.end("stop")
    return several


def lose_file(several: Several) -> None:
    """A finished file of the second directory is lost."""
    machine = several.machines[1]
    name = next(file.slot for file in machine.manifest().files if file.data_end)
    del machine.disk.seen_names[name], machine.disk.durable_names[name]


@pytest.mark.parametrize("loss", ["a lost file", "a removed directory"])
def test_a_start_that_is_cut_hides_no_loss(loss: str) -> None:
    cuts, is_cut = 0, True
    while is_cut:
        cuts += 1
        several = filled()
        if loss == "a lost file":
            lose_file(several)
        else:
            several.loss = "another directory was removed"
        is_cut = start_is_cut(several, cuts, HOW[cuts % 2])
        several.start()
        first, second = several.epochs()
        assert first == second >= 1
        assert set(several.reads_of(UNKNOWN).values()) == {Code.IO_ERROR}
        for ledger_id in LEDGERS:
            assert several.front.add(UNKNOWN + ledger_id, [0], is_recovery=True) is Code.OK
            assert several.front.read(UNKNOWN + ledger_id, 1)[0] is Code.IO_ERROR
            for entry_id in (0, 1):
                code = several.front.read(ledger_id, entry_id)[0]
                assert not code.is_absent
                assert code is Code.OK or loss == "a lost file"
        several.scheduler.close()
    assert cuts > 20


def test_a_start_without_a_loss_that_is_cut_raises_no_doubt() -> None:
    cuts, is_cut = 0, True
    while is_cut:
        cuts += 1
        several = filled()
        is_cut = start_is_cut(several, cuts, HOW[cuts % 2])
        several.start()
        assert several.epochs() == [0, 0]
        assert several.front.read(UNKNOWN, 0)[0] is Code.NO_LEDGER
        for ledger_id in LEDGERS:
            assert several.front.read(ledger_id, 1)[0] is Code.OK
        several.scheduler.close()
    assert cuts > 20
