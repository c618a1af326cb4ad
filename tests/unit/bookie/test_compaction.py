"""Compaction: the choice of files and of entries to copy, and races with other requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bookie_server.core.background.compaction import (
    CREDIT_MS,
    RETRY_PAUSE_MS,
    RETRY_PAUSE_MS_MAX,
    Candidate,
    Rate,
    Schedule,
    Withdrawals,
    chosen,
    stored_bytes,
    uncovered,
)
from bookie_server.core.index_format import BLOCK_SIZE
from bookie_server.core.manifest_codec import FileState
from bookie_server.core.pieces import Piece
from bookie_server.core.record_codec import aligned
from bookie_server.core.settings import MEBIBYTE
from bookie_server.core.slot_header import RECORDS_START
from bookie_server.ports import Priority
from bookie_server.storage import slices
from bookie_server.storage.compaction import draft
from bookie_server.storage.compaction.copying import Copying
from bookie_server.storage.compaction.draft import PORTION_SIZE_BYTES, Draft
from bookie_server.storage.compaction.pace import UNSYNCED_BYTES_MAX, Pace
from bookie_server.storage.files import index_rebuilds
from bookie_server.storage.files.entry_log_file import FinishedFile
from bookie_server.storage.files.keeper import FileKeeper
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, add_request, entry
from tests.sim.disk import SimFile
from tests.unit.bookie.test_drops import begun_read, found_read, pass_days, started

COLD = replace(SMALL, recent_bytes_max=1, pool_files_max=2)
WIDE = replace(COLD, file_size_bytes=1 << 22, pieces_max=100_000, in_flight_bytes_max=1 << 24)


FILLER_BYTES = 100_000
FILLER = 99
"""The ledger whose entries fill files up."""


def shared_entry(ledger_id: int, entry_id: int) -> bytes:
    """An entry that `fill_shared` adds."""
    return entry(ledger_id, entry_id, b"%d." % entry_id * 100)


# The choice of files.


def test_files_below_the_threshold_are_chosen_and_those_that_free_most_per_copied_byte_first() -> (
    None
):
    files = [
        Candidate(1, live_bytes=79, data_bytes=100),
        Candidate(2, live_bytes=80, data_bytes=100),
        Candidate(3, live_bytes=100, data_bytes=1_000),
        Candidate(4, live_bytes=1, data_bytes=100),
        Candidate(5, live_bytes=0, data_bytes=0),
    ]
    assert [file.file_id for file in chosen(files, 80)] == [4, 3, 1]
    assert [file.file_id for file in chosen(files, 20)] == [4, 3]
    assert chosen(files, 0) == []
    assert [file.file_id for file in chosen(files, 100)] == [4, 3, 1, 2]


def test_due_compactions_by_their_intervals() -> None:
    settings = replace(
        SMALL, compaction_minor_interval_ms=1_000, compaction_major_interval_ms=5_000
    )
    schedule = Schedule(settings, 0, 0)
    percents = [schedule.due(now_ms) for now_ms in range(500, 7_001, 500)]
    assert percents == [0, 20, 0, 20, 0, 20, 0, 20, 0, 80, 0, 20, 0, 20]
    never = replace(settings, compaction_minor_interval_ms=0, compaction_major_interval_ms=0)
    assert not any(Schedule(never, 0, 0).due(now_ms) for now_ms in (1, 10**9))
    only_major = Schedule(replace(settings, compaction_minor_percent=0), 0, 0)
    assert [only_major.due(now_ms) for now_ms in (4_999, 5_000)] == [0, 80]


def test_rate_pauses_in_proportion_and_grants_a_small_credit() -> None:
    rate = Rate(1_000_000)
    rate.pause_ms(0, 0)
    assert rate.pause_ms(200_000, 0) == 200 - CREDIT_MS
    assert rate.pause_ms(50_000, 100) == 50
    assert rate.pause_ms(100_000, 60_000) == 0, "a long time without work is not made up for"
    assert rate.pause_ms(100_000, 60_000) == 100
    assert Rate(0).pause_ms(1 << 40, 0) == 0


def test_a_file_that_cannot_be_read_is_tried_after_pauses_that_double_up_to_a_day() -> None:
    withdrawals, now_ms, pauses = Withdrawals(), 5_000, []
    for _ in range(10):
        withdrawals.add(7, now_ms)
        waits = [
            withdrawals.waiting({7, 8}, now_ms + number * RETRY_PAUSE_MS) for number in range(200)
        ]
        pauses.append(waits.index(set()))
        assert set(map(frozenset, waits[: pauses[-1]])) == {frozenset({7})}
        now_ms += pauses[-1] * RETRY_PAUSE_MS
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 144, 144]
    assert RETRY_PAUSE_MS_MAX == 144 * RETRY_PAUSE_MS


def test_files_that_are_gone_are_not_remembered() -> None:
    withdrawals = Withdrawals()
    for file_id in range(1_000):
        withdrawals.add(file_id, 0)
        assert withdrawals.waiting({file_id}, 0) == {file_id}
    assert withdrawals.waiting(range(1_000), 0) == {999}


def test_parts_of_a_piece_without_newer_copies() -> None:
    piece = Piece(10, 19, 7, 512, 3)

    def left(*newer: tuple[int, int]) -> list[tuple[int, int, int]]:
        return [(part.first, part.last, part.place) for part in uncovered(piece, newer)]

    assert left() == [(10, 19, 3)]
    assert left((10, 19)) == left((0, 99)) == []
    assert left((0, 12)) == [(13, 19, 6)]
    assert left((18, 30)) == [(10, 17, 3)]
    assert left((12, 13), (15, 15)) == [(10, 11, 3), (14, 14, 7), (16, 19, 9)]
    assert left((0, 9), (20, 30)) == [(10, 19, 3)]
    assert left((5, 14), (15, 19)) == []


def test_estimate_of_records_counts_headers_and_padding() -> None:
    assert stored_bytes(0, 0) == 0
    assert stored_bytes(1_000, 10) == 10 * 512
    assert stored_bytes(65_536, 1) == aligned(104 + 4 + 65_536)


# The copied entries.


def fill_shared(machine: Machine, ledgers: int, rounds: int, size: int = 300) -> None:
    for entry_id in range(rounds):
        for ledger_id in range(1, ledgers + 1):
            payload = b"%d." % entry_id * (size // 3)
            assert machine.add(ledger_id, (entry_id,), payload) is Code.OK


def roll(machine: Machine) -> None:
    """Fill the active file, so that the files before it are finished."""
    files = len(list(machine.serving._keeper.finished))
    first = machine.serving._shared.state_of(FILLER).last_accepted_id + 1
    payload = bytes(FILLER_BYTES if machine.settings is not COLD else 3_000)
    for entry_id in range(first, first + 3_000):
        assert machine.add(FILLER, (entry_id,), payload) is Code.OK
        if len(list(machine.serving._keeper.finished)) > files:
            break
    machine.scheduler.run_for(300)


def finished(machine: Machine) -> dict[int, int]:
    """The bytes of the records of each finished file."""
    return {
        file.file_id: file.data_end - RECORDS_START
        for file in machine.manifest().files
        if file.state is FileState.FINISHED
    }


def test_deleting_one_of_a_thousand_ledgers_gives_its_bytes_back_in_one_compaction() -> None:
    ledgers, rounds = 1_000, 4
    machine = started(settings=WIDE)
    fill_shared(machine, ledgers, rounds, size=1_200)
    roll(machine)
    before = finished(machine)
    size = sum(
        aligned(104 + len(entry(7, entry_id, b"%d." % entry_id * 400)))
        for entry_id in range(rounds)
    )
    assert machine.drop(7) is Code.OK
    machine.compact()
    given_back = sum(before.values()) - sum(size for file_id, size in finished(machine).items())
    watermarks = 512 * 20
    assert size <= given_back <= size + watermarks
    for ledger_id in (1, 6, 8, 1_000):
        for entry_id in range(rounds):
            stored = entry(ledger_id, entry_id, b"%d." % entry_id * 400)
            assert machine.read(ledger_id, entry_id) == (Code.OK, stored)
    assert machine.read(7, 0) == (Code.NO_ENTRY, None)
    machine.compact()
    assert machine.serving.counters.compactions == 1, "nothing is copied twice"


def test_copies_of_small_records_of_mixed_sizes_are_not_copied_again() -> None:
    machine = started(settings=COLD)
    for number in range(300):
        assert machine.add(1 + number % 3, (number,), bytes(1 + 799 * (number % 2))) is Code.OK
    roll(machine)
    assert machine.drop(3) is Code.OK
    machine.compact()
    copied = machine.serving.counters.compaction_bytes_copied
    assert copied
    for _ in range(3):
        machine.compact()
    assert machine.serving.counters.compaction_bytes_copied == copied


def test_dropped_in_the_active_file_counts_as_dead_when_the_file_is_finished() -> None:
    machine = started(settings=WIDE)
    fill_shared(machine, 2, 200)
    assert machine.drop(1) is Code.OK
    roll(machine)
    (before,) = finished(machine).values()
    machine.compact()
    (after,) = finished(machine).values()
    assert after < before - 190 * 512
    assert machine.read(2, 199)[0] is Code.OK


def test_run_of_entries_is_copied_without_the_entries_that_are_stored_again_elsewhere() -> None:
    machine = started(settings=WIDE)
    payloads = [b"%d." % number * 40_000 for number in range(8)]
    assert machine.add(5, range(8), payloads) is Code.OK
    fill_shared(machine, 2, 2)
    roll(machine)
    assert machine.add(5, (2, 3, 6), b"again", is_recovery=True) is Code.OK
    roll(machine)
    assert machine.drop(2) is Code.OK
    machine.compact()
    assert machine.serving.counters.compaction_bytes_freed > 3 * 80_000
    for _ in range(2):
        for number, payload in enumerate(payloads):
            wanted = b"again" if number in (2, 3, 6) else payload
            assert machine.read(5, number) == (Code.OK, entry(5, number, wanted))
        assert machine.held(5) == [(0, 7)]
        machine.lose_power()
        machine.start()


def test_copies_are_read_after_their_index_was_damaged() -> None:
    machine = compacted()
    copies = next(file for file in machine.manifest().files if file.is_copies)
    machine.stop()
    machine.disk.flip_bit(copies.slot, copies.finish_offset + 8_000, 3)
    machine.start()
    machine.read(2, 0)
    machine.scheduler.run_for(500)
    for entry_id in range(40):
        assert machine.read(2, entry_id) == (Code.OK, shared_entry(2, entry_id))
    assert machine.serving.counters.boot_rebuilt_indexes == 1
    assert machine.read(2, 99)[0] is Code.NO_ENTRY, "all records of the file were found"
    machine.compact()
    assert machine.read(2, 3) == (Code.OK, shared_entry(2, 3))


@pytest.mark.parametrize("is_last", [False, True])
def test_lost_record_of_copies_keeps_the_file_in_doubt(*, is_last: bool) -> None:
    machine = compacted()
    copies = next(file for file in machine.manifest().files if file.is_copies)
    machine.stop()
    machine.disk.flip_bit(copies.slot, copies.finish_offset + 8_000, 3)
    records = machine.disk.seen_names[copies.slot].seen[: copies.data_end]
    header = records.rfind(b"LREC") if is_last else RECORDS_START
    machine.disk.flip_bit(copies.slot, header + 20, 3)
    machine.start()
    for entry_id in range(40):
        assert machine.read(2, entry_id)[0] in (Code.OK, Code.IO_ERROR)
    machine.scheduler.run_for(500)
    assert machine.read(2, 99)[0] is Code.IO_ERROR, "a lost record may have had any entry"


def test_files_with_more_pieces_than_a_draft_are_copied_to_several_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(draft, "PIECES_MAX", 12)
    machine = started(settings=WIDE)
    fill_shared(machine, 2, 40)
    roll(machine)
    assert machine.drop(1) is Code.OK
    machine.compact()
    copies = [file for file in machine.manifest().files if file.is_copies]
    assert len(copies) > 3
    for _ in range(2):
        for entry_id in range(40):
            assert machine.read(2, entry_id) == (Code.OK, shared_entry(2, entry_id))
        assert machine.held(2) == [(0, 39)]
        machine.lose_power()
        machine.start()


def test_what_is_left_of_a_file_that_was_copied_in_part_is_copied_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first of several files is written, then the storage stops."""
    monkeypatch.setattr(draft, "PIECES_MAX", 12)
    machine = started(settings=WIDE)
    fill_shared(machine, 2, 40)
    roll(machine)
    assert machine.drop(1) is Code.OK
    counters = machine.serving.counters
    machine.serving.compactor.request()
    machine.scheduler.run_until(lambda: any(f.is_copies for f in machine.manifest().files))
    copied = counters.compaction_bytes_copied
    machine.stop()
    machine.start()
    machine.compact()
    again = machine.serving.counters.compaction_bytes_copied
    whole = sum(len(shared_entry(2, entry_id)) for entry_id in range(40))
    assert 0 < copied < whole + 100_000
    filler = (FILLER_BYTES + 32) * (machine.serving._states[FILLER].last_entry_id + 1)
    assert again <= whole + filler - 6 * 300
    for entry_id in range(40):
        assert machine.read(2, entry_id) == (Code.OK, shared_entry(2, entry_id))


