"""Several directories: a cut start hides no loss, and a crash loses no acknowledged entry."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random

import pytest

from bookie_server.core.requests import StoredRead
from ledgerlog_spark.model import Code
from tests.crash.machine import KEY, add_request
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


@pytest.mark.parametrize("seed", range(12))
def test_requests_in_flight_and_power_losses_lose_no_acknowledged_entry(seed: int) -> None:
    """First records wait for the metadata while others arrive, and free bytes change."""
    draws = Random(seed)
    several = Several(count=3, seed=seed)
    several.front.metadata.pause = lambda: several.front.host.sleep(2)
    acknowledged: set[tuple[int, int]] = set()
    fenced: set[int] = set()
    homes: dict[int, int] = {}
    for _ in range(6):
        several.start()
        for directory in several.serving.directories:
            directory._health.check_epoch += draws.randrange(2)
        for _ in range(60):
            ledger_id, entry_id = draws.randrange(12), draws.randrange(40)
            number = draws.randrange(3)
            disk = several.serving.directories[number].disk
            disk.space = replace(disk.space, free=draws.randrange(1 << 20))
            if draws.random() < 0.1:
                request = StoredRead(ledger_id, -1, fence_key=KEY)
                several.serving.read(request, partial(note_fence, fenced, ledger_id))
            else:
                is_recovery = ledger_id in fenced or draws.random() < 0.2
                add = add_request(ledger_id, [entry_id], is_recovery=is_recovery)
                several.serving.add(add, partial(note_add, acknowledged, (ledger_id, entry_id)))
            several.scheduler.run_for(draws.choice((0, 0, 1, 3)))
        several.end(draws.choice(HOW))
        several.start()
        assert several.epochs() == [0, 0, 0]
        for ledger_id in range(12):
            home = several.home_of(ledger_id)
            if home is not None:
                assert homes.setdefault(ledger_id, home) == home, "it has moved"
        for ledger_id, entry_id in acknowledged:
            assert several.front.read(ledger_id, entry_id)[0] is Code.OK
        for ledger_id in fenced:
            assert several.serving.is_fenced(ledger_id)
        several.end("stop")
    assert len(acknowledged) > 50
    several.scheduler.close()


def note_add(acknowledged: set[tuple[int, int]], key: tuple[int, int], code: Code) -> None:
    if code is Code.OK:
        acknowledged.add(key)


def note_fence(fenced: set[int], ledger_id: int, code: Code, _entry: bytes | None) -> None:
    if code is Code.OK or code.is_absent:
        fenced.add(ledger_id)
