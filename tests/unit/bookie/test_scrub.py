"""The scrub: what it finds on a simulated device, and how it shares files with other work."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookie_server.core.background.scrub import (
    DAMAGED_ENTRIES_MAX,
    DAMAGED_LEDGERS_MAX,
    NAME,
    POSITION_SIZE,
    DamagedEntries,
    ScrubPosition,
    decode_position,
    encode_position,
)
from bookie_server.core.manifest_codec import FileEntry, FileState
from bookie_server.core.record import JournalRecord, JournalRecordKind
from bookie_server.core.record_codec import CHUNK_SIZE
from bookie_server.core.settings import MEBIBYTE
from bookie_server.storage.files.entry_log_file import FinishedFile
from bookie_server.storage.scrub import device_reads
from bookie_server.storage.scrub.file_check import entries_in
from bookie_server.storage.scrub.pointers import Pointer, Pointers
from ledgerlog_spark.model import Code
from tests.corruption.test_scrub import RealBookie
from tests.crash.machine import SMALL, Machine, entry
from tests.fixtures.examples import examples
from tests.sim.disk import SimFile
from tests.unit.bookie.test_drops import started

COLD = replace(SMALL, recent_bytes_max=1, pool_files_max=2, scrub_bytes_per_s=0)
LEDGERS = (1, 2)
HOUR_MS = 3_600_000
WEEK_MS = SMALL.scrub_interval_ms


# Positions and damaged entries.


def test_a_pass_is_due_after_its_interval_while_it_is_open_and_after_a_clock_was_set_back() -> None:
    before = ScrubPosition()
    assert before.is_due(WEEK_MS, 1_700_000_000_000)
    begun = before.begun([3, 9], 1_000)
    assert begun.is_due(WEEK_MS, 1_000), "the pass continues"
    ended = begun.ended(5_000)
    assert not ended.is_due(WEEK_MS, WEEK_MS + 999)
    assert ended.is_due(WEEK_MS, WEEK_MS + 1_000), "a week after its beginning"
    assert ended.is_due(WEEK_MS, 999)
    for position in (before, begun, ended):
        assert not position.is_due(0, 10**15)


def test_a_pass_without_files_has_nothing_left() -> None:
    begun = ScrubPosition().begun([], 1)
    assert not begun.is_open
    assert begun.left([1, 2]) == set()


@settings(max_examples=examples(40))
@given(st.sets(st.integers(1, 60), min_size=1), st.sets(st.integers(61, 90)), st.data())
def test_a_position_covers_no_file_that_was_not_read(
    ids: set[int], later: set[int], data: st.DataObject
) -> None:
    """Files are read in any order, and some are freed. A restart forgets the order."""
    position, left = ScrubPosition().begun(ids, 1), set(ids)
    while left:
        read = data.draw(st.sampled_from(sorted(left)))
        left.remove(read)
        position = decode_position(encode_position(position.at(left)))
        again = position.left(ids | later)
        assert left <= again <= ids
        if data.draw(st.booleans()):
            left = again
    assert not position.is_open


@given(
    st.builds(
        ScrubPosition,
        *(st.integers(0, 2**63) for _ in range(4)),
    ),
    st.integers(0, POSITION_SIZE - 1),
    st.integers(0, 7),
)
def test_a_damaged_position_is_that_before_the_first_pass(
    position: ScrubPosition, at: int, bit: int
) -> None:
    data = bytearray(encode_position(position))
    assert decode_position(bytes(data)) == position
    assert decode_position(bytes(data[:at])) == ScrubPosition()
    data[at] ^= 1 << bit
    assert decode_position(bytes(data)) == ScrubPosition()


def test_damaged_entries_are_taken_once_and_bounded() -> None:
    damaged = DamagedEntries()
    damaged.add(7, [3, 1])
    damaged.add(5, [2])
    damaged.add(7, [1, 2])
    assert len(damaged) == 4
    assert damaged.take() == [(5, (2,)), (7, (1, 2, 3))]
    assert damaged.take() == []
    damaged.add(1, range(DAMAGED_ENTRIES_MAX + 10))
    damaged.add(2, [1])
    assert len(damaged) == DAMAGED_ENTRIES_MAX
    assert damaged.take() == [(1, tuple(range(DAMAGED_ENTRIES_MAX)))]
    for ledger_id in range(DAMAGED_LEDGERS_MAX + 5):
        damaged.add(ledger_id, [1])
    damaged.add(3, [2])
    taken = damaged.take()
    assert len(taken) == DAMAGED_LEDGERS_MAX
    assert taken[3] == (3, (1, 2))


@given(
    st.lists(st.integers(0, 2 * CHUNK_SIZE), min_size=1, max_size=8),
    st.sets(st.integers(0, 16), max_size=4),
)
def test_entries_with_a_byte_in_a_damaged_chunk(lengths: list[int], chunks: set[int]) -> None:
    ids = range(10, 10 + len(lengths))
    record = JournalRecord(JournalRecordKind.RUN, 1, entry_ids=ids, lengths=tuple(lengths))
    pointer = Pointer(0, 0, 1, ids[0], ids[-1], 5)
    found = [piece.first for piece in entries_in(record, pointer, chunks)]
    start, expected = 0, []
    for entry_id, length in zip(ids, lengths, strict=True):
        touched = {at // CHUNK_SIZE for at in range(start, start + max(length, 1), 1_000)}
        touched.add((start + max(length, 1) - 1) // CHUNK_SIZE)
        if touched & chunks:
            expected.append(entry_id)
        start += length
    assert found == expected


# What a pass finds.


def payload(ledger_id: int, entry_id: int) -> bytes:
    return b"%d/%d." % (ledger_id, entry_id) * 60


def filled(rounds: int = 150, **settings: Any) -> Machine:
    """A bookie with several finished files, each with entries of all ledgers."""
    machine = started(settings=replace(COLD, **settings))
    for entry_id in range(rounds):
        for ledger_id in LEDGERS:
            assert machine.add(ledger_id, (entry_id,), payload(ledger_id, entry_id)) is Code.OK
    machine.scheduler.run_for(500)
    assert len(machine.serving._keeper.finished) > 2
    return machine


def place_of(machine: Machine, ledger_id: int, entry_id: int) -> tuple[FileEntry, int]:
    """The finished file with an entry, and the offset of its payload."""
    for file in machine.manifest().files:
        content = bytes(machine.disk.durable_names[file.slot].durable[: file.data_end])
        at = content.find(entry(ledger_id, entry_id, payload(ledger_id, entry_id)))
        if file.state is FileState.FINISHED and at >= 0:
            return file, at
    raise AssertionError("the entry is in no finished file")


def damage(machine: Machine, ledger_id: int, entry_id: int, *, is_cached: bool = True) -> None:
    file, at = place_of(machine, ledger_id, entry_id)
    machine.disk.flip_bit(file.slot, at + 40, 3, is_cached=is_cached)


def test_a_pass_without_damage_finds_nothing_and_reads_every_byte_once() -> None:
    machine = filled()
    files = [file for file in machine.manifest().files if file.state is FileState.FINISHED]
    machine.scrub()
    counters = machine.serving.counters
    assert machine.serving.take_damaged() == []
    assert (counters.scrubs, counters.scrub_files) == (1, len(files))
    assert counters.scrub_damaged_records == counters.scrub_damaged_indexes == 0
    assert counters.scrub_wrong_pointers == counters.scrub_counts_corrected == 0
    records = sum(file.data_end - 8_192 for file in files)
    assert records < counters.scrub_bytes < 2 * records + 40_000 * len(files)


def test_damage_under_the_page_cache_is_found_and_reads_answer_unknown() -> None:
    """The page cache still has the right bytes, so reads do not notice the damage before."""
    machine = filled()
    machine.disk.cold_part = 0.0
    damage(machine, 1, 7)
    damage(machine, 2, 3)
    assert machine.read(1, 7) == (Code.OK, entry(1, 7, payload(1, 7)))
    machine.scrub()
    assert machine.serving.counters.scrub_damaged_records == 2
    assert machine.serving.counters.scrub_damaged_entries == 2
    assert machine.serving.take_damaged() == [(1, (7,)), (2, (3,))]
    assert machine.read(1, 7)[0] is Code.IO_ERROR
    assert machine.read(1, 8)[0] is Code.OK
    assert not machine.serving._health.files_in_doubt, "the ledger and its entries are known"


def test_a_read_of_a_damaged_entry_reports_it_once_and_a_repair_is_stored() -> None:
    """The scrub may need a week to find the damage."""
    machine = filled()
    damage(machine, 1, 7, is_cached=False)
    for _ in range(3):
        assert machine.read(1, 7)[0] is Code.IO_ERROR
    assert machine.serving.take_damaged() == [(1, (7,))]
    assert machine.add(1, (7,), payload(1, 7), is_recovery=True) is Code.OK
    assert machine.read(1, 7) == (Code.OK, entry(1, 7, payload(1, 7)))
    assert machine.serving.take_damaged() == []


def test_a_damaged_header_is_found_by_the_index() -> None:
    machine = filled()
    file, at = place_of(machine, 1, 7)
    machine.disk.flip_bit(file.slot, at // 512 * 512 + 50, 1, is_cached=True)
    machine.scrub()
    assert machine.serving.take_damaged() == [(1, (7,))]
    assert machine.read(1, 7)[0] is Code.IO_ERROR
    assert not machine.serving._health.files_in_doubt


def test_a_repair_of_a_damaged_entry_is_stored_although_its_header_was_cached() -> None:
    """Without this, the add would count as a repeat of the record in the cache of headers."""
    machine = filled()
    machine.disk.cold_part = 0.0
    assert machine.read(1, 7)[0] is Code.OK
    file, at = place_of(machine, 1, 7)
    machine.disk.flip_bit(file.slot, at // 512 * 512 + 50, 1, is_cached=True)
    machine.scrub()
    assert machine.serving.take_damaged() == [(1, (7,))]
    before = machine.serving.counters.adds
    assert machine.add(1, (7,), payload(1, 7), is_recovery=True) is Code.OK
    assert machine.serving.counters.adds == before + 1
    assert machine.read(1, 7) == (Code.OK, entry(1, 7, payload(1, 7)))
    machine.scrub()
    assert machine.serving.take_damaged() == [], "the newer copy is the live one"
    machine.crash()
    machine.start()
    assert machine.read(1, 7) == (Code.OK, entry(1, 7, payload(1, 7)))


def test_a_repair_is_stored_for_each_of_several_adjacent_damaged_headers() -> None:
    """The scrub finds the next record by a search, so it passes several damaged headers at once."""
    machine = filled()
    machine.disk.cold_part = 0.0
    for ledger_id in LEDGERS:
        assert machine.read(ledger_id, 7)[0] is Code.OK
        file, at = place_of(machine, ledger_id, 7)
        machine.disk.flip_bit(file.slot, at // 512 * 512 + 50, 1, is_cached=True)
    machine.scrub()
    assert machine.serving.take_damaged() == [(1, (7,)), (2, (7,))]
    before = machine.serving.counters.adds
    for ledger_id in LEDGERS:
        run = payload(ledger_id, 7)
        assert machine.add(ledger_id, (7,), run, is_recovery=True) is Code.OK
    assert machine.serving.counters.adds == before + 2


def test_entries_that_nobody_reads_are_not_reported() -> None:
    machine = filled()
    damage(machine, 1, 7)
    damage(machine, 2, 3)
    assert machine.add(2, (3,), b"newer", is_recovery=True) is Code.OK
    fill_up(machine)
    assert machine.drop(1) is Code.OK
    machine.scrub()
    assert machine.serving.counters.scrub_damaged_records == 2
    assert machine.serving.counters.scrub_damaged_entries == 0
    assert machine.serving.take_damaged() == []


def fill_up(machine: Machine) -> None:
    """Finish the file that is written."""
    file_id = machine.serving._keeper.active.entry.file_id
    number = 1_000
    while file_id not in machine.serving._keeper.finished:
        assert machine.add(2, (number,), b"more" * 300) is Code.OK
        machine.scheduler.run_for(20)
        number += 1


def test_a_damaged_index_is_rebuilt_and_the_file_is_read_after_the_rebuild() -> None:
    machine = filled()
    file, _ = place_of(machine, 1, 7)
    damage(machine, 1, 7)
    content = machine.disk.durable_names[file.slot].durable
    end = max(at for at in range(len(content)) if content[at])
    machine.disk.flip_bit(file.slot, end, 0, is_cached=True)
    machine.scrub()
    counters = machine.serving.counters
    assert counters.scrub_damaged_indexes == 1
    assert counters.boot_rebuilt_indexes == 1
    assert counters.scrub_files == len(machine.serving._keeper.finished)
    assert machine.serving.take_damaged() == [(1, (7,))]
    assert not machine.serving._health.files_in_doubt
    machine.scrub()
    assert counters.scrub_damaged_indexes == 1, "the index in memory is used from now on"


def test_a_damaged_table_of_an_index_is_found() -> None:
    machine = filled()
    file, _ = place_of(machine, 1, 7)
    machine.disk.flip_bit(file.slot, file.finish_offset + 120, 0, is_cached=True)
    machine.scrub()
    assert machine.serving.counters.scrub_damaged_indexes == 1


@pytest.mark.parametrize("distance", [512, 16 * MEBIBYTE, 1 << 40], ids=["near", "end", "far"])
def test_a_wrong_pointer_is_corrected_from_the_records(
    distance: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index has a valid checksum, so only a mistake of a program can write it."""
    machine = filled()
    file = next(iter(machine.serving._keeper.finished))
    add = "bookie_server.storage.scrub.pointers.Pointers.add"

    original = Pointers.add

    def misdirected(pointers: Pointers, ledger_id: int, piece: object) -> None:
        if file.rebuilt is None and ledger_id == 1:
            piece = piece._replace(target=piece.target + distance)  # type: ignore[attr-defined]
        original(pointers, ledger_id, piece)  # type: ignore[arg-type]

    monkeypatch.setattr(add, misdirected)
    machine.scrub()
    assert machine.serving.counters.scrub_wrong_pointers > 0
    assert file.rebuilt is not None
    assert machine.serving.take_damaged() == []