def test_copies_in_two_files_that_both_leave_are_not_dead_because_of_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(draft, "PIECES_MAX", 12)
    machine = started(settings=WIDE)
    fill_shared(machine, 3, 40)
    roll(machine)
    assert machine.drop(1) is Code.OK
    machine.serving.compactor.request()
    machine.scheduler.run_until(lambda: any(f.is_copies for f in machine.manifest().files))
    machine.stop()
    monkeypatch.undo()
    machine.settings = replace(WIDE, file_size_bytes=1 << 23)  # both fit into one draft
    machine.start()
    assert machine.drop(3) is Code.OK
    machine.compact()
    for _ in range(2):
        for entry_id in range(40):
            assert machine.read(2, entry_id) == (Code.OK, shared_entry(2, entry_id))
        machine.lose_power()
        machine.start()


# Damage.


def damaged(place: int) -> tuple[Machine, int]:
    """A machine in which a bit of the record of entry 7 of ledger 2 has flipped."""
    machine = started(settings=WIDE)
    fill_shared(machine, 2, 40)
    roll(machine)
    assert machine.drop(1) is Code.OK
    machine.scheduler.run_for(300)
    file = next(iter(machine.serving._keeper.finished))
    machine.stop()
    data = machine.disk.seen_names[file.entry.slot].seen
    at = data.find(shared_entry(2, 7))
    assert at > 0
    machine.disk.flip_bit(file.entry.slot, at + place, 2)
    machine.start()
    return machine, file.entry.file_id


