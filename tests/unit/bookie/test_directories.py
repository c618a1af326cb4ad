"""A storage of several directories: where ledgers are, and what a failed directory changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from bookie_server.core.bookie_run import BookieWriteMode
from bookie_server.core.doubt import Doubt
from bookie_server.core.ledger_state import HeldLedger
from bookie_server.core.requests import StoredBatchRead
from bookie_server.core.settings import ModeSettings
from bookie_server.errors import (
    JournalFailedError,
    SharedLedgerError,
    StorageError,
    UnusableDirectoryError,
)
from bookie_server.ports import Standing
from bookie_server.storage.directories.choice import chosen_home
from bookie_server.storage.directories.losses import joined_doubt
from ledgerlog_spark.model import Code
from tests.crash.machine import KEY, SMALL, add_request
from tests.crash.several import Several

LEDGERS = range(30)
UNKNOWN = 1_000


def filled(**options: Any) -> Several:
    """A bookie with ledgers of one entry each in all its directories."""
    several = Several(**options)
    several.start()
    for ledger_id in LEDGERS:
        assert several.front.add(ledger_id, [0]) is Code.OK
    return several


def homes(several: Several) -> dict[int, int | None]:
    return {ledger_id: several.home_of(ledger_id) for ledger_id in LEDGERS}


def of(several: Several, number: int) -> list[int]:
    """The ledgers of a directory."""
    return [ledger_id for ledger_id, home in homes(several).items() if home == number]


def new_in(several: Several, number: int, first: int = UNKNOWN) -> int:
    """A ledger that does not exist, and that would go to a directory."""
    free = [each.disk.space.free for each in several.serving.directories]
    return next(i for i in range(first, first + 1_000) if chosen_home(i, free) == number)


def can_write(several: Several) -> bool:
    return several.serving.is_writable


# The choice.


def test_a_directory_gets_a_part_of_the_ledgers_that_fits_its_free_bytes() -> None:
    even = Counter(chosen_home(ledger_id, [500, 500]) for ledger_id in range(10_000))
    assert abs(even[0] - 5_000) < 200
    uneven = Counter(chosen_home(ledger_id, [900, 0, 300, None]) for ledger_id in range(10_000))
    assert abs(uneven[0] - 7_500) < 200
    assert abs(uneven[2] - 2_500) < 200
    assert uneven[3] == 0
    assert chosen_home(7, [900, 0, 300]) == chosen_home(7, [900, 0, 300])


def test_a_directory_without_free_bytes_is_chosen_if_only_it_accepts_the_record() -> None:
    assert {chosen_home(ledger_id, [None, 0]) for ledger_id in range(100)} == {1}
    assert chosen_home(1, [None, None]) is None


def test_ledgers_are_spread_and_stay_where_they_are() -> None:
    several = filled(count=3)
    before = homes(several)
    assert set(before.values()) == {0, 1, 2}
    for way in ("stop", "crash", "lose_power"):
        several.end(way)
        several.start()
        assert homes(several) == before
        for ledger_id in LEDGERS:
            assert several.front.read(ledger_id, 0)[0] is Code.OK
            assert several.front.add(ledger_id, [1]) is Code.OK
        assert homes(several) == before


@pytest.mark.parametrize("kind", ["add", "recovery add", "fence", "batch with a fence", "LAC"])
def test_each_first_record_chooses_a_directory(kind: str) -> None:
    several = filled()
    for number in (0, 1):
        ledger_id = new_in(several, number)
        if kind == "fence":
            assert several.front.fence(ledger_id)[0].is_absent
        elif kind == "LAC":
            assert several.write_lac(ledger_id) is Code.OK
        elif kind == "batch with a fence":
            assert fence_by_batch(several, ledger_id).is_absent
        else:
            is_recovery = kind == "recovery add"
            assert several.front.add(ledger_id, [0], is_recovery=is_recovery) is Code.OK
        assert several.home_of(ledger_id) == number
        assert several.serving.is_fenced(ledger_id) == ("fence" in kind)


def fence_by_batch(several: Several, ledger_id: int) -> Code:
    request = StoredBatchRead(ledger_id, 0, 10, 1 << 20, fence_key=KEY)
    return several.front.ask(lambda done: several.serving.read_batch(request, done))[0]


def test_a_full_directory_gets_no_new_ledger_and_keeps_its_own() -> None:
    several = filled()
    several.serving.directories[0]._health.is_disk_full = True
    assert can_write(several), "the other directory accepts adds"
    assert several.front.add(of(several, 0)[0], [1]) is Code.READ_ONLY
    for ledger_id in range(100, 120):
        assert several.front.add(ledger_id, [0]) is Code.OK
        assert several.home_of(ledger_id) == 1
    # Recovery adds have room in the full directory.
    ledger_id = new_in(several, 0)
    assert several.front.add(ledger_id, [0], is_recovery=True) is Code.OK
    assert several.home_of(ledger_id) == 0
    several.serving.directories[1]._health.is_disk_full = True
    assert not can_write(several)
    assert several.front.add(new_in(several, 1), [0]) is Code.READ_ONLY
    several.serving.directories[0]._health.is_disk_full = False
    several.serving.directories[1]._health.is_disk_full = False


def test_a_second_record_goes_to_the_directory_in_which_the_first_one_waits() -> None:
    """Meanwhile, the free bytes change, so the choice would differ."""
    several = filled()
    several.serving.directories[0]._health.check_epoch = 1
    ledger_id = new_in(several, 0)
    codes: list[Code] = []
    several.serving.add(add_request(ledger_id, [0]), codes.append)
    assert several.home_of(ledger_id) is None, "the add waits for the metadata"
    space = several.serving.directories[0].disk.space
    several.serving.directories[0].disk.space = replace(space, free=0)
    assert new_in(several, 1, ledger_id) == ledger_id, "the choice would differ"
    several.serving.add(add_request(ledger_id, [1]), codes.append)
    assert several.front.add(ledger_id, [2], is_recovery=True) is Code.OK
    several.scheduler.run_until(lambda: len(codes) == 2)
    assert codes == [Code.OK, Code.OK]
    assert several.home_of(ledger_id) == 0
    assert not several.serving.directories[1].is_known(ledger_id)


def test_a_choice_is_forgotten_if_the_record_was_refused() -> None:
    several = filled()
    for directory in several.serving.directories:
        directory._health.check_epoch = 1
    several.front.metadata.standing = Standing.OPEN_WITHOUT_ME
    ledger_id = new_in(several, 0)
    assert several.front.add(ledger_id, [0]) is Code.IO_ERROR
    assert several.home_of(ledger_id) is None
    several.front.metadata.standing = Standing.OPEN_WITH_ME
    several.serving.directories[0].disk.space = replace(
        several.serving.directories[0].disk.space, free=0
    )
    assert several.front.add(ledger_id, [0]) is Code.OK
    assert several.home_of(ledger_id) == 1


def test_adds_that_arrive_together_go_to_one_directory() -> None:
    several = filled()
    ledger_id, codes = new_in(several, 1), list[Code]()
    assert several.serving.add_together(add_request(ledger_id, [0, 1]), codes.append)
    assert several.serving.add_together(add_request(ledger_id, [2, 3]), codes.append)
    assert not several.serving.add_together(add_request(ledger_id, [0]), codes.append)
    several.scheduler.run_until(lambda: len(codes) == 2)
    assert several.home_of(ledger_id) == 1


def test_a_watch_of_an_unknown_ledger_sees_its_first_lac() -> None:
    several = filled()
    for number in (0, 1):
        ledger_id, seen = new_in(several, number), list[int]()
        cancel = several.serving.watch_lac(ledger_id, seen.append)
        assert several.write_lac(ledger_id, 4) is Code.OK
        assert seen == [4]
        several.serving.announce_lac(ledger_id, 5, KEY)
        cancel()
        several.serving.announce_lac(ledger_id, 6, KEY)
        assert seen == [4, 5]
        assert several.read_lac(ledger_id) is Code.OK


# Fences that another directory has lost or forgotten.


def test_the_first_add_is_checked_if_another_directory_forgot_the_ledger() -> None:
    several = filled(settings=replace(SMALL, tombstone_keep_s=1))
    ledger_id = of(several, 0)[-1]
    for each in of(several, 0):
        assert several.front.drop(each) is Code.OK
    several.end("stop")
    several.start()
    several.scheduler.run_for(5_000)
    several.front.reclaim()
    assert several.home_of(ledger_id) is None, "it is forgotten"
    several.serving.directories[0]._health.is_disk_full = True
    several.front.metadata.standing = Standing.NOT_WRITABLE
    assert several.front.add(ledger_id, [1]) is Code.FENCED
    assert several.home_of(ledger_id) == 1
    assert several.front.metadata.asked == [ledger_id]


def test_the_first_add_is_checked_if_another_directory_may_have_lost_the_fence() -> None:
    several = filled()
    several.serving.directories[0]._health.check_epoch = 5
    several.front.metadata.standing = Standing.NOT_WRITABLE
    assert several.front.add(new_in(several, 1), [0]) is Code.FENCED
    assert several.front.add(of(several, 1)[0], [1]) is Code.FENCED, "it is checked too"


# A directory that fails.


def test_the_other_directories_serve_after_a_failure_and_refuse_regular_adds() -> None:
    several = filled()
    changes: list[bool] = []
    several.serving.on_state_change = lambda: changes.append(several.serving.is_writable)
    lost, kept = of(several, 1), of(several, 0)
    several.fail(1)
    assert several.serving.failure is None, "the bookie does not end"
    assert changes[-1] is False
    assert several.serving.has_room
    for ledger_id in kept:
        assert several.front.read(ledger_id, 0)[0] is Code.OK
        assert several.front.read(ledger_id, 1)[0] is Code.NO_ENTRY
        assert several.front.add(ledger_id, [1]) is Code.READ_ONLY
        assert several.front.add(ledger_id, [1], is_recovery=True) is Code.OK
        assert several.front.fence(ledger_id)[0] is Code.OK
        assert several.front.drop(ledger_id) is Code.OK
    for ledger_id in lost:
        assert several.front.read(ledger_id, 0)[0] in (Code.OK, Code.IO_ERROR)
        assert several.front.read(ledger_id, 1)[0] is Code.IO_ERROR
        assert several.front.fence(ledger_id)[0] is Code.IO_ERROR
        assert several.front.add(ledger_id, [1], is_recovery=True) is Code.IO_ERROR
        assert several.front.add(ledger_id, [1]) is Code.IO_ERROR
    assert not set(lost) & set(several.front.droppable())
    several.front.reclaim()
    several.end("stop")


def test_no_unknown_ledger_is_denied_after_a_failure() -> None:
    for number in (0, 1):
        several = filled()
        assert set(several.reads_of(UNKNOWN).values()) == {Code.NO_LEDGER}
        several.fail(number)
        assert set(several.reads_of(UNKNOWN).values()) == {Code.IO_ERROR}
        assert several.front.fence(UNKNOWN)[0] is Code.IO_ERROR
        assert several.home_of(UNKNOWN) == 1 - number


def test_recovery_adds_of_a_new_ledger_go_to_a_directory_that_works() -> None:
    several = filled()
    several.fail(0)
    for ledger_id in range(100, 120):
        assert several.front.add(ledger_id, [0], is_recovery=True) is Code.OK
        assert several.home_of(ledger_id) == 1
    assert several.front.add(UNKNOWN, [0]) is Code.READ_ONLY, "nothing is stored"


def test_an_administrator_cannot_make_a_bookie_with_a_failed_directory_writable() -> None:
    several = filled()
    several.serving.set_read_only(is_read_only=True)
    assert several.front.add(of(several, 0)[0], [1]) is Code.READ_ONLY
    several.serving.set_read_only(is_read_only=False)
    assert several.front.add(of(several, 0)[0], [1]) is Code.OK
    several.fail(1)
    several.serving.set_read_only(is_read_only=False)
    assert not several.serving.is_writable
    assert several.front.add(of(several, 0)[0], [2]) is Code.READ_ONLY


def test_a_bookie_fails_when_all_its_directories_have_failed() -> None:
    several = filled()
    several.fail(0)
    several.fail(1)
    assert several.serving.failure is not None
    assert several.serving.doubt == Doubt()
    several.end("stop")
    several.start()
    assert {several.front.read(ledger_id, 0)[0] for ledger_id in LEDGERS} == {Code.OK}


def test_a_failed_journal_takes_only_its_directory() -> None:
    """After the stop, the next start needs the journal of the other directory only."""
    mode = ModeSettings(BookieWriteMode.JOURNAL, "/journal", journal_files=2)
    several = filled(settings=replace(SMALL, mode_settings=mode))
    several.machines[1].journal_disk.faults.write_errors = 1
    ledger_id, kept = of(several, 1)[0], of(several, 0)[0]
    assert several.write_lac(ledger_id) is Code.IO_ERROR
    assert isinstance(several.serving.directories[1].failure, JournalFailedError)
    assert several.serving.failure is None
    assert several.front.add(kept, [1], is_recovery=True) is Code.OK
    several.end("stop")
    several.machines[1].journal_disk.wipe()
    for machine in several.machines:
        machine.settings = SMALL
    several.start()
    assert {several.front.read(each, 0)[0] for each in LEDGERS} == {Code.OK}
    assert several.front.read(kept, 1)[0] is Code.OK
    assert several.epochs() == [0, 0]


def test_a_directory_that_failed_serves_again_after_a_start() -> None:
    several = filled()
    several.fail(1)
    several.end("stop")
    several.start()
    assert several.serving.is_writable
    assert {several.front.read(ledger_id, 0)[0] for ledger_id in LEDGERS} == {Code.OK}
    assert several.front.read(UNKNOWN, 0)[0] is Code.NO_LEDGER


# Starts.


def test_a_damaged_directory_is_named_with_the_command_that_removes_it() -> None:
    several = filled()
    several.end("stop")
    machine = several.machines[1]
    content = machine.disk.seen_names[machine.manifest().state_file]
    content.seen[0] ^= 1
    with pytest.raises(UnusableDirectoryError, match="--without-directory /data1"):
        several.start()
    assert several.machines[0].disk.holder is None, "the other directory is closed"


def test_a_ledger_in_two_directories_is_refused() -> None:
    several = filled()
    ledger_id = of(several, 0)[0]
    several.serving.directories[1].add(add_request(ledger_id, [7]), lambda _: None)
    several.scheduler.run_for(100)
    several.end("stop")
    with pytest.raises(SharedLedgerError, match=f"both have ledger {ledger_id}"):
        several.start()


@pytest.mark.parametrize("is_released", [False, True])
@pytest.mark.parametrize("way", ["crash", "lose_power"])
def test_a_tombstone_that_comes_back_after_it_was_forgotten_is_no_home(
    monkeypatch: pytest.MonkeyPatch, way: str, *, is_released: bool
) -> None:
    """The replay of the file with its record brings the tombstone back, also in limbo."""
    if is_released:
        bury = HeldLedger.bury
        monkeypatch.setattr(HeldLedger, "bury", lambda *args, **_: bury(*args, is_release=True))
    several = filled(settings=replace(SMALL, tombstone_keep_s=1))
    ledger_id = of(several, 0)[-1]
    several.end("stop")
    several.start()
    for each in of(several, 0):
        assert several.front.drop(each) is Code.OK
    several.scheduler.run_for(5_000)
    several.front.reclaim()  # frees the file of the entries
    several.front.reclaim()
    assert several.home_of(ledger_id) is None, "it is forgotten"
    several.serving.directories[0]._health.is_disk_full = True
    assert several.front.add(ledger_id, [7]) is Code.OK
    assert several.home_of(ledger_id) == 1
    several.end(way)
    several.loss = "a test" if is_released else ""
    several.start()
    assert several.home_of(ledger_id) == 1
    assert several.front.read(ledger_id, 7)[0] is Code.OK


def forget(several: Several, *, with_lac: bool = False, others: int = 0) -> int:
    """Forget all ledgers of directory 0, and return one of them, which goes to directory 1 next.

    The last record of the ledger, a tombstone or a LAC, is in a file that the next start replays.
    Afterwards, `others` ledgers are in finished files of directory 0.
    """
    ledgers = of(several, 0)
    several.end("stop")
    several.start()
    for number in range(others):
        assert several.front.add(new_in(several, 0, UNKNOWN * (number + 1)), [0]) is Code.OK
    several.end("stop")
    several.start()
    for each in ledgers:
        assert several.front.drop(each) is Code.OK
    if with_lac:
        several.end("stop")
        several.start()
        assert several.write_lac(ledgers[-1]) is Code.OK
    several.scheduler.run_for(5_000)
    several.front.reclaim()  # frees the file of the entries
    several.front.reclaim()
    assert several.home_of(ledgers[-1]) is None, "it is forgotten"
    several.serving.directories[0]._health.is_disk_full = True
    return ledgers[-1]


@pytest.mark.parametrize("with_lac", [False, True])
@pytest.mark.parametrize("has_missing_file", [False, True])
@pytest.mark.parametrize("way", ["crash", "lose_power"])
def test_a_replayed_record_of_a_forgotten_ledger_makes_no_home(
    way: str, *, with_lac: bool, has_missing_file: bool
) -> None:
    """A missing file may have any ledger's records, so nothing more is forgotten."""
    several = filled(settings=replace(SMALL, tombstone_keep_s=1))
    ledger_id = forget(several, with_lac=with_lac, others=3)
    assert several.front.add(ledger_id, [7]) is Code.OK
    assert several.home_of(ledger_id) == 1
    several.end(way)
    if has_missing_file:
        machine = several.machines[0]
        (name, *_) = [f.slot for f in machine.manifest().files if f.data_end]
        del machine.disk.seen_names[name], machine.disk.durable_names[name]
    several.start()
    assert several.home_of(ledger_id) == 1
    assert several.front.read(ledger_id, 7)[0] is Code.OK