def test_wrong_live_bytes_are_corrected() -> None:
    machine = filled()
    file = next(iter(machine.serving._keeper.finished))
    right = file.live_bytes
    file.live_bytes -= 100
    machine.scrub()
    assert machine.serving.counters.scrub_counts_corrected == 1
    assert file.live_bytes == right == file.live.total()
    assert not machine.serving._health.files_in_doubt
    file.live.pop(1)
    file.live_bytes = file.live.total()
    machine.scrub()
    assert machine.serving.counters.scrub_counts_corrected == 2
    assert file.live_bytes == right
    machine.scrub()
    assert machine.serving.counters.scrub_counts_corrected == 2


def test_sectors_that_cannot_be_read_count_as_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = filled()
    file, at = place_of(machine, 1, 7)
    fail_reads(
        monkeypatch, machine, lambda name, first, end: name == file.slot and first <= at < end
    )
    machine.scrub()
    ids = dict(machine.serving.take_damaged())
    assert 7 in ids[1]
    assert sum(map(len, ids.values())) < 30, "only the entries of one page are damaged"
    assert machine.serving.counters.scrub_files_skipped == 0


def test_a_repair_of_an_entry_that_the_device_cannot_read_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The comparison with the stored bytes cannot be made."""
    machine = filled()
    machine.disk.cold_part = 1.0
    file, at = place_of(machine, 1, 7)
    fail_reads(
        monkeypatch, machine, lambda name, first, end: name == file.slot and first <= at < end
    )
    machine.scrub()
    assert 7 in dict(machine.serving.take_damaged())[1]
    assert machine.add(1, (7,), payload(1, 7), is_recovery=True) is Code.OK
    assert machine.read(1, 7) == (Code.OK, entry(1, 7, payload(1, 7)))


def fail_reads(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, is_bad: Callable[[str, int, int], bool]
) -> None:
    read = SimFile.read

    async def failing(file: SimFile, offset: int, size: int, *rest: object) -> bytes:
        if is_bad(file.name, offset, offset + size):
            machine.disk.faults.read_errors += 1
        return await read(file, offset, size, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(SimFile, "read", failing)


def test_a_file_of_a_failed_device_is_skipped_after_some_attempts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_reads, "UNREADABLE_PAGES_MAX", 2)
    machine = filled()
    file, _ = place_of(machine, 1, 7)
    end = file.finish_offset  # with an unreadable index, the records are not read
    fail_reads(monkeypatch, machine, lambda name, first, _: name == file.slot and first < end)
    machine.scrub()
    counters = machine.serving.counters
    assert counters.scrub_files_skipped == 1
    assert counters.scrub_files == len(machine.serving._keeper.finished) - 1
    assert counters.scrubs == 1


def test_a_stop_does_not_wait_for_all_pages_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A device may try for many seconds before it reports that a page cannot be read."""
    machine = filled()
    file, _ = place_of(machine, 1, 7)
    failed: list[int] = []

    def is_bad(name: str, first: int, _end: int) -> bool:
        if name == file.slot:
            failed.append(first)
        return name == file.slot

    fail_reads(monkeypatch, machine, is_bad)
    machine.serving.scrubber.request()
    machine.scheduler.run_until(lambda: len(failed) == 3)
    machine.scheduler.run(machine.serving.scrubber.stop(), machine.host)
    assert len(failed) <= 4
    assert machine.serving.counters.scrub_damaged_indexes == 0