@pytest.mark.parametrize("place", [-80, 200], ids=["header", "body"])
def test_file_with_a_damaged_entry_is_kept_and_the_entry_is_neither_absent_nor_other_bytes(
    place: int,
) -> None:
    machine, file_id = damaged(place)
    for _ in range(2):
        machine.compact()
        assert file_id in {file.file_id for file in machine.manifest().files}
        for entry_id in range(40):
            expected: tuple[Code, bytes | None] = (Code.OK, shared_entry(2, entry_id))
            if entry_id == 7:
                expected = Code.IO_ERROR, None
            assert machine.read(2, entry_id) == expected
    assert machine.serving.counters.compaction_sources_withdrawn == 1


def test_file_that_the_device_cannot_read_is_kept_and_compacted_when_the_error_has_passed() -> None:
    machine = started(settings=WIDE)
    fill_shared(machine, 2, 40)
    roll(machine)
    assert machine.drop(1) is Code.OK
    source = next(iter(machine.serving._keeper.finished)).entry
    failed: list[str] = []

    def fail(_operation: int, name: str) -> None:
        if name == f"read {source.slot}" and not failed:
            failed.append(name)
            machine.disk.faults.read_errors = 1

    machine.disk.on_operation = fail
    for pause_ms in (0, RETRY_PAUSE_MS // 2):
        machine.scheduler.run_for(pause_ms)
        machine.compact()
        assert machine.serving.counters.compaction_sources_withdrawn == 1
        assert machine.serving.counters.compaction_bytes_freed == 0
    assert machine.read(2, 5) == (Code.OK, shared_entry(2, 5))
    machine.scheduler.run_for(RETRY_PAUSE_MS)
    machine.compact()
    assert machine.serving.counters.compaction_sources_withdrawn == 1
    assert source.file_id not in {file.file_id for file in machine.manifest().files}
    assert machine.read(2, 5) == (Code.OK, shared_entry(2, 5))


def test_a_damaged_file_is_compacted_when_its_damaged_entries_are_deleted() -> None:
    machine, file_id = damaged(200)
    machine.compact()
    assert machine.drop(2) is Code.OK
    assert machine.add(FILLER, (10_000,), b"x") is Code.OK
    machine.scheduler.run_for(RETRY_PAUSE_MS)
    machine.compact()
    assert machine.serving.counters.compaction_sources_withdrawn == 1
    assert file_id not in {file.file_id for file in machine.manifest().files}


def test_verified_copies_stay_although_their_damaged_source_has_the_same_entries() -> None:
    machine = started(settings=WIDE)
    fill_shared(machine, 3, 40)
    roll(machine)
    assert machine.drop(1) is Code.OK
    machine.scheduler.run_for(300)
    slot = next(iter(machine.serving._keeper.finished)).entry.slot
    machine.stop()
    at = machine.disk.seen_names[slot].seen.find(shared_entry(2, 7))
    machine.disk.flip_bit(slot, at + 200, 2)
    machine.start()
    machine.compact()
    assert machine.drop(3) is Code.OK
    machine.compact()
    finished = machine.serving._keeper.finished
    holders = [file for file in finished.holding(2) if file.total_of(2)]
    assert [file.entry.slot == slot for file in holders] == [True, False]
    assert not any(file.total_of(3) for file in holders if file.entry.slot != slot)


def test_damage_among_deleted_entries_does_not_keep_a_file() -> None:
    machine = started(settings=WIDE)
    fill_shared(machine, 2, 40)
    roll(machine)
    assert machine.drop(1) is Code.OK
    file = next(iter(machine.serving._keeper.finished))
    machine.stop()
    at = machine.disk.seen_names[file.entry.slot].seen.find(shared_entry(1, 7))
    machine.disk.flip_bit(file.entry.slot, at + 200, 2)
    machine.start()
    machine.compact()
    assert machine.serving.counters.compaction_sources_withdrawn == 0
    assert file.entry.file_id not in {file.file_id for file in machine.manifest().files}


# Races.


def in_the_middle(machine: Machine, then: Callable[[], Any], copies: int = 10) -> None:
    """Compact, and call `then` when the draft has some copies."""
    machine.serving.compactor.request()
    handover = machine.serving._keeper.handover

    def is_reached() -> bool:
        return handover.draft is not None and handover.draft.index.pieces >= copies

    machine.scheduler.run_until(is_reached)
    then()
    machine.scheduler.run_until(lambda: not machine.serving.compactor._is_running)


def test_newer_entry_of_recovery_counts_although_the_older_one_was_copied_later() -> None:
    machine = started(settings=WIDE)
    fill_shared(machine, 2, 40)
    roll(machine)
    assert machine.drop(1) is Code.OK
    assert machine.add(2, (3,), b"newer", is_recovery=True) is Code.OK
    machine.compact()
    for _ in range(2):
        assert machine.read(2, 3) == (Code.OK, entry(2, 3, b"newer"))
        machine.lose_power()
        machine.start()
    roll(machine)
    machine.compact()
    assert machine.read(2, 3) == (Code.OK, entry(2, 3, b"newer"))


def test_ledger_that_is_dropped_while_it_is_copied_stays_deleted() -> None:
    machine = started(settings=WIDE)
    fill_shared(machine, 3, 40)
    roll(machine)
    assert machine.drop(1) is Code.OK
    in_the_middle(machine, lambda: machine.drop(2))
    for _ in range(2):
        assert machine.held(2) == []
        assert machine.read(2, 0)[0] is Code.NO_ENTRY
        assert machine.read(3, 39) == (Code.OK, shared_entry(3, 39))
        machine.lose_power()
        machine.start()


def test_ledger_that_is_fenced_or_added_to_while_it_is_copied() -> None:
    machine = started(settings=WIDE)
    fill_shared(machine, 3, 40)
    roll(machine)
    assert machine.drop(1) is Code.OK

    def race() -> None:
        assert machine.fence(2)[0] is Code.OK
        assert machine.add(3, (0,), b"newer", is_recovery=True) is Code.OK
        assert machine.add(3, (40,), b"last") is Code.OK

    in_the_middle(machine, race)
    for _ in range(2):
        assert machine.add(2, (40,)) is Code.FENCED
        assert machine.read(3, 0) == (Code.OK, entry(3, 0, b"newer"))
        assert machine.read(3, 40) == (Code.OK, entry(3, 40, b"last"))
        assert machine.read(2, 39) == (Code.OK, shared_entry(2, 39))
        machine.lose_power()
        machine.start()


def test_file_whose_ledgers_are_dropped_while_it_is_copied_is_freed() -> None:
    machine = started(settings=WIDE)
    fill_shared(machine, 2, 40)
    roll(machine)
    file_id = next(iter(machine.serving._keeper.finished)).entry.file_id
    assert machine.drop(1) is Code.OK

    def drop_all() -> None:
        for ledger_id in (2, FILLER):
            assert machine.drop(ledger_id) is Code.OK

    in_the_middle(machine, drop_all)
    machine.reclaim()
    assert file_id not in {file.file_id for file in machine.manifest().files}
    assert machine.held(2) == []


def test_file_that_dies_after_it_was_copied_is_freed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = started(settings=WIDE)
    for ledger_id in (10, 20):
        for entry_id in range(40):
            for each in (ledger_id, ledger_id + 1):
                assert machine.add(each, (entry_id,), bytes(300)) is Code.OK
        roll(machine)
    for ledger_id in (11, 21):
        assert machine.drop(ledger_id) is Code.OK
    into = Copying.into
    whole: list[int] = []

    async def dropping(self: Copying, draft: Draft) -> Any:
        outcome = await into(self, draft)
        if not whole:
            codes: list[Code] = []
            dropped = [FILLER, *(ledger for ledger in (10, 20) if ledger in draft.file.index)]
            for ledger_id in dropped:
                machine.serving.drop(ledger_id, codes.append)
            while len(codes) < len(dropped):
                await machine.host.sleep(1)
            await machine.serving.reclaim()
            assert not self.source.live
            assert self.source.entry.file_id in machine.serving._keeper.finished
        whole.append(self.source.entry.file_id)
        return outcome

    monkeypatch.setattr(Copying, "into", dropping)
    freed = machine.serving.counters.files_freed
    machine.compact()
    assert len(whole) == 2
    machine.reclaim()
    assert machine.serving.counters.files_freed - freed <= 3
    left = [ledger_id for ledger_id in (10, 20) if machine.held(ledger_id)]
    assert len(left) == 1
    manifest = machine.manifest()
    assert machine.slots() == {f.slot for f in manifest.files} | set(manifest.free_slots)


def test_newer_entry_that_is_not_synced_does_not_make_the_older_one_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Adds are answered when they are written, as without a journal."""
    machine = started(settings=WIDE)
    fill_shared(machine, 2, 40)
    roll(machine)
    assert machine.drop(1) is Code.OK

    async def write_only(self: SimFile, offset: int, buffers: Any) -> None:
        await self.write(offset, buffers)

    with monkeypatch.context() as patch:
        patch.setattr(SimFile, "write_synced", write_only)
        assert machine.add(2, (3,), b"newer", is_recovery=True) is Code.OK
        machine.compact()
        assert machine.serving.counters.compaction_bytes_freed > 0
        active = machine.disk.seen_names[machine.serving._keeper.active.entry.slot]
        active.unsynced = []  # all of it is lost
        machine.lose_power()
    machine.start()
    assert machine.read(2, 3) == (Code.OK, shared_entry(2, 3))


def test_tombstone_is_remembered_while_only_the_draft_has_records_of_its_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = started(settings=replace(WIDE, tombstone_keep_s=1))
    fill_shared(machine, 1, 40)
    assert machine.add(4, (0,)) is Code.OK
    roll(machine)
    for entry_id in range(40):
        assert machine.add(2, (entry_id,), bytes(300)) is Code.OK
        assert machine.add(3, (entry_id,), bytes(300)) is Code.OK
    roll(machine)
    for ledger_id in (3, 4):
        assert machine.drop(ledger_id) is Code.OK
    looked: list[int] = []
    into = Copying.into

    async def forgetting(self: Copying, draft: Draft) -> Any:
        outcome = await into(self, draft)
        state = machine.serving._states.get(1)
        if not looked and 1 in draft.file.index and state is not None and not state.is_dropped:
            looked.append(self.source.entry.file_id)
            codes: list[Code] = []
            for ledger_id in (1, FILLER):
                machine.serving.drop(ledger_id, codes.append)
            while len(codes) < 2:
                await machine.host.sleep(1)
            # This is as if the file had been found dead before its copying ended.
            keeper = machine.serving._keeper
            keeper.handover.owned.discard(self.source.entry.file_id)
            pass_days(machine, 1)
            await machine.serving.reclaim()
            await machine.serving.reclaim()
            assert self.source.entry.file_id not in keeper.finished
            return type(outcome).DEAD
        return outcome

    monkeypatch.setattr(Copying, "into", forgetting)
    machine.serving.compactor.request()
    machine.scheduler.run_until(lambda: not machine.serving.compactor._is_running)
    assert looked
    for _ in range(2):
        assert machine.read(1, 0)[0] is Code.NO_ENTRY
        assert machine.held(1) == []
        machine.lose_power()
        machine.start()


# Readings, the end of the storage, and the pace.


def compacted() -> Machine:
    machine = started(settings=WIDE)
    fill_shared(machine, 2, 40)
    roll(machine)
    assert machine.drop(1) is Code.OK
    machine.compact()
    return machine


def test_copies_without_a_manifest_are_in_no_later_one_while_they_are_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = started(settings=WIDE)
    fill_shared(machine, 2, 40)
    roll(machine)
    assert machine.drop(1) is Code.OK
    keeper, faults = machine.serving._keeper, machine.disk.faults
    withdraw, withdrawn = FileKeeper.withdraw, list[int]()

    def fill_up(_operation: int, _name: str) -> None:
        if keeper.handover.due is not None and not withdrawn:
            faults.capacity_bytes = 0

    async def commit_first(self: FileKeeper, copies: FinishedFile) -> None:
        faults.capacity_bytes = None
        withdrawn.append(copies.entry.file_id)
        await self.commit_soon()
        assert copies.entry.slot not in {file.slot for file in machine.manifest().files}
        await withdraw(self, copies)

    machine.disk.on_operation = fill_up
    monkeypatch.setattr(FileKeeper, "withdraw", commit_first)
    machine.compact()
    assert withdrawn
    for _ in range(2):
        for entry_id in range(40):
            assert machine.read(2, entry_id) == (Code.OK, shared_entry(2, entry_id))
        machine.lose_power()
        machine.start()


def test_reading_under_way_keeps_the_source_until_it_ends() -> None:
    machine = started(settings=COLD)
    for entry_id in range(60):
        assert machine.add(7, (entry_id,), b"%d" % entry_id * 1_000) is Code.OK
        assert machine.add(8, (entry_id,), bytes(800)) is Code.OK
    answers, let_go = begun_read(machine)
    assert machine.drop(8) is Code.OK
    machine.compact()
    for entry_id in range(60):
        assert machine.add(9, (entry_id,), bytes(2_000)) is Code.OK
    let_go()
    assert answers == [(Code.OK, entry(7, 1, b"1" * 1_000))]
    assert machine.serving.counters.damage == 0


def test_reading_that_meets_a_reused_slot_finds_its_entry_among_the_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = started(settings=COLD)
    for entry_id in range(60):
        assert machine.add(7, (entry_id,), b"%d" % entry_id * 1_000) is Code.OK
        assert machine.add(8, (entry_id,), bytes(800)) is Code.OK
    answers, let_go = found_read(machine, monkeypatch)
    assert machine.drop(8) is Code.OK
    machine.compact()
    for entry_id in range(60):
        assert machine.add(9, (entry_id,), bytes(2_000)) is Code.OK
    assert machine.serving.counters.files_recycled > 0
    let_go()
    assert answers == [(Code.OK, entry(7, 1, b"1" * 1_000))]
    assert machine.serving.counters.damage == 0


def test_stop_ends_a_compaction_and_removes_its_draft() -> None:
    machine = started(settings=replace(WIDE, compaction_bytes_per_s=10_000))
    fill_shared(machine, 2, 40)
    roll(machine)
    files = {file.file_id for file in machine.manifest().files if file.state is FileState.FINISHED}
    assert machine.drop(1) is Code.OK
    machine.serving.compactor.request()
    handover = machine.serving._keeper.handover
    machine.scheduler.run_until(lambda: bool(handover.draft and handover.draft.index.pieces))
    machine.stop()
    manifest = machine.manifest()
    assert files <= {file.file_id for file in manifest.files}
    named = {file.slot for file in manifest.files} | set(manifest.free_slots)
    assert machine.slots() == named
    machine.start()
    assert machine.read(2, 39) == (Code.OK, shared_entry(2, 39))


@pytest.mark.parametrize(("bytes_per_s", "seconds"), [(100_000, 2), (1_000_000, 0.2)])
def test_compaction_keeps_to_its_rate(bytes_per_s: int, seconds: float) -> None:
    machine = started(settings=replace(WIDE, compaction_bytes_per_s=bytes_per_s))
    fill_shared(machine, 2, 20)
    roll(machine)
    assert machine.drop(1) is Code.OK
    results: list[Any] = []
    machine.serving.compactor.on_compacted = results.append
    machine.compact()
    (result,) = results
    counters = machine.serving.counters
    assert result.bytes_copied == counters.compaction_bytes_copied > 0
    assert result.bytes_freed == counters.compaction_bytes_freed > 0
    assert result.duration_ms > 2_000 * result.bytes_copied / bytes_per_s * 0.9 > 0
    assert result.duration_ms >= 1_000 * seconds


@pytest.mark.parametrize(
    ("flag", "value", "seconds"),
    [
        ("is_writable", True, 1_000),
        ("is_writable", False, 0),
        ("is_disk_full", True, 0),
        ("is_set_read_only", True, 1_000),
    ],
)
def test_full_disk_is_compacted_without_pauses(flag: str, value: object, seconds: int) -> None:
    machine = started(settings=replace(WIDE, compaction_bytes_per_s=1_000))
    setattr(machine.serving._health, flag, value)
    pace = Pace(machine.serving._shared, 1_000, frees_room=True)
    began_ms = machine.host.monotonic_ms()
    machine.scheduler.run(pace.spend(1_000_100), machine.host)
    assert (machine.host.monotonic_ms() - began_ms) // 1_000 == seconds


def test_adds_that_come_during_a_compaction_are_answered_between_its_portions() -> None:
    machine = started(settings=replace(WIDE, compaction_bytes_per_s=0))
    fill_shared(machine, 2, 100)
    roll(machine)
    assert machine.drop(1) is Code.OK
    codes: list[Code] = []
    machine.serving.compactor.request()
    entry_id = 0
    while machine.serving.compactor._is_running:
        if len(codes) == entry_id:
            entry_id += 1
            machine.serving.add(add_request(50, (entry_id,)), codes.append)
        machine.scheduler.step()
    assert len(codes) > 5


def test_live_bytes_of_a_rebuilt_index_are_exact() -> None:
    """A rebuilt index has entries from before and from after the tombstone of a ledger."""
    machine = started(settings=WIDE)
    fill_shared(machine, 2, 20)
    assert machine.drop(1) is Code.OK
    assert machine.add(1, (0, 1), b"back", is_recovery=True) is Code.OK
    roll(machine)
    machine.stop()
    machine.start()
    exact = {file.file_id: file.live_bytes for file in machine.manifest().files}
    file = next(file for file in machine.manifest().files if file.state is FileState.FINISHED)
    machine.stop()
    machine.disk.flip_bit(file.slot, file.finish_offset + 300, 3)
    machine.start()
    assert machine.serving.counters.boot_rebuilt_indexes == 1
    assert {f.file_id: f.live_bytes for f in machine.manifest().files if f.live_bytes} == {
        file_id: size for file_id, size in exact.items() if size
    }


def test_copies_are_synced_before_more_than_eight_mebibytes_are_written() -> None:
    machine = started(settings=replace(WIDE, file_size_bytes=64 * MEBIBYTE))
    for entry_id in range(20):
        assert machine.add(7, (entry_id,), bytes([entry_id]) * MEBIBYTE) is Code.OK
        assert machine.add(8, (entry_id,), bytes(MEBIBYTE)) is Code.OK
    roll(machine)
    assert machine.drop(8) is Code.OK
    machine.compact()
    assert machine.serving.counters.compaction_bytes_copied > 20 * MEBIBYTE
    unsynced = machine.disk.counters.background_bytes_max
    assert UNSYNCED_BYTES_MAX - PORTION_SIZE_BYTES <= unsynced <= UNSYNCED_BYTES_MAX


@pytest.mark.parametrize("is_whole", [False, True])
@pytest.mark.parametrize(
    "when", ["before the end of the switch", "after the switch", "begun after the switch"]
)
def test_damage_found_during_a_switch_leaves_no_doubt_about_the_freed_file(
    when: str, monkeypatch: pytest.MonkeyPatch, *, is_whole: bool
) -> None:
    """A reading finds a damaged index while the MANIFEST without the file is written."""
    machine = started(settings=WIDE)
    fill_shared(machine, 2, 40)
    roll(machine)
    assert machine.drop(1) is Code.OK
    keeper, doubts = machine.serving._keeper, machine.serving._health.files_in_doubt
    rebuilds = machine.serving._reader.rebuilds
    sources: list[FinishedFile] = []
    rebuild = index_rebuilds.rebuild_index

    async def held(file: FinishedFile, shared: Any) -> bool:
        while when == "begun after the switch" and file.entry.file_id in keeper.finished:
            await machine.host.sleep(1)
        await rebuild(file, shared)
        while when == "after the switch" and file.entry.file_id in keeper.finished:
            await machine.host.sleep(1)
        return is_whole

    def find_damage(_operation: int, _name: str) -> None:
        due = keeper.handover.due
        if due is not None and due.sources and not sources:
            sources.extend(due.sources)
            rebuilds.on_damage(sources[0])

    monkeypatch.setattr(index_rebuilds, "rebuild_index", held)
    machine.disk.on_operation = find_damage
    machine.compact()
    machine.scheduler.run_for(1_000)
    assert sources
    assert sources[0].entry.file_id not in keeper.finished
    assert doubts == set()
    # If the rebuild ended before the file was freed, its lost record may not have been copied.
    is_lost = when == "before the end of the switch" and not is_whole
    assert machine.read(2, 99)[0] is (Code.IO_ERROR if is_lost else Code.NO_ENTRY)


@pytest.mark.parametrize("pace", [1, 2, 3])
@pytest.mark.parametrize("lead", range(8))
def test_file_that_is_freed_while_it_is_counted_again_is_not_found_any_more(
    lead: int, pace: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "UNITS_PER_TURN", 1)
    machine = started(settings=WIDE)
    fill_shared(machine, 4, 20)
    roll(machine)
    held = machine.serving._keeper.finished
    file = next(iter(held))
    counting = held.counting_again(file)
    for _ in range(lead):
        next(counting, None)
    removing = held.removing(file)
    steps = [counting, *[removing] * pace]
    while steps:
        steps = [step for step in steps if next(step, "ended") != "ended"]
        is_found = any(file in held.holding(ledger_id) for ledger_id in range(1, 100))
        assert not is_found or file.entry.file_id in held
    assert file.entry.file_id not in held
    assert [ledger_id for ledger_id in range(1, 100) if file in held.holding(ledger_id)] == []
    assert (len(file.live), file.live_bytes) == (0, 0)


def rivals_of_each_piece() -> Machine:
    """A file of which each second entry is stored again, in a file that stays."""
    machine = started(settings=WIDE)
    machine.disk.cold_part = 1.0
    for entry_id in range(0, 1_200, 2):
        assert machine.add(5, (entry_id,), b"old" * 30) is Code.OK
        assert machine.add(6, (entry_id,), b"six" * 30) is Code.OK
    roll(machine)
    for entry_id in range(0, 1_200, 4):
        assert machine.add(5, (entry_id, entry_id + 1), b"new" * 30, is_recovery=True) is Code.OK
    roll(machine)
    assert machine.drop(6) is Code.OK
    return machine


def test_indexes_of_other_files_are_read_once_in_the_background_and_count_for_the_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = rivals_of_each_piece()
    reads: list[tuple[str, int, Priority]] = []
    read = SimFile.read

    async def noted(
        self: SimFile, offset: int, size: int, priority: Priority = Priority.FOREGROUND
    ) -> bytes:
        reads.append((self.name, offset, priority))
        return await read(self, offset, size, priority)

    spent: list[int] = []
    spend = Pace.spend

    async def counted(self: Pace, size_bytes: int) -> None:
        spent.append(size_bytes)
        await spend(self, size_bytes)

    monkeypatch.setattr(SimFile, "read", noted)
    monkeypatch.setattr(SimFile, "read_now", lambda _self, _offset, _size: None)
    monkeypatch.setattr(Pace, "spend", counted)
    rival = [file for file in machine.serving._keeper.finished if 5 in file.live][-1]
    assert rival.head is not None
    machine.compact()
    of_rival = [offset for name, offset, _ in reads if name == rival.entry.slot]
    blocks = {rival.block_offset(number) for number in range(len(rival.head.keys))}
    assert blocks <= set(of_rival)
    assert len([offset for offset in of_rival if offset in blocks]) <= 3 * len(blocks)
    headers = {each[0] for each in reads if each[2] is Priority.FOREGROUND and each[1]}
    assert headers == set(), "clients would wait for compaction"
    assert spent.count(BLOCK_SIZE) >= len(blocks) + 2
    for entry_id in range(0, 1_200, 2):
        wanted = b"old" * 30 if entry_id % 4 else b"new" * 30
        assert machine.read(5, entry_id) == (Code.OK, entry(5, entry_id, wanted))


def test_compaction_goes_on_when_the_index_of_another_file_is_damaged() -> None:
    machine = rivals_of_each_piece()
    rival = [file for file in machine.serving._keeper.finished if 5 in file.live][-1]
    machine.disk.flip_bit(rival.entry.slot, rival.block_offset(1) + 50, 2)
    machine.compact()
    assert machine.serving.counters.compaction_sources_withdrawn == 0
    for entry_id in range(0, 1_200, 2):
        wanted = b"old" * 30 if entry_id % 4 else b"new" * 30
        code, data = machine.read(5, entry_id)
        assert (code, data) == (Code.OK, entry(5, entry_id, wanted)) or code is Code.IO_ERROR
    machine.scheduler.run_for(2_000)
    for entry_id in range(0, 1_200, 2):
        wanted = b"old" * 30 if entry_id % 4 else b"new" * 30
        assert machine.read(5, entry_id) == (Code.OK, entry(5, entry_id, wanted))


@pytest.mark.parametrize(
    ("again", "in_doubt", "copied"),
    [
        (range(30), False, 70),
        (range(70, 100), False, 70),
        (range(40, 50), False, 90),
        (range(30), True, 100),
    ],
)
def test_only_entries_without_a_newer_copy_in_a_sound_file_are_copied(
    again: range, copied: int, *, in_doubt: bool
) -> None:
    machine = started(settings=WIDE)
    for entry_id in range(100):
        assert machine.add(5, (entry_id,), b"old") is Code.OK
        assert machine.add(6, (entry_id,), b"six") is Code.OK
    roll(machine)
    for entry_id in again:
        assert machine.add(5, (entry_id,), b"new", is_recovery=True) is Code.OK
    roll(machine)
    keeper = machine.serving._keeper
    rival = [file for file in keeper.finished if 5 in file.live][-1]
    if in_doubt:
        machine.serving._health.files_in_doubt.add(rival.entry.file_id)
    assert machine.drop(6) is Code.OK
    machine.compact()
    (copies,) = (file for file in keeper.finished if file.entry.is_copies)
    total = copies.total_of(5)
    assert total is not None
    assert total.size_bytes == copied * len(entry(5, 0, b"old"))
    machine.serving._health.files_in_doubt.clear()
    for entry_id in range(100):
        wanted = b"new" if entry_id in again else b"old"
        assert machine.read(5, entry_id) == (Code.OK, entry(5, entry_id, wanted))
