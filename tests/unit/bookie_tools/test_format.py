"""`format` deletes the files of a bookie, and nothing else; a part of them is never used."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bookie_server.core.bookie_run import BookieWriteMode
from bookie_server.core.settings import ModeSettings
from bookie_server.errors import DamagedDirectoryError, DirectoryLockedError
from bookie_server.storage.device import mapped_number
from bookie_server.storage.device.filesystem import OsFileSystem
from bookie_server.tools.directory import locked
from bookie_server.tools.format import Plan, carry_out, plan_format
from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.cookie import Cookie
from tests.crash.machine import SMALL, Machine
from tests.fixtures.resting import put_on, written
from tests.unit.bookie_tools.calls import checked

KEPT = {"LOCK", "notes.txt"}
COOKIE = Cookie("b1", "/data", ("/data",)).encode()


def made(path: Path, *, entries: int, is_clean: bool) -> Path:
    machine = Machine(7)
    machine.start()
    for number in range(entries):
        assert machine.add(1, (number,), b"a" * 700) is Code.OK
    machine.scheduler.run_for(500)
    if is_clean:
        machine.stop()
    else:
        machine.crash()
    directory = written(machine, path)
    (directory / "VERSION").write_bytes(COOKIE)
    (directory / "notes.txt").write_text("of somebody")
    return directory


def planned(directory: Path) -> Plan:
    async def run() -> Plan:
        async with locked(directory) as files:
            return await plan_format(files)

    return asyncio.run(run())


def deleted(directory: Path) -> Plan:
    async def run() -> Plan:
        async with locked(directory) as files:
            plan = await plan_format(files)
            await carry_out(files, plan)
            return plan

    return asyncio.run(run())


@pytest.mark.parametrize("is_clean", [True, False])
def test_entries_are_reported_whether_the_bookie_stopped_or_was_killed(
    is_clean: bool, tmp_path: Path
) -> None:
    directory = made(tmp_path / "full", entries=3, is_clean=is_clean)
    plan = planned(directory)
    assert plan.entries
    assert plan.others == ["notes.txt"]
    assert planned(made(tmp_path / "empty", entries=0, is_clean=is_clean)).entries == ""


def test_files_of_the_bookie_are_deleted_and_others_stay(tmp_path: Path) -> None:
    directory = made(tmp_path / "bookie", entries=100, is_clean=True)
    before = {path.name for path in directory.iterdir()}
    plan = deleted(directory)
    assert set(plan.names) == before - KEPT
    assert {path.name for path in directory.iterdir()} == KEPT


def test_a_damaged_manifest_counts_as_entries(tmp_path: Path) -> None:
    directory = made(tmp_path / "bookie", entries=3, is_clean=True)
    (directory / "MANIFEST").write_bytes(b"nothing")
    assert "cannot be read" in planned(directory).entries
    deleted(directory)
    assert {path.name for path in directory.iterdir()} == KEPT


def test_after_each_removal_a_crash_leaves_a_directory_that_no_bookie_starts_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = OsFileSystem.remove
    removed = 0

    async def dies(self: OsFileSystem, name: str) -> None:
        nonlocal removed
        if removed == limit:
            raise InterruptedError
        removed += 1
        await remove(self, name)

    monkeypatch.setattr(OsFileSystem, "remove", dies)
    steps = len(planned(made(tmp_path / "first", entries=100, is_clean=True)).names)
    for limit in range(1, steps):
        directory = made(tmp_path / str(limit), entries=100, is_clean=True)
        removed = 0
        with pytest.raises(InterruptedError):
            deleted(directory)
        machine = Machine(8)
        machine.is_new = False
        put_on(machine.disk, directory)
        with pytest.raises(DamagedDirectoryError):
            machine.start()
        removed = -steps
        deleted(directory)
        assert {path.name for path in directory.iterdir()} == KEPT


def with_journal(path: Path, journal: Path) -> Machine:
    """The files of a bookie at `path` that was killed, and its journal files."""
    mode = ModeSettings(write_mode=BookieWriteMode.JOURNAL, journal_directory=str(journal))
    machine = Machine(9, settings=replace(SMALL, mode_settings=mode))
    machine.path = str(path)
    machine.start()
    assert machine.add(1, (0,)) is Code.OK
    machine.scheduler.run_for(500)
    machine.crash()
    journal.mkdir()
    for name in (*machine.journal_disk.seen_names, "journal-of-another-bookie"):
        (journal / name).write_bytes(b"")
    written(machine, path)
    return machine


def test_journal_files_of_the_directory_are_deleted(tmp_path: Path) -> None:
    directory, journal = tmp_path / "bookie", tmp_path / "journal"
    machine = with_journal(directory, journal)
    plan = deleted(directory)
    assert plan.journals == {str(journal): sorted(machine.journal_disk.seen_names)}
    assert {path.name for path in journal.iterdir()} == {"LOCK", "journal-of-another-bookie"}


def test_the_format_of_a_copy_leaves_the_journal_files_of_the_original(tmp_path: Path) -> None:
    original, journal = tmp_path / "bookie", tmp_path / "journal"
    with_journal(original, journal)
    before = {path.name for path in journal.iterdir()}
    copy = tmp_path / "copy"
    shutil.copytree(original, copy)
    plan = deleted(copy)
    assert plan.journals == {}
    assert plan.kept_journals == [str(journal)]
    assert {path.name for path in journal.iterdir()} == before
    assert {path.name for path in copy.iterdir()} == {"LOCK"}


def test_a_journal_in_use_is_named_and_nothing_is_deleted(tmp_path: Path) -> None:
    directory, journal = tmp_path / "bookie", tmp_path / "journal"
    with_journal(directory, journal)
    before = {path.name for path in directory.iterdir()}

    async def run() -> None:
        bookie = OsFileSystem(journal)
        await bookie.lock()
        try:
            async with locked(directory) as files:
                await carry_out(files, await plan_format(files))
        finally:
            await bookie.unlock()

    with pytest.raises(DirectoryLockedError, match=f"uses {journal}:"):
        asyncio.run(run())
    assert {path.name for path in directory.iterdir()} - before <= {"LOCK"}


def without_syncs(path: Path) -> Machine:
    """The files of a bookie at `path` that was killed before a checkpoint."""
    mode = ModeSettings(write_mode=BookieWriteMode.UNJOURNALED)
    machine = Machine(9, settings=replace(SMALL, mode_settings=mode))
    machine.path = str(path)
    machine.start()
    assert machine.add(1, (0,)) is Code.OK
    machine.crash()
    written(machine, path)
    return machine


def test_the_number_of_the_directory_is_removed_and_that_of_an_original_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(mapped_number, "FOLDER", folder)
    original, copy = tmp_path / "bookie", tmp_path / "copy"
    machine = without_syncs(original)
    (name,) = machine.disk.numbers
    shutil.copytree(original, copy)
    for other in (name, "ledgerlog-of-another"):
        (folder / other).write_bytes(bytes(16))
    deleted(copy)
    assert {path.name for path in folder.iterdir()} == {name, "ledgerlog-of-another"}
    deleted(original)
    assert {path.name for path in folder.iterdir()} == {"ledgerlog-of-another"}


def test_entries_that_may_be_lost_are_announced(tmp_path: Path) -> None:
    without_syncs(tmp_path / "bookie")
    (note,) = (each for each in checked(tmp_path / "bookie").notes if "unjournaled" in each)
    assert "Only a start of the bookie finds out" in note


def test_only_names_that_a_bookie_gives_are_deleted(tmp_path: Path) -> None:
    directory = made(tmp_path / "bookie", entries=100, is_clean=True)
    (slot, *_) = (path for path in directory.iterdir() if path.name.startswith("slot-"))
    others = (f"{slot.name}.copy", "slot-machine.py", "ledgers-2025.csv")
    for name in others:
        (directory / name).write_text("of somebody")
    machine = Machine(8)
    machine.is_new = False
    put_on(machine.disk, directory)
    machine.start()
    machine.stop()
    assert set(others) <= machine.disk.seen_names.keys(), "a start keeps them too"
    deleted(directory)
    assert {path.name for path in directory.iterdir()} == {*KEPT, *others}


def test_entries_that_only_a_journal_has_are_announced(tmp_path: Path) -> None:
    directory, journal = tmp_path / "bookie", tmp_path / "journal"
    with_journal(directory, journal)
    (note,) = (each for each in checked(directory).notes if "journal" in each)
    assert str(journal) in note
    assert "start the bookie and stop it" in note