def test_a_read_error_that_does_not_return_is_no_damage() -> None:
    machine = filled()
    machine.disk.faults.read_errors = 1
    machine.scrub()
    assert machine.disk.faults.read_errors == 0
    assert machine.serving.take_damaged() == []
    assert machine.serving.counters.scrub_damaged_records == 0


# When a pass begins, ends and continues.


def test_the_first_pass_is_due_at_once_and_the_next_one_a_week_after_its_beginning() -> None:
    machine = filled(rounds=60)
    scrubber, counters = machine.serving.scrubber, machine.serving.counters

    def wait(duration_ms: int) -> int:
        machine.host.wall_offset_ms += duration_ms
        scrubber.scrub_when_due()
        machine.scheduler.run_until(lambda: not scrubber.is_running)
        return counters.scrubs

    assert wait(0) == 1
    assert wait(WEEK_MS - HOUR_MS) == 1
    assert wait(HOUR_MS) == 2
    clock = machine.host
    machine.stop()
    machine.host.wall_offset_ms = clock.wall_offset_ms
    machine.start()
    scrubber, counters = machine.serving.scrubber, machine.serving.counters
    assert wait(0) == 0, "the time of the last pass outlives the process"
    assert wait(WEEK_MS) == 1


def test_an_interval_of_0_disables_passes_but_not_requests() -> None:
    machine = filled(rounds=60, scrub_interval_ms=0)
    machine.serving.scrubber.scrub_when_due()
    assert not machine.serving.scrubber.is_running
    machine.scrub()
    assert machine.serving.counters.scrubs == 1