def test_a_forgotten_ledger_gets_another_home_only_when_it_is_durably_forgotten() -> None:
    """Otherwise, the state would be in two MANIFESTs after a crash."""
    several = filled(settings=replace(SMALL, tombstone_keep_s=1))
    ledger_id = of(several, 0)[-1]
    several.end("stop")
    several.start()
    for each in of(several, 0):
        assert several.front.drop(each) is Code.OK
    several.scheduler.run_for(5_000)
    directory, disk = several.serving.directories[0], several.machines[0].disk
    several.front.reclaim()
    disk.faults.capacity_bytes = disk.used_bytes()
    several.front.reclaim()
    disk.faults.capacity_bytes = None
    assert ledger_id not in directory.ledger_ids
    assert several.serving._homes.of(ledger_id) is directory, "the MANIFEST has its state"
    several.front.reclaim()
    assert several.serving._homes.of(ledger_id) is None


# Doubt.


def test_the_doubt_of_directories_is_the_worst_of_all() -> None:
    assert joined_doubt([Doubt(3, 3, 9), Doubt(3, 2, 8)]) == Doubt(3, 2, 8)
    assert joined_doubt([Doubt(3, 2, 9), Doubt(2, 2, 8)]) == Doubt(3, 2, 0)
    assert joined_doubt([Doubt(3, 2, 9), Doubt(3, 2)]) == Doubt(3, 2, 0)


