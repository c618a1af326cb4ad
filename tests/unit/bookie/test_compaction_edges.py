"""Edges of compaction: doubts, damaged indexes, requests at once."""

from __future__ import annotations

from typing import Any

import pytest

from bookie_server.core.index_format import IndexBlock
from bookie_server.storage.compaction.draft import Draft
from bookie_server.storage.files.keeper import FileKeeper
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, entry
from tests.unit.bookie.test_compaction import (
    WIDE,
    fill_shared,
    in_the_middle,
    roll,
    shared_entry,
)
from tests.unit.bookie.test_drops import started


def keeper_of(machine: Machine) -> FileKeeper:
    return machine.serving._keeper


def compactable() -> Machine:
    """A finished file in which one of two ledgers is dropped."""
    machine = started(settings=WIDE)
    fill_shared(machine, 2, 40)
    roll(machine)
    assert machine.drop(1) is Code.OK
    return machine


def test_compaction_keeps_no_file_and_no_slot_when_it_has_ended() -> None:
    machine = compactable()
    machine.compact()
    handover = keeper_of(machine).handover
    assert machine.serving.counters.compaction_bytes_freed > 0
    assert (handover.owned, handover.taken, handover.draft, handover.switch) == (
        set(),
        set(),
        None,
        None,
    )


def test_a_source_that_comes_in_doubt_while_it_is_copied_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = compactable()
    health = machine.serving._health
    source = next(iter(keeper_of(machine).finished)).entry.file_id
    finish = Draft.finish

    async def doubtful(self: Draft) -> Any:
        health.files_in_doubt.add(source)
        return await finish(self)

    monkeypatch.setattr(Draft, "finish", doubtful)
    machine.compact()
    assert source in {file.file_id for file in machine.manifest().files}


def test_a_newer_copy_in_a_file_in_doubt_does_not_make_the_older_one_dead() -> None:
    machine = compactable()
    assert machine.add(2, (3,), b"newer", is_recovery=True) is Code.OK
    roll(machine)
    files = list(keeper_of(machine).finished)
    assert len(files) == 2
    machine.serving._health.files_in_doubt.add(files[1].entry.file_id)
    machine.compact()
    copies = [file for file in keeper_of(machine).finished if file.entry.is_copies]
    (total,) = [t for t in copies[0].totals() if t.ledger_id == 2]
    size = sum(len(shared_entry(2, entry_id)) for entry_id in range(40))
    assert total.size_bytes == size, "all 40 entries are copied"


def test_an_index_that_points_to_another_record_keeps_its_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = compactable()
    piece_at = IndexBlock.piece_at

    def moved(self: Any, number: int) -> Any:
        ledger_id, piece = piece_at(self, number)
        return ledger_id, piece._replace(origin=piece.origin + 1)

    monkeypatch.setattr(IndexBlock, "piece_at", moved)
    machine.compact()
    assert machine.serving.counters.compaction_sources_withdrawn == 1
    monkeypatch.undo()
    assert machine.read(2, 5) == (Code.OK, shared_entry(2, 5))


def test_an_entry_that_is_stored_again_at_the_edge_of_a_file_is_not_copied() -> None:
    machine = started(settings=WIDE)
    fill_shared(machine, 2, 40)
    roll(machine)
    assert machine.add(2, (39,), b"newer", is_recovery=True) is Code.OK
    roll(machine)
    assert machine.drop(1) is Code.OK
    machine.compact()
    copies = [file for file in keeper_of(machine).finished if file.entry.is_copies]
    sizes = [t.size_bytes for file in copies for t in file.totals() if t.ledger_id == 2]
    kept = sum(len(shared_entry(2, entry_id)) for entry_id in range(39))
    assert sum(sizes) in (kept, kept + len(entry(2, 39, b"newer")))
    assert machine.read(2, 39) == (Code.OK, entry(2, 39, b"newer"))


def test_the_larger_of_two_requests_for_a_compaction_counts() -> None:
    machine = compactable()
    compactor = machine.serving.compactor
    begun: list[int] = []
    compactor.on_compacted = lambda compacted: begun.append(compacted.live_percent)
    compactor.request(80)
    compactor.request(20)
    machine.scheduler.run_until(lambda: not compactor._is_running)
    assert begun == [80]


def test_a_short_disk_is_compacted_once_in_each_pause() -> None:
    machine = started()
    compactor = machine.serving.compactor
    begun: list[int] = []
    compactor.on_compacted = lambda compacted: begun.append(compacted.live_percent)
    for _ in range(5):
        compactor.compact_when_short()
        machine.scheduler.run_for(10)
    assert len(begun) == 1
    machine.scheduler.run_for(SMALL.allocation_retry_ms)
    compactor.compact_when_short()
    machine.scheduler.run_for(10)
    assert len(begun) == 2


def test_a_file_that_comes_in_doubt_is_not_copied_to_its_end() -> None:
    machine = compactable()
    source = next(iter(keeper_of(machine).finished)).entry.file_id
    doubts = machine.serving._health.files_in_doubt
    in_the_middle(machine, lambda: doubts.add(source), copies=5)
    assert machine.serving.counters.compaction_sources_withdrawn == 1
    assert source in keeper_of(machine).finished