@pytest.mark.parametrize("way", ["stop", "crash", "lose_power"])
def test_a_pass_continues_after_a_restart(way: str) -> None:
    machine = filled()
    scrubber = machine.serving.scrubber
    files = len(machine.serving._keeper.finished)
    scrubber.request()
    machine.scheduler.run_until(lambda: machine.serving.counters.scrub_files == 2)
    machine.scheduler.run_until(lambda: scrubber.position.done >= 2)
    machine.scheduler.run_for(5)
    getattr(machine, way)()
    machine.start()
    read = machine.serving.counters
    assert read.scrub_files == 0
    machine.serving.scrubber.scrub_when_due()
    machine.scheduler.run_until(lambda: read.scrubs == 1)
    assert read.scrub_files <= files if way == "lose_power" else read.scrub_files < files


def test_a_stop_ends_a_slow_pass() -> None:
    machine = filled(scrub_bytes_per_s=1_000)
    machine.serving.scrubber.request()
    machine.scheduler.run_until(lambda: machine.serving.counters.scrub_bytes > 0)
    began_ms = machine.host.monotonic_ms()
    host = machine.host
    machine.stop()
    assert host.monotonic_ms() - began_ms < 2_000


def test_a_pass_keeps_its_rate_also_while_the_disk_is_full() -> None:
    machine = filled(scrub_bytes_per_s=MEBIBYTE)
    machine.serving._health.is_disk_full = True
    began_ms = machine.host.monotonic_ms()
    machine.scrub()
    duration_ms = machine.host.monotonic_ms() - began_ms
    least_ms = machine.serving.counters.scrub_bytes * 1_000 // MEBIBYTE
    assert least_ms - 200 < duration_ms < 40 * least_ms