def test_a_loss_at_the_start_of_one_directory_is_a_doubt_of_all() -> None:
    several = filled(count=3)
    several.end("stop")
    disk = several.machines[1].disk
    slots = sorted(name for name in disk.seen_names if name.startswith("slot-"))
    finished = [f.slot for f in several.machines[1].manifest().files if f.data_end]
    assert finished
    for name in finished:
        assert name in slots
        del disk.seen_names[name], disk.durable_names[name]
    several.start()
    assert several.epochs() == [1, 1, 1]
    assert set(several.reads_of(UNKNOWN).values()) == {Code.IO_ERROR}
    # A state that is made now is in limbo, in every directory.
    for number in (0, 1, 2):
        ledger_id = new_in(several, number)
        assert several.front.add(ledger_id, [0], is_recovery=True) is Code.OK
        assert several.home_of(ledger_id) == number
        assert several.front.read(ledger_id, 1)[0] is Code.IO_ERROR
    # The loss was stored in all directories before a request was served.
    several.end("lose_power")
    several.start()
    assert several.epochs() == [1, 1, 1]


def test_a_start_that_was_cut_raises_the_doubt_of_the_other_directories_next_time() -> None:
    several = filled()
    several.run(several.serving.directories[1].raise_doubt())
    several.end("crash")
    assert sorted(several.epochs()) in ([0, 1], [1, 1])
    several.start()
    assert several.epochs() == [1, 1]


