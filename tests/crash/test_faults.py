"""Full disks, failing writes and rotten bits: refused or unknown, never wrong and never absent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bookie_server.core.manifest_codec import decode_manifest
from bookie_server.core.requests import StoredAdd
from bookie_server.errors import (
    DamagedDirectoryError,
    DirectoryLockedError,
    DiskFullError,
    FormatVersionError,
)
from bookie_server.ports import MetadataAnswer, Standing
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, encode_manifest, entry
from tests.fixtures.kinds import now
from tests.sim.disk import Content


def filled(machine: Machine, count: int, payload: bytes = bytes(3_000)) -> None:
    for number in range(count):
        assert machine.add(1, (number,), payload) is Code.OK


def test_full_disk_refuses_adds_and_takes_fences_and_recovery_adds_until_there_is_room() -> None:
    machine = Machine(settings=replace(SMALL, free_bytes_min=1 << 18))
    machine.start()
    filled(machine, 5)
    machine.disk.faults.capacity_bytes = machine.disk.used_bytes() + (1 << 18)
    changes = []
    machine.serving.on_state_change = lambda: changes.append(machine.serving.is_writable)
    number = 5
    while (code := machine.add(1, (number,), bytes(3_000))) is Code.OK:
        number += 1
        assert number < 60
        machine.scheduler.run_for(20)
    assert code is Code.READ_ONLY
    assert changes == [False]
    assert machine.fence(1) == (Code.OK, entry(1, number - 1, bytes(3_000)))
    assert machine.fence(2)[0].is_absent
    assert machine.add(1, (number,), bytes(500), is_recovery=True) is Code.OK
    assert machine.serving.failure is None
    for restart in (machine.lose_power, machine.stop, machine.crash):
        restart()
        machine.start()
        assert machine.read(1, number) == (Code.OK, entry(1, number, bytes(500)))
        assert machine.add(1, (0,)) is Code.FENCED
        assert machine.add(3, (0,)) is Code.READ_ONLY
    machine.disk.faults.capacity_bytes = None
    machine.scheduler.run_for(2 * SMALL.allocation_retry_ms)
    assert machine.serving.is_writable
    assert machine.add(3, (0,)) is Code.OK


def test_full_disk_refuses_control_records_before_the_last_file_overflows() -> None:
    machine = Machine()
    machine.start()
    machine.disk.faults.capacity_bytes = machine.disk.used_bytes() + 4_000
    machine.scheduler.run_for(10)
    answers = set()
    for number in range(200):
        answers.add(machine.add(1, (number,), bytes(3_000), is_recovery=True))
        if machine.serving.failure is not None:
            break
    assert answers == {Code.OK, Code.READ_ONLY}
    assert machine.serving.failure is None
    assert machine.fence(1)[0] is Code.OK


def test_recovery_adds_are_taken_again_once_the_disk_has_room() -> None:
    machine = Machine()
    machine.start()
    filled(machine, 3)
    machine.disk.faults.capacity_bytes = machine.disk.used_bytes() + 4_000
    number = 3
    while machine.add(1, (number,), bytes(3_000), is_recovery=True) is Code.OK:
        number += 1
        assert number < 200
    assert not now(machine.serving.is_writable)
    machine.disk.faults.capacity_bytes = None
    machine.scheduler.run_for(2 * SMALL.allocation_retry_ms)
    assert machine.serving.is_writable
    assert machine.add(1, (number,), bytes(3_000), is_recovery=True) is Code.OK
    assert machine.add(1, (number + 1,), bytes(3_000)) is Code.OK


def test_a_start_without_room_for_a_next_file_refuses_adds_from_its_first_moment() -> None:
    machine = Machine()
    machine.start()
    machine.stop()
    machine.disk.faults.capacity_bytes = machine.disk.used_bytes() + SMALL.file_size_bytes
    machine.start()
    assert not now(machine.serving.is_writable)
    assert machine.add(1, (0,)) is Code.READ_ONLY
    assert machine.add(1, (0,), is_recovery=True) is Code.OK
    machine.disk.faults.capacity_bytes = None
    machine.scheduler.run_for(2 * SMALL.allocation_retry_ms)
    assert now(machine.serving.is_writable)


def test_no_room_for_the_first_file_refuses_to_start() -> None:
    machine = Machine()
    machine.disk.faults.capacity_bytes = 10_000
    with pytest.raises(DiskFullError):
        machine.start()


@pytest.mark.parametrize("fault", ["sync_errors", "write_errors"])
def test_failed_group_is_never_acknowledged_and_ends_the_storage(fault: str) -> None:
    machine = Machine(3)
    machine.start()
    filled(machine, 3)
    machine.scheduler.run_for(200)
    setattr(machine.disk.faults, fault, 1)
    changes = []
    machine.serving.on_state_change = lambda: changes.append(machine.serving.failure)
    assert machine.add(1, (3,)) is Code.IO_ERROR
    assert changes[-1] is machine.serving.failure is not None
    assert not machine.serving.is_writable
    assert machine.add(1, (4,)) is Code.IO_ERROR
    assert machine.fence(1)[0] is Code.IO_ERROR
    assert machine.read(1, 1) == (Code.OK, entry(1, 1, bytes(3_000)))
    assert machine.read(1, 3) == (Code.IO_ERROR, None)
    assert machine.read(1, -1) == (Code.IO_ERROR, None)
    assert machine.read(9, 0) == (Code.IO_ERROR, None)
    assert machine.serving._health.in_flight_bytes == 0, "what failed is not under way"
    syncs = machine.disk.counters.syncs
    machine.stop()
    assert machine.disk.counters.syncs == syncs
    machine.lose_power()
    machine.start()
    for number in range(3):
        assert machine.read(1, number) == (Code.OK, entry(1, number, bytes(3_000)))


def test_read_error_is_unknown_and_passes() -> None:
    machine = Machine(1)
    machine.start()
    filled(machine, 30)
    machine.disk.faults.read_errors = 1
    seen = [machine.read(1, number)[0] for number in range(30)]
    assert set(seen) == {Code.OK, Code.IO_ERROR}
    assert seen.count(Code.IO_ERROR) == 1
    assert machine.serving.failure is None


def test_second_process_on_a_directory_is_refused() -> None:
    machine = Machine()
    machine.start()
    with pytest.raises(DirectoryLockedError):
        machine.scheduler.run(machine.opening(), machine.host)


# The entries that were lost at the boot.


def torn(machine: Machine) -> None:
    """Leave a torn last group: the power fails between its write and its sync."""
    for seed in range(50):
        machine.serving.add(*_unanswered(seed))
        machine.scheduler.run_until(lambda: any(c.unsynced for c in contents(machine)))
        machine.lose_power()
        machine.start()
        if machine.serving.counters.boot_torn_tails:
            return
    raise AssertionError("no write was torn")


def _unanswered(seed: int) -> tuple[StoredAdd, Callable[[Code], None]]:
    from tests.crash.machine import add_request

    return add_request(7, range(seed * 8, seed * 8 + 8), b"%d" % seed * 400), lambda _code: None


def contents(machine: Machine) -> list[Content]:
    return list(machine.disk.seen_names.values())


@pytest.mark.parametrize(
    ("standing", "answer"),
    [
        (Standing.OPEN_WITH_ME, Code.OK),
        (Standing.OPEN_WITHOUT_ME, Code.IO_ERROR),
        (Standing.NOT_WRITABLE, Code.FENCED),
        (Standing.UNKNOWN, Code.IO_ERROR),
    ],
)
def test_first_add_after_a_cut_tail_goes_through_the_metadata_check(
    standing: Standing, answer: Code
) -> None:
    machine = Machine(5, standing=standing)
    machine.start()
    assert machine.add(1, (0,)) is Code.OK
    assert machine.metadata.asked == []
    torn(machine)
    machine.crash()
    machine.start()  # still needed after another start
    assert machine.add(1, (1,), is_recovery=True) is Code.OK
    assert machine.add(1, (2,)) is answer
    assert machine.add(1, (2,)) is answer
    times = 2 if answer is Code.IO_ERROR else 1
    assert machine.metadata.asked.count(1) == times
    if answer is Code.FENCED:
        machine.lose_power()
        machine.start()
        assert machine.add(1, (2,)) is Code.FENCED
    if standing is Standing.OPEN_WITHOUT_ME:
        # Nothing is stored: when the metadata names this bookie again, it accepts adds.
        assert not machine.serving.is_fenced(1)
        machine.metadata.standing = Standing.OPEN_WITH_ME
        assert machine.add(1, (2,)) is Code.OK


def test_fence_that_the_metadata_check_makes_is_durable_before_an_add_hears_of_it() -> None:
    machine = Machine(5, standing=Standing.NOT_WRITABLE)
    machine.start()
    torn(machine)
    assert machine.add(1, (0,)) is Code.FENCED
    machine.lose_power()
    machine.metadata.standing = Standing.UNKNOWN
    machine.start()
    assert machine.serving.is_fenced(1)
    assert machine.add(1, (0,)) is Code.FENCED


def test_adds_that_wait_for_the_metadata_check_are_answered_within_its_time() -> None:
    machine = Machine(5)
    machine.start()
    torn(machine)

    async def never(ledger_id: int) -> MetadataAnswer:
        machine.metadata.asked.append(ledger_id)
        return await machine.host.future()

    machine.metadata.check = never
    assert machine.add(1, (0,)) is Code.IO_ERROR
    assert machine.serving._health.in_flight_bytes == 0
    # Fences and recovery adds did not wait.
    assert machine.add(2, (0,), is_recovery=True) is Code.OK
    assert machine.fence(3)[0].is_absent


# Rot.


def small_directory(*, is_clean: bool) -> tuple[Machine, dict[tuple[int, int], tuple[bytes, ...]]]:
    machine = Machine(11, settings=replace(SMALL, recent_bytes_max=1))
    machine.start()
    stored: dict[tuple[int, int], tuple[bytes, ...]] = {}
    for ledger_id, ids in ((1, range(3)), (2, (0, 2)), (1, (1,))):
        payload = b"%d-%d" % (ledger_id, len(stored))
        assert machine.add(ledger_id, ids, payload) is Code.OK
        for i in ids:
            stored[ledger_id, i] = (*stored.get((ledger_id, i), ()), entry(ledger_id, i, payload))
    assert machine.fence(5)[0].is_absent
    machine.scheduler.run_for(200)  # the watermark proves that all of it was synced
    (machine.stop if is_clean else machine.crash)()
    return machine, stored


def check_never_wrong_and_never_absent(
    machine: Machine, stored: dict[tuple[int, int], tuple[bytes, ...]]
) -> bool:
    """Check all answers, and return whether everything was readable."""
    is_whole = True
    for (ledger_id, entry_id), data in stored.items():
        code, got = machine.read(ledger_id, entry_id)
        assert code in (Code.OK, Code.IO_ERROR), (ledger_id, entry_id, code)
        # If the newest copy is damaged, an older copy may be returned: it was this entry once.
        assert code is Code.IO_ERROR or got in data
        is_whole = is_whole and code is Code.OK
    batch = machine.read_batch(1, 0)
    assert batch[0] in (Code.OK, Code.IO_ERROR)
    assert all(data in stored[1, number] for number, data in enumerate(batch[1]))
    assert machine.read(1, -1)[0] in (Code.OK, Code.IO_ERROR)
    return is_whole


@pytest.mark.parametrize("is_clean", [True, False])
def test_any_damaged_byte_of_an_entry_log_file_is_unknown_and_never_absent(is_clean: bool) -> None:
    sample, _ = small_directory(is_clean=is_clean)
    name = "slot-00000001"
    size = len(sample.disk.seen_names[name].seen)
    records_end = 8192 + 6 * 512
    offsets = [*range(8192, min(records_end, size), 3), *range(records_end, size, 211), 0, 9, 4100]
    unreadable = 0
    for offset in offsets:
        machine, stored = small_directory(is_clean=is_clean)
        machine.disk.flip_bit(name, offset, offset % 8)
        machine.start()
        unreadable += not check_never_wrong_and_never_absent(machine, stored)
        code = machine.add(5, (0,))
        is_lost = machine.serving.counters.boot_damaged_records
        assert code is Code.FENCED or is_lost, offset
        machine.crash()
        machine.start()
        check_never_wrong_and_never_absent(machine, stored)
    assert unreadable > 10


@pytest.mark.parametrize("is_clean", [True, False])
def test_truncated_entry_log_file_is_unknown_and_never_absent(is_clean: bool) -> None:
    for size in (0, 100, 8192, 8300, 8704, 9300, 10_000, 12_000):
        machine, stored = small_directory(is_clean=is_clean)
        content = machine.disk.seen_names["slot-00000001"]
        del content.seen[size:], content.durable[size:]
        content.allocated = 0
        machine.start()
        check_never_wrong_and_never_absent(machine, stored)


@pytest.mark.parametrize("is_clean", [True, False])
def test_missing_entry_log_file_is_unknown_and_stays_so(is_clean: bool) -> None:
    machine, stored = small_directory(is_clean=is_clean)
    machine.disk.seen_names.pop("slot-00000001")
    machine.disk.durable_names.pop("slot-00000001")
    for _ in range(2):
        machine.start()
        for ledger_id, entry_id in stored:
            assert machine.read(ledger_id, entry_id) == (Code.IO_ERROR, None)
        machine.stop()


def test_damaged_index_is_rebuilt_from_its_records() -> None:
    machine = Machine(2, settings=replace(SMALL, recent_bytes_max=1))
    machine.start()
    filled(machine, 60)
    machine.stop()
    for name in [n for n in machine.disk.seen_names if n.startswith("slot-")]:
        size = len(machine.disk.seen_names[name].seen)
        machine.disk.flip_bit(name, max(0, size - 16_000), 3)
    machine.start()
    codes = {machine.read(1, 30)[0]}
    assert codes == {Code.IO_ERROR}
    machine.scheduler.run_for(500)
    for number in range(60):
        machine.read(1, number)
        machine.scheduler.run_for(50)
    assert [machine.read(1, n)[0] for n in range(60)] == [Code.OK] * 60
    assert machine.read(1, 60)[0] is Code.NO_ENTRY
    assert machine.serving.counters.boot_rebuilt_indexes >= 2


def test_any_damaged_byte_of_manifest_or_ledger_states_refuses_to_start() -> None:
    sample, _ = small_directory(is_clean=True)
    for name in sorted(n for n in sample.disk.seen_names if not n.startswith("slot-")):
        if name == "UNCLEAN":
            continue
        manifest = bytes(sample.disk.seen_names[name].seen)
        for offset in range(len(manifest)):
            if name == "MANIFEST":
                data = bytearray(manifest)
                data[offset] ^= 1 << offset % 8
                with pytest.raises((DamagedDirectoryError, FormatVersionError)):
                    decode_manifest(bytes(data))
            if offset % 29:
                continue
            machine, _ = small_directory(is_clean=True)
            machine.disk.flip_bit(name, offset, offset % 8)
            with pytest.raises((DamagedDirectoryError, FormatVersionError)):
                machine.start()


def test_missing_manifest_refuses_to_start_and_leaves_the_files_alone() -> None:
    machine, _ = small_directory(is_clean=True)
    machine.disk.seen_names.pop("MANIFEST")
    before = sorted(machine.disk.seen_names)
    with pytest.raises(DamagedDirectoryError, match="MANIFEST"):
        machine.start()
    assert sorted(machine.disk.seen_names) == before


def test_emptied_directory_refuses_to_start_and_stays_empty() -> None:
    machine, _ = small_directory(is_clean=True)
    machine.disk.wipe()
    with pytest.raises(DamagedDirectoryError, match="another bookie_id"):
        machine.start()
    assert machine.disk.seen_names == {}


def test_full_disk_never_gives_a_file_away_that_may_have_held_records() -> None:
    """The last open file lost the header of its only record: it is not the unused spare."""
    machine = Machine(11)
    machine.start()
    assert machine.add(1, (0,)) is Code.OK
    machine.scheduler.run_for(200)  # the watermark proves that the entry was synced
    entry_log, spare = machine.manifest().files
    machine.crash()
    # As after a roll: the damaged file is the last one, and nothing else has room.
    for name in (entry_log.slot, spare.slot):
        content = machine.disk.seen_names[name]
        records_end = len(content.seen)
        for copy in (content.seen, content.durable):
            copy[8192 : min(8704, records_end)] = bytes(max(0, min(512, records_end - 8192)))
    manifest = machine.manifest()
    data = encode_manifest(replace(manifest, files=(replace(entry_log, first_sequence=1),)))
    for names in (machine.disk.seen_names, machine.disk.durable_names):
        names["MANIFEST"].seen[:] = names["MANIFEST"].durable[:] = data
    machine.disk.faults.capacity_bytes = machine.disk.used_bytes() + 4_096
    for _ in range(2):
        machine.start()
        assert machine.read(1, 0) == (Code.IO_ERROR, None)
        machine.crash()


def test_lac_that_a_damaged_entry_carried_is_unknown_until_a_larger_one_comes() -> None:
    machine = Machine()
    machine.start()
    filled(machine, 6, bytes(300))
    machine.scheduler.run_for(200)
    piece = machine.serving._keeper.active.index.find(1, 5)
    assert piece is not None
    run = piece.target
    assert run.identity is not None
    machine.disk.flip_bit(run.identity.name, run.offset + run.header_size + 100, 1)
    for restart in (machine.crash, machine.stop, machine.stop):
        restart()
        machine.start()
        assert machine.ask(lambda done: machine.serving.read_lac(1, done)) == (Code.IO_ERROR, -1)
    assert machine.read(1, 4) == (Code.OK, entry(1, 4, bytes(300)))
    assert machine.read(1, 5) == (Code.IO_ERROR, None)
    assert machine.add(1, (6,), lac=5) is Code.OK
    assert machine.ask(lambda done: machine.serving.read_lac(1, done)) == (Code.OK, 5)


@pytest.mark.parametrize("is_serving", [False, True])
def test_free_slot_that_somebody_removed_is_created_again(*, is_serving: bool) -> None:
    machine = Machine(settings=replace(SMALL, pool_files_max=3))
    machine.start()
    for number in range(80):
        assert machine.add(1, (number,), bytes(3_000)) is Code.OK
    machine.scheduler.run_for(500)
    assert machine.drop(1) is Code.OK
    machine.reclaim()
    machine.scheduler.run_for(500)
    free = machine.manifest().free_slots
    assert len(free) > 1
    if not is_serving:
        machine.stop()
        free = machine.manifest().free_slots
    for slot in free:
        machine.disk.set_name(slot, None)
    machine.disk.sync_names()
    if not is_serving:
        machine.start()
    for number in range(80):
        assert machine.add(2, (number,), bytes(3_000)) is Code.OK
    machine.compact()
    assert machine.serving.failure is None
    assert machine.read(2, 79)[0] is Code.OK