def test_files_that_are_finished_later_belong_to_the_next_pass() -> None:
    machine = filled()
    scrubber, keeper = machine.serving.scrubber, machine.serving._keeper
    scrubber.request()
    machine.scheduler.run_until(lambda: machine.serving.counters.scrub_files == 1)
    files = len(keeper.finished)
    fill_up(machine)
    machine.scheduler.run_until(lambda: not scrubber.is_running)
    assert machine.serving.counters.scrub_files == files < len(keeper.finished)


def test_a_position_that_cannot_be_kept_ends_nothing() -> None:
    machine = filled()
    machine.disk.faults.capacity_bytes = machine.disk.used_bytes()
    machine.scrub()
    assert machine.serving.counters.scrubs == 1
    assert machine.serving.failure is None
    content = machine.disk.seen_names.get(NAME)
    assert content is None or decode_position(bytes(content.durable)) == ScrubPosition()


# Next to other work.


def test_compaction_takes_a_file_from_the_scrub_and_the_scrub_reads_it_later() -> None:
    machine = filled()
    keeper, scrubber = machine.serving._keeper, machine.serving.scrubber
    files = len(keeper.finished)
    reads: list[int] = []
    first = next(iter(keeper.finished)).entry.file_id
    scrubber.request()
    machine.scheduler.run_until(lambda: machine.serving.counters.scrub_bytes > 0)
    keeper.handover.owned.add(first)
    seen = machine.serving.counters.scrub_bytes
    machine.scheduler.run_until(lambda: machine.serving.counters.scrub_files == files - 1)
    machine.scheduler.run_for(5_000)
    reads.append(machine.serving.counters.scrub_files)
    assert scrubber.is_running, "the pass waits for the file"
    assert scrubber.position.done < first
    keeper.handover.owned.discard(first)
    machine.scheduler.run_until(lambda: not scrubber.is_running)
    assert machine.serving.counters.scrub_files == files
    assert reads == [files - 1]
    assert machine.serving.counters.scrub_bytes > seen