def test_a_loss_while_serving_is_a_doubt_of_all() -> None:
    several = filled()
    raised: list[int] = []
    several.serving.losses.on_raised = lambda: raised.append(several.serving.doubt.epoch)
    several.run(several.serving.directories[1].raise_doubt())
    several.scheduler.run_until(lambda: raised == [1])
    assert several.epochs() == [1, 1]
    several.run(several.serving.raise_doubt())
    assert several.serving.doubt == Doubt(2)
    assert several.epochs() == [2, 2]


def test_a_removed_directory_is_a_doubt_of_all_others() -> None:
    several = filled(count=3)
    lost, kept = of(several, 1), of(several, 0)
    several.end("stop")
    several.used, several.loss = [0, 2], "a directory was removed"
    several.start()
    assert several.epochs() == [1, 1]
    for ledger_id in (*lost, UNKNOWN):
        assert set(several.reads_of(ledger_id).values()) == {Code.IO_ERROR}
    assert several.front.read(kept[0], 0)[0] is Code.OK
    assert several.front.read(kept[0], 1)[0] is Code.IO_ERROR


def stored_is(expected: bytes) -> Callable[[int, bytes], bool]:
    return lambda _entry_id, stored: stored == expected


def test_a_repair_ends_the_doubt_of_all_directories() -> None:
    several = filled()
    serving = several.serving
    several.run(serving.raise_doubt())
    several.run(serving.date_doubt(1, 70))
    assert serving.doubt == Doubt(1, 0, 70)
    assert serving.limbo_ledgers() == list(LEDGERS)
    assert several.front.read(UNKNOWN, 0)[0] is Code.IO_ERROR
    assert several.front.read(of(several, 1)[0], 1)[0] is Code.IO_ERROR
    assert serving.take_asked() == [UNKNOWN, of(several, 1)[0]]
    for number in (0, 1):
        ledger_id = of(several, number)[0]
        stored = bytes(add_request(ledger_id, [0]).body)
        assert several.run(serving.verify_held(ledger_id, [0, 1], stored_is(stored))) == {0}
        assert several.run(serving.verify_held(ledger_id, [0, 1], stored_is(b""))) == set()
        new = new_in(several, number)
        entry = bytes(add_request(new, [0]).body)
        assert several.run(serving.store_repaired(new, 0, entry)) is Code.OK
        assert several.home_of(new) == number
        for each in (new, ledger_id):
            assert several.run(serving.clear_ledger(each, 1, -1)) is Code.OK
            assert several.front.read(each, 1)[0] is Code.NO_ENTRY
        kept = new_in(several, number, new + 1)
        assert several.run(serving.keep_in_limbo(kept)) is Code.OK
        assert several.home_of(kept) == number
    assert several.run(serving.verify_held(UNKNOWN * 9, [0], lambda *_: True)) == frozenset()
    several.run(serving.end_doubt(1))
    assert serving.doubt.is_over
    assert several.front.read(UNKNOWN * 9, 0)[0] is Code.NO_LEDGER
    several.end("lose_power")
    several.start()
    assert several.serving.doubt == Doubt(1, 1, 70)
    assert len(several.serving.limbo_ledgers()) == len(LEDGERS)


