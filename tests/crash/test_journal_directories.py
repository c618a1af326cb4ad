"""Journal directories: which files are removed, which are not touched, and a missing directory."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from bookie_server.core.bookie_run import BookieWriteMode
from bookie_server.core.manifest_codec import JOURNALS_MAX
from bookie_server.core.settings import ModeSettings, StorageSettings
from bookie_server.errors import (
    ForeignJournalError,
    MissingJournalError,
    MovedDirectoryError,
    StorageError,
)
from ledgerlog_spark.errors import StartupError
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine
from tests.sim.disk import Content, SimDisk, SimFileSystem, tear_tail

DIRECT = SMALL
Work = Callable[[], Coroutine[Any, Any, Any]]


def journal_at(path: str, *, sync_data: bool = True) -> StorageSettings:
    mode = ModeSettings(BookieWriteMode.JOURNAL, path, journal_files=2, journal_sync_data=sync_data)
    return replace(SMALL, mode_settings=mode)


def journal_files(disk: SimDisk) -> set[str]:
    return {name for name in disk.seen_names if name.startswith("journal-")}


def copied(disk: SimDisk) -> SimDisk:
    """A copy of all files, as `cp -a` makes it."""
    copy = SimDisk(Random(5))
    for name, content in disk.seen_names.items():
        files = copy.seen_names[name] = copy.durable_names[name] = Content()
        files.seen[:] = files.durable[:] = content.seen
        files.allocated = content.allocated
    return copy


def used_machine(settings: StorageSettings) -> Machine:
    """A machine with two journal disks, at /journal and at /other, after the kill of a bookie."""
    machine = Machine(1, settings=settings)
    machine.journal_disks["/other"] = SimDisk(Random(2))
    machine.start()
    assert machine.add(1, (0,)) is Code.OK
    return machine


def runs_through(machine: Machine, work: Work, events: int) -> bool:
    """Run a part of `work`, and return whether this was all of it."""
    ended: list[object] = []

    async def watched() -> None:
        ended.append(await work())

    machine.host.spawn("work", watched())
    for _ in range(events):
        if ended:
            return True
        machine.scheduler.step()
    return False


def cut_everywhere(begin: Callable[[], tuple[Machine, Work]]) -> None:
    """End a start or a stop at many of its events, and start in mode `direct`."""
    events = cuts = 0
    has_ended = False
    while not has_ended:
        events += 5
        cuts += 1
        machine, work = begin()
        has_ended = runs_through(machine, work, events)
        (machine.lose_power if cuts % 2 else machine.crash)()
        machine.settings = DIRECT
        machine.start()
        assert machine.read(1, 0)[0] is Code.OK
        for disk in machine.disks:
            assert journal_files(disk) == set(), (events, cuts)
        machine.stop()
        machine.lose_power()
        for disk in machine.disks:
            assert journal_files(disk) == set(), "brought back by a power loss"
    assert cuts > 10


@pytest.mark.parametrize("sync_data", [True, False])
@pytest.mark.parametrize("following", [DIRECT, journal_at("/journal"), journal_at("/other")])
def test_a_start_that_was_cut_leaves_no_journal_file(
    following: StorageSettings, *, sync_data: bool
) -> None:
    def begin() -> tuple[Machine, Work]:
        machine = used_machine(journal_at("/journal", sync_data=sync_data))
        machine.stop()
        machine.start()
        machine.crash()
        machine.settings = following
        return machine, machine.opening

    cut_everywhere(begin)


def test_a_stop_that_was_cut_leaves_no_journal_file() -> None:
    def begin() -> tuple[Machine, Work]:
        machine = used_machine(journal_at("/journal"))
        return machine, machine.serving.close

    cut_everywhere(begin)


def refuse_removals(monkeypatch: pytest.MonkeyPatch) -> None:
    remove = SimFileSystem.remove

    async def refuse(self: SimFileSystem, name: str) -> None:
        if name.startswith("journal-"):
            raise StorageError(f"cannot remove {name}: Read-only file system", path=name)
        await remove(self, name)

    monkeypatch.setattr(SimFileSystem, "remove", refuse)


def test_files_of_a_journal_that_cannot_be_used_are_removed_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = used_machine(journal_at("/other"))
    machine.crash()
    machine.settings = DIRECT
    with monkeypatch.context() as patch:
        refuse_removals(patch)
        machine.start()
        machine.stop()
    other = machine.journal_disks["/other"]
    assert len(journal_files(other)) == 2
    other.is_there = False
    machine.start()
    machine.stop()
    other.is_there = True
    machine.start()
    assert journal_files(other) == set()
    assert machine.read(1, 0)[0] is Code.OK


def test_the_manifest_lists_a_bounded_number_of_journals_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(1)
    refuse_removals(monkeypatch)
    paths = [f"/journal-{number}" for number in range(JOURNALS_MAX + 4)]
    for path in paths:
        machine.journal_disks[path] = SimDisk(Random(3))
        machine.settings = journal_at(path)
        machine.start()
        assert machine.add(1, (0,)) is Code.OK
        machine.stop()
    assert [each.path for each in machine.manifest().journals] == paths[-JOURNALS_MAX:]


def test_an_older_copy_of_a_directory_removes_no_file_that_the_original_needs() -> None:
    """The directory was copied after a clean stop. The copy is now at the path of the original."""
    machine = used_machine(journal_at("/journal"))
    machine.stop()
    old = copied(machine.disk)
    machine.start()
    assert machine.add(1, (1,)) is Code.OK
    machine.crash()
    original, machine.disk = machine.disk, old
    needed = journal_files(machine.journal_disk)
    assert len(needed) == 2
    with pytest.raises(ForeignJournalError, match="another copy of this directory"):
        machine.start()
    machine.crash()
    machine.settings = DIRECT
    machine.start()
    machine.stop()
    assert journal_files(machine.journal_disk) == needed
    machine.disk = original
    machine.start()
    assert machine.read(1, 1)[0] is Code.OK


def test_a_copy_at_another_path_gets_an_identity_of_its_own() -> None:
    machine = used_machine(journal_at("/journal"))
    machine.stop()
    original, machine.disk = machine.disk, copied(machine.disk)
    machine.path = "/copy"
    machine.start()
    manifest = machine.manifest()
    assert manifest.path == "/copy"
    assert manifest.directory_id not in {
        original.durable_names["MANIFEST"].durable.decode().partition('directory_id":"')[2][:16],
        "",
    }
    assert machine.read(1, 0)[0] is Code.OK
    machine.crash()
    machine.start()
    assert machine.manifest().directory_id == manifest.directory_id
    machine.crash()
    machine.disk, machine.path = original, "/data"
    with pytest.raises(ForeignJournalError, match="another directory"):
        machine.start()


@pytest.mark.parametrize(
    "mode",
    [
        journal_at("/journal"),
        journal_at("/journal", sync_data=False),
        replace(SMALL, mode_settings=ModeSettings(BookieWriteMode.UNJOURNALED)),
    ],
)
def test_a_copy_after_an_unclean_end_touches_nothing_of_the_original(
    mode: StorageSettings,
) -> None:
    machine = used_machine(mode)
    machine.crash()
    original, machine.disk = machine.disk, copied(machine.disk)
    machine.disk.numbers = original.numbers  # the same computer
    machine.path, machine.settings = "/copy", DIRECT
    needed = journal_files(machine.journal_disk), dict(original.numbers)
    with pytest.raises(MovedDirectoryError, match="mv /copy /data") as caught:
        machine.start()
    assert (caught.value.path, caught.value.moved_from) == ("/copy", "/data")
    assert (journal_files(machine.journal_disk), original.numbers) == needed
    machine.crash()
    machine.disk, machine.path = original, "/data"
    machine.start()
    assert machine.read(1, 0)[0] is Code.OK


def test_a_directory_that_is_moved_after_a_kill_in_mode_direct_is_used() -> None:
    machine = used_machine(DIRECT)
    machine.crash()
    machine.path = "/moved"
    machine.start()
    assert machine.read(1, 0)[0] is Code.OK


def test_a_missing_journal_directory_is_not_created() -> None:
    machine = used_machine(DIRECT)
    machine.stop()
    machine.settings = journal_at("/journal")
    machine.journal_disk.is_there = False
    before = machine.manifest()
    with pytest.raises(MissingJournalError, match="mkdir -p -m 700 /journal"):
        machine.start()
    assert machine.manifest().journals == before.journals == ()
    machine.crash()
    machine.journal_disk.is_there = True
    machine.start()
    assert machine.read(1, 0)[0] is Code.OK


def test_a_missing_journal_directory_with_entries_is_asked_for() -> None:
    machine = used_machine(journal_at("/journal"))
    machine.crash()
    machine.settings = DIRECT
    machine.journal_disk.is_there = False
    with pytest.raises(MissingJournalError, match="newest entries may be only there"):
        machine.start()
    machine.crash()
    machine.journal_disk.is_there = True
    machine.start()
    assert machine.read(1, 0)[0] is Code.OK


def test_a_missing_journal_that_the_last_run_needs_is_not_to_be_created() -> None:
    machine = used_machine(journal_at("/journal"))
    machine.crash()
    machine.journal_disk.is_there = False
    with pytest.raises(MissingJournalError, match="newest entries may be only there") as refused:
        machine.start()
    assert "mkdir" not in refused.value.message


def put_a_foreign_file(machine: Machine) -> None:
    machine.journal_disk.set_name("journal-0011223344556677-8899aabbccddeeff-00", Content())
    machine.journal_disk.sync_names()


def move(machine: Machine) -> None:
    machine.path = "/moved"


def remove_the_journal(machine: Machine) -> None:
    machine.journal_disk.is_there = False


UNJOURNALED = replace(SMALL, mode_settings=ModeSettings(BookieWriteMode.UNJOURNALED))


@pytest.mark.parametrize(
    ("last", "following", "prepare"),
    [
        (DIRECT, journal_at("/journal"), put_a_foreign_file),
        (DIRECT, journal_at("/journal"), remove_the_journal),
        (journal_at("/other"), journal_at("/journal"), put_a_foreign_file),
        (journal_at("/journal"), DIRECT, remove_the_journal),
        (journal_at("/journal"), DIRECT, move),
        (UNJOURNALED, DIRECT, move),
    ],
)
def test_a_start_that_is_refused_changes_nothing(
    last: StorageSettings, following: StorageSettings, prepare: Callable[[Machine], None]
) -> None:
    """So the previous version can start the bookie, and the next start sees the same files."""
    machine = used_machine(last)
    for number in range(1, 40):
        assert machine.add(1, (number,), bytes(3_000)) is Code.OK
    active = machine.serving._keeper.active
    machine.crash()
    tear_tail(machine.disk.seen_names[active.entry.slot], active.end)
    machine.settings = following
    prepare(machine)

    def files() -> dict[str, bytes]:
        return {name: bytes(content.seen) for name, content in machine.disk.seen_names.items()}

    before = files()
    with pytest.raises(StartupError):
        machine.start()
    assert files() == before