def test_a_file_whose_index_is_being_rebuilt_is_read_after_the_rebuild() -> None:
    machine = filled()
    keeper, scrubber = machine.serving._keeper, machine.serving.scrubber
    first = next(iter(keeper.finished)).entry.file_id
    running = machine.serving._reader.rebuilds._running
    running.add(first)
    scrubber.request()
    machine.scheduler.run_for(10_000)
    assert machine.serving.counters.scrub_files == len(keeper.finished) - 1
    assert scrubber.is_running
    running.discard(first)
    machine.scheduler.run_until(lambda: not scrubber.is_running)
    assert machine.serving.counters.scrub_files == len(keeper.finished)
    assert machine.serving.counters.scrub_files_skipped == 0


def test_a_file_of_compaction_and_a_file_in_doubt_are_not_counted_again() -> None:
    machine = filled()
    keeper, recount = machine.serving._keeper, machine.serving.scrubber._recount
    doubts = machine.serving._health.files_in_doubt
    file = next(iter(keeper.finished))
    file.live_bytes -= 100
    wrong = file.live_bytes
    for owners in (keeper.handover.owned, doubts):
        owners.add(file.entry.file_id)
        machine.scheduler.run(recount.recount(file), machine.host)
        assert file.live_bytes == wrong
        assert file.entry.file_id in owners
        owners.discard(file.entry.file_id)
    machine.scheduler.run(recount.recount(file), machine.host)
    assert file.live_bytes == wrong + 100