def test_the_end_of_a_doubt_never_ends_a_later_one() -> None:
    """A directory whose doubt did not follow must not have an end above its epoch."""
    several = filled()
    several.run(several.serving.end_doubt(1))
    assert several.serving.doubt == Doubt(0, 0)
    several.run(several.serving.raise_doubt())
    assert not several.serving.doubt.is_over


def test_the_doubt_is_raised_and_ends_although_a_directory_has_failed() -> None:
    several = filled()
    several.fail(0)
    several.run(several.serving.raise_doubt())
    assert several.epochs() == [0, 1]
    several.run(several.serving.date_doubt(1, 9))
    assert several.serving.limbo_ledgers() == of(several, 1)
    several.run(several.serving.end_doubt(1))
    assert several.serving.doubt.is_over
    assert several.front.read(UNKNOWN, 0)[0] is Code.IO_ERROR
    several.end("crash")
    several.start()
    assert several.epochs() == [1, 1]
    assert not several.serving.doubt.is_over


def test_a_doubt_that_no_directory_stores_is_an_error() -> None:
    several = filled()
    several.run(several.serving.close())
    with pytest.raises(StorageError, match="not durable"):
        several.run(several.serving.raise_doubt())


# The parts of all directories together.


def test_counters_and_compactors_are_those_of_all_directories() -> None:
    several = filled()
    serving = several.serving
    assert serving.counters.by_metric()["adds"] == len(LEDGERS)
    assert serving.ledgers_count == len(LEDGERS)
    assert serving.files_count == sum(each.files_count for each in serving.directories)
    assert several.front.droppable() == list(LEDGERS)
    for ledger_id in LEDGERS:
        assert several.front.drop(ledger_id) is Code.OK
    assert several.front.drop(UNKNOWN) is Code.NO_LEDGER
    several.front.reclaim()
    assert several.front.droppable() == []
    serving.compactor.request()
    assert serving.compactor.running_percent == 0
    serving.compactor.compact_when_due()
    several.scheduler.run_for(1_000)
    assert serving.ledgers_in_limbo == 0


