"""Edges of compaction: doubts, damaged indexes, requests at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bookie_server.core.index_format import IndexBlock
from bookie_server.storage.compaction.copying import Copying, CopyOutcome
from bookie_server.storage.compaction.draft import Draft
from bookie_server.storage.compaction.pace import PAUSE_MS_MAX
from bookie_server.storage.files.keeper import FileKeeper
from ledgerlog_spark.model import Code
from tests.crash.invariants import check_files
from tests.crash.machine import SMALL, Machine, entry
from tests.unit.bookie.test_compaction import (
    COLD,
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


def fill_file(machine: Machine, ledger_id: int, first: int = 0) -> int:
    """Add entries until the active file is finished; return the id of the next entry."""
    keeper = keeper_of(machine)
    file_id = keeper.active.entry.file_id
    while file_id not in keeper.finished:
        assert machine.add(ledger_id, (first,), bytes(3_000)) is Code.OK
        first += 1
        machine.scheduler.run_for(10)
    return first


def test_an_older_copy_in_a_file_that_stays_does_not_make_the_newest_one_dead() -> None:
    """Copies have the ages of their originals, so a file of copies has older and newer entries."""
    bulk, stays, later = 6, 8, 7
    machine = started(settings=replace(COLD, file_size_bytes=1 << 18))
    assert machine.add(5, (0,), b"oldest") is Code.OK
    first = fill_file(machine, bulk)
    for entry_id in (1, 2):
        assert machine.add(5, (entry_id,), b"older") is Code.OK
    fill_file(machine, stays)
    assert machine.add(5, (1,), b"newest", is_recovery=True) is Code.OK
    for entry_id in range(5):
        assert machine.add(later, (entry_id,), bytes(3_000)) is Code.OK
    fill_file(machine, bulk, first)
    assert machine.drop(bulk) is Code.OK
    machine.compact(60)
    (copies,) = [file for file in keeper_of(machine).finished if file.entry.is_copies]
    total = copies.total_of(5)
    assert total is not None
    assert (total.first_entry_id, total.last_entry_id) == (0, 1)
    assert machine.drop(later) is Code.OK
    machine.compact(60)
    assert copies.entry.file_id not in keeper_of(machine).finished
    wanted = {0: b"oldest", 1: b"newest", 2: b"older"}
    for entry_id, payload in wanted.items():
        assert machine.read(5, entry_id) == (Code.OK, entry(5, entry_id, payload))


def test_a_file_that_was_freed_before_its_turn_is_not_taken_for_an_unreadable_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ledgers of the second file are deleted while the first file is copied."""
    machine = started(settings=COLD)
    bulk = 9
    for ledger_id in (1, 2):
        for entry_id in range(3):
            assert machine.add(ledger_id, (entry_id,), bytes(3_000)) is Code.OK
        fill_file(machine, bulk, 100 * ledger_id)
    assert machine.drop(bulk) is Code.OK
    keeper = keeper_of(machine)
    into = Copying.into
    freed: list[int] = []

    async def first_only(self: Copying, draft: Draft) -> CopyOutcome:
        outcome = await into(self, draft)
        if not freed:
            (other,) = [file for file in keeper.finished if file is not self.source and file.live]
            freed.append(other.entry.file_id)
            for ledger_id in list(other.live):
                machine.serving.drop(ledger_id, lambda _code: None)
            while other.live:
                await machine.host.sleep(1)
            await machine.serving.reclaim()
            assert other.entry.file_id not in keeper.finished
        return outcome

    monkeypatch.setattr(Copying, "into", first_only)
    machine.compact()
    assert freed
    assert machine.serving.counters.compaction_sources_withdrawn == 0
    check_files(machine)


@pytest.mark.parametrize("size", [1, 3_000, 5_000, 9_000, 14_000, 20_000])
def test_copies_of_a_large_file_have_room_in_smaller_ones(size: int) -> None:
    """The size of files was reduced, so the live entries of a file need several files."""
    machine = started(settings=replace(COLD, file_size_bytes=1 << 20, pieces_max=10_000))
    entries = min(100, 400_000 // size)
    for entry_id in range(entries):
        assert machine.add(1, (entry_id,), bytes([entry_id]) * size) is Code.OK
        assert machine.add(2, (entry_id,), bytes([entry_id]) * size) is Code.OK
    machine.stop()
    machine.settings = replace(machine.settings, file_size_bytes=1 << 16)
    machine.start()
    assert machine.drop(2) is Code.OK
    machine.compact()
    check_files(machine)
    copies = [file for file in keeper_of(machine).finished if file.entry.is_copies]
    assert len(copies) > 1
    assert all(file.end <= file.entry.size_bytes for file in copies)
    for entry_id in range(entries):
        wanted = entry(1, entry_id, bytes([entry_id]) * size)
        assert machine.read(1, entry_id) == (Code.OK, wanted)


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


def test_a_short_disk_repeats_no_compaction_that_runs() -> None:
    machine = compactable()
    compactor = machine.serving.compactor
    begun: list[int] = []
    compactor.on_compacted = lambda compacted: begun.append(compacted.live_percent)
    compactor.request(100)
    machine.scheduler.run_until(lambda: compactor.running_percent > 0)
    compactor.compact_when_short()
    machine.scheduler.run_for(60_000)
    assert begun == [100]


def test_a_stop_does_not_wait_until_compaction_may_go_on() -> None:
    machine = started(settings=replace(WIDE, compaction_bytes_per_s=100))
    fill_shared(machine, 2, 40)
    roll(machine)
    assert machine.drop(1) is Code.OK
    machine.serving.compactor.request()
    handover = keeper_of(machine).handover
    machine.scheduler.run_until(lambda: bool(handover.draft and handover.draft.index.pieces))
    began_ms = machine.host.monotonic_ms()
    host = machine.host
    machine.stop()
    assert host.monotonic_ms() - began_ms < 2 * PAUSE_MS_MAX


def test_a_file_that_comes_in_doubt_is_not_copied_to_its_end() -> None:
    machine = compactable()
    source = next(iter(keeper_of(machine).finished)).entry.file_id
    doubts = machine.serving._health.files_in_doubt
    in_the_middle(machine, lambda: doubts.add(source), copies=5)
    assert machine.serving.counters.compaction_sources_withdrawn == 1
    assert source in keeper_of(machine).finished