def test_nothing_is_read_of_a_file_that_compaction_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = filled()
    keeper = machine.serving._keeper
    owned = {file.entry.slot for file in list(keeper.finished)[:2]}
    keeper.handover.owned.update(
        file.entry.file_id for file in keeper.finished if file.entry.slot in owned
    )
    read: set[str] = set()
    original = SimFile.read

    async def noted(file: SimFile, *arguments: object) -> bytes:
        read.add(file.name)
        return await original(file, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SimFile, "read", noted)
    machine.serving.scrubber.request()
    machine.scheduler.run_for(10_000)
    assert read
    assert not read & owned


def test_a_file_that_is_freed_meanwhile_is_left_out_and_its_slot_waits_for_the_read() -> None:
    machine = filled(scrub_bytes_per_s=100_000)
    keeper, scrubber = machine.serving._keeper, machine.serving.scrubber
    first = next(iter(keeper.finished))
    scrubber.request()
    machine.scheduler.run_until(lambda: first.handle.pins > 0)
    for ledger_id in LEDGERS:
        assert machine.drop(ledger_id) is Code.OK
    machine.reclaim()
    assert first.entry.file_id not in keeper.finished
    machine.scheduler.run_until(lambda: not scrubber.is_running)
    assert first.handle.pins == 0
    assert machine.serving.counters.scrubs == 1
    assert machine.serving.counters.scrub_damaged_records == 0


def test_a_compaction_after_a_repair_ends_the_damage() -> None:
    machine = filled()
    damage(machine, 1, 7)
    machine.scrub()
    [(ledger_id, ids)] = machine.serving.take_damaged()
    for entry_id in ids:
        data = payload(ledger_id, entry_id)
        assert machine.add(ledger_id, (entry_id,), data, is_recovery=True) is Code.OK
    fill_up(machine)
    assert machine.drop(2) is Code.OK
    machine.compact(101)
    before = machine.serving.counters.scrub_damaged_records
    machine.scrub()
    assert machine.serving.counters.scrub_damaged_records == before
    assert machine.read(1, 7) == (Code.OK, entry(1, 7, payload(1, 7)))


def test_a_rebuilt_index_is_counted_piece_by_piece() -> None:
    machine = filled()
    file: FinishedFile = next(iter(machine.serving._keeper.finished))
    content = machine.disk.durable_names[file.entry.slot].durable
    end = max(at for at in range(len(content)) if content[at])
    machine.disk.flip_bit(file.entry.slot, end, 0, is_cached=True)
    machine.scrub()
    assert file.rebuilt is not None
    assert machine.drop(2) is Code.OK
    machine.scrub()
    assert machine.serving.counters.scrub_counts_corrected == 0
    file.live.pop(1)
    machine.scrub()
    assert machine.serving.counters.scrub_counts_corrected == 1
    assert file.live_bytes == file.live.total() > 0


# On a real device.


async def test_the_pages_of_a_file_are_dropped_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls are made in the threads of background work, so no client waits for them."""
    calls: list[tuple[str, str, int]] = []
    drop, pread = os.posix_fadvise, os.pread

    def noted_drop(descriptor: int, offset: int, size: int, advice: int) -> None:
        assert (offset, size, advice) == (0, 0, os.POSIX_FADV_DONTNEED)
        calls.append(("drop", threading.current_thread().name, descriptor))
        drop(descriptor, offset, size, advice)

    def noted_read(descriptor: int, size: int, offset: int) -> bytes:
        calls.append(("read", threading.current_thread().name, descriptor))
        return pread(descriptor, size, offset)

    bookie = RealBookie(tmp_path / "data")
    await bookie.start()
    await bookie.fill()
    finished = len(bookie.storage._keeper.finished)
    monkeypatch.setattr(os, "posix_fadvise", noted_drop)
    monkeypatch.setattr(os, "pread", noted_read)
    await bookie.storage.scrubber.scrub()
    monkeypatch.undo()
    await bookie.stop()
    assert [name for name, _, _ in calls].count("drop") == finished > 1
    # Others read too: the position, the maintenance of files, and the threads of earlier tests.
    scrubbed = {descriptor for name, _, descriptor in calls if name == "drop"}
    dropped: set[int] = set()
    for name, thread, descriptor in calls:
        if descriptor in scrubbed:
            assert thread.startswith("background")
            assert name == "drop" or descriptor in dropped
            dropped.add(descriptor)