def test_each_directory_is_scrubbed_and_releases_its_ledgers() -> None:
    several = filled(settings=replace(SMALL, release_wait_ms=1_000))
    several.end("crash")
    several.start()
    serving = several.serving
    serving.scrubber.request()
    assert serving.scrubber.is_running
    several.scheduler.run_until(lambda: not serving.scrubber.is_running)
    assert serving.counters.by_metric()["scrub_files"] >= 2
    assert serving.scrubber.files_left == serving.scrubber.damaged_count == 0
    assert serving.scrubber.position.ended_ms > 0
    assert serving.take_damaged() == []
    assert serving.last_accepted_id(UNKNOWN) == -1
    assert serving.last_accepted_id(LEDGERS[-1]) == 0
    for _ in range(40):
        several.run(serving.releasable())
        several.scheduler.run_for(1_000)
    assert several.run(serving.releasable()) == list(LEDGERS)
    for number in (0, 1):
        ledger_id, other = of(several, number)[:2]
        assert serving.hide(ledger_id)
        assert serving.hide(other)
        serving.unhide(other)
        assert several.front.ask(partial(serving.release, ledger_id))[0] is Code.OK
        assert several.front.read(ledger_id, 0)[0] is not Code.OK
        assert several.front.read(other, 0)[0] is Code.OK
    assert not serving.hide(UNKNOWN)
    serving.unhide(UNKNOWN)
    assert several.front.ask(partial(serving.release, UNKNOWN))[0] is Code.NO_LEDGER
