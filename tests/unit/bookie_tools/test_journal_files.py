"""What `inspect journal` shows of journal files: whole, torn, damaged, cut off and missing ones."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from bookie_server.core.bookie_run import BookieWriteMode
from bookie_server.core.group_copy import HEAD_SIZE
from bookie_server.core.settings import ModeSettings
from bookie_server.errors import StorageError
from bookie_server.storage.device.filesystem import OsFile, OsFileSystem
from bookie_server.tools.directory import RestingDirectory
from bookie_server.tools.journal_files import (
    CUT_OFF,
    DAMAGED,
    MISSING,
    OLDER,
    TORN,
    UNREADABLE,
    VALID,
    journal_copies,
    journal_files,
)
from ledgerlog_spark.cli.main import app
from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine
from tests.fixtures.examples import examples
from tests.fixtures.resting import write_file, written
from tests.unit.bookie_tools.calls import checked, content_of, with_directory

ENTRIES = 160
FLIPS = examples(60)
ALL = 1_000_000


class Journal:
    """The directory of a bookie that was killed, and its journal directory.

    Attributes:
        directory: The bookie's directory.
        path: The journal directory.
    """

    def __init__(self, base: Path, entries: int = ENTRIES, **mode: Any) -> None:
        self.directory, self.path = base / "bookie", base / "journal"
        settings = ModeSettings(
            write_mode=BookieWriteMode.JOURNAL,
            journal_directory=str(self.path),
            journal_files=3,
            **mode,
        )
        machine = Machine(4, settings=replace(SMALL, mode_settings=settings))
        machine.path = str(self.directory)
        machine.start()
        for number in range(entries):
            assert machine.add(1, (number,), b"%d " % number * 400) is Code.OK
        self.acknowledged = machine.serving._shared.sequences.next_sequence - 1
        machine.crash()
        written(machine, self.directory)
        self.path.mkdir()
        for name, content in machine.journal_disk.seen_names.items():
            if name != "LOCK":
                size = max(len(content.seen), content.allocated)
                write_file(self.path / name, content.seen, size)

    def files(self) -> list[dict[str, Any]]:
        return with_directory(self.directory, journal_files)

    def copies(self, name: str, limit: int = ALL, start: int = 0) -> list[dict[str, Any]]:
        found = with_directory(
            self.directory, lambda opened: journal_copies(opened, name, start, limit)
        )
        return found.rows

    def rows_at(self, name: str, starts: list[int]) -> list[dict[str, Any]]:
        """The first row of each of these pages, of a directory that is opened once."""

        async def work(opened: RestingDirectory) -> list[dict[str, Any]]:
            return [(await journal_copies(opened, name, start, 1)).rows[0] for start in starts]

        return with_directory(self.directory, work)

    def newest(self) -> dict[str, Any]:
        return max(self.files(), key=lambda row: row["last_copy"] or 0)

    def flip(self, name: str, offset: int, bit: int = 0) -> None:
        with (self.path / name).open("r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0] ^ 1 << bit
            file.seek(offset)
            file.write(bytes((byte,)))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Journal:
    """A journal, and beside it a copy of its files: they name their directories."""
    base = tmp_path_factory.mktemp("journals") / "of the tests"
    base.mkdir()
    journal = Journal(base)
    shutil.copytree(base, base.with_name("copy"))
    return journal


@pytest.fixture
def journal(original: Journal) -> Journal:
    base = original.directory.parent
    shutil.rmtree(base)
    shutil.copytree(base.with_name("copy"), base)
    return original


def test_each_file_is_shown_with_its_groups(journal: Journal) -> None:
    before = content_of(journal.directory), content_of(journal.path)
    rows = journal.files()
    assert [row["name"][-3:] for row in rows] == ["-00", "-01", "-02"]
    assert {row["state"] for row in rows} == {VALID}
    assert all(row["is_needed"] and row["size_bytes"] == SMALL.file_size_bytes for row in rows)
    assert {row["directory"] for row in rows} == {str(journal.path)}
    assert sum(row["older_groups"] for row in rows) > 0, "no file was reused"
    used = sorted((row for row in rows if row["groups"]), key=lambda row: row["first_copy"])
    for row, following in pairwise(used):
        assert row["last_copy"] + 1 == following["first_copy"]
        assert row["last_sequence"] < following["first_sequence"]
    assert used[-1]["last_sequence"] >= journal.acknowledged
    assert (content_of(journal.directory), content_of(journal.path)) == before


def test_the_copies_of_a_file_have_the_places_of_their_groups(journal: Journal) -> None:
    manifest = json.loads((journal.directory / "MANIFEST").read_text().split("\n", 1)[1])
    listed = {file["slot"] for file in manifest["files"]}
    for file in journal.files():
        copies = journal.copies(file["name"])
        valid = [row for row in copies if row["state"] == VALID]
        older = [row for row in copies if row["state"] == OLDER]
        assert (len(valid), len(older)) == (file["groups"], file["older_groups"])
        assert [row["copy"] for row in valid] == list(
            range(file["first_copy"], file["last_copy"] + 1)
        )
        assert [row["offset"] for row in copies] == sorted(row["offset"] for row in copies)
        for row in valid:
            assert row["slot"] is None or row["slot"] in listed
            if row["slot"] is not None:
                # The group is in the entry-log file, as it is in the journal file.
                data = (journal.path / file["name"]).read_bytes()[row["offset"] + HEAD_SIZE :]
                stored = (journal.directory / row["slot"]).read_bytes()[row["file_offset"] :]
                assert stored[:40] == data[:40]
        assert journal.rows_at(file["name"], [row["offset"] for row in copies]) == copies


def test_a_damaged_group_is_shown_at_its_place(journal: Journal) -> None:
    file = next(row for row in journal.files() if row["groups"] > 3)
    victim = journal.copies(file["name"])[1]
    journal.flip(file["name"], victim["offset"] + HEAD_SIZE + 5)
    (damaged,) = (row for row in journal.files() if row["state"] != VALID)
    assert (damaged["name"], damaged["state"], damaged["damage"]) == (file["name"], DAMAGED, 1)
    (row,) = (row for row in journal.copies(file["name"]) if row["state"] == DAMAGED)
    assert row == {**victim, "state": DAMAGED}


def test_a_damaged_head_is_shown_at_its_place(journal: Journal) -> None:
    file = next(row for row in journal.files() if row["groups"] > 3)
    for number in (0, 2):
        victim = journal.copies(file["name"])[number]
        journal.flip(file["name"], victim["offset"] + 20)
        (row,) = (row for row in journal.copies(file["name"]) if row["state"] == UNREADABLE)
        assert (row["offset"], row["copy"]) == (victim["offset"], None)
        (damaged,) = (row for row in journal.files() if row["state"] != VALID)
        assert (damaged["state"], damaged["groups"]) == (DAMAGED, file["groups"] - 1)
        journal.flip(file["name"], victim["offset"] + 20)


def test_a_file_whose_only_head_is_damaged_is_not_empty(tmp_path: Path) -> None:
    journal = Journal(tmp_path, entries=1)
    used = [row for row in journal.files() if row["groups"]]
    for row in used:
        for copy in journal.copies(row["name"]):
            journal.flip(row["name"], copy["offset"] + 20)
    states = {row["name"]: row["state"] for row in journal.files()}
    assert used
    assert all(states[row["name"]] == DAMAGED for row in used)


def test_the_newest_copy_may_be_torn(journal: Journal) -> None:
    newest = journal.newest()
    last = [row for row in journal.copies(newest["name"]) if row["state"] == VALID][-1]
    journal.flip(newest["name"], last["offset"] + HEAD_SIZE)
    assert journal.newest()["state"] == TORN
    assert sum(row["state"] == TORN for row in journal.files()) == 1
    assert sum(row["state"] == TORN for row in journal.copies(newest["name"])) == 1
    first = journal.copies(newest["name"])[0]
    if first["copy"] != last["copy"]:
        journal.flip(newest["name"], first["offset"] + HEAD_SIZE)
        assert journal.newest()["state"] == DAMAGED


def test_files_that_are_cut_off_or_missing_are_shown(journal: Journal) -> None:
    first, second, third = (row["name"] for row in journal.files())
    os.truncate(journal.path / first, 5_000)
    (journal.path / second).unlink()
    rows = {row["name"]: row for row in journal.files()}
    assert [rows[name]["state"] for name in (first, second, third)] == [CUT_OFF, MISSING, VALID]
    assert "it has 5000 of 65536 bytes" in rows[first]["reason"]
    journal.copies(first)
    with pytest.raises(StorageError):
        journal.copies(second)


def test_a_journal_directory_that_is_missing_or_in_use_is_shown(journal: Journal) -> None:
    async def used() -> list[dict[str, Any]]:
        bookie = OsFileSystem(journal.path)
        await bookie.lock()
        try:
            return await asyncio.to_thread(journal.files)
        finally:
            await bookie.unlock()

    (row,) = asyncio.run(used())
    assert (row["name"], row["state"]) == ("", UNREADABLE)
    assert f"uses {journal.path}" in row["reason"]
    journal.path.rename(journal.path.with_name("elsewhere"))
    (row,) = journal.files()
    assert (row["name"], row["directory"], row["state"]) == ("", str(journal.path), MISSING)


def test_a_device_that_cannot_read_a_file_is_no_failure(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = journal.newest()["name"]
    read = OsFile.read

    async def failing(self: OsFile, *arguments: Any) -> bytes:
        if self.name == victim:
            raise StorageError(os.strerror(errno.EIO), path=self.name)
        return await read(self, *arguments)

    monkeypatch.setattr(OsFile, "read", failing)
    states = {row["name"]: row["state"] for row in journal.files()}
    assert states.pop(victim) == UNREADABLE
    assert set(states.values()) == {VALID}


def test_no_damage_ends_the_tool(journal: Journal) -> None:
    """Random bits, cuts and zeros in any file: each is shown, or is where no group is."""
    random = Random(3)
    names = [row["name"] for row in journal.files()]
    originals = {name: (journal.path / name).read_bytes() for name in names}
    spans = {
        name: [
            (row["offset"], row["offset"] + HEAD_SIZE + row["size_bytes"])
            for row in journal.copies(name)
            if row["state"] == VALID
        ]
        for name in names
    }
    noticed = 0
    for _ in range(FLIPS):
        name = random.choice(names)
        data = bytearray(originals[name])
        at = random.randrange(len(data))
        kind = random.randrange(3)
        if kind == 0:
            data[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            del data[at:]
        else:
            end = min(len(data), at + random.randrange(1, 5_000))
            data[at:end] = bytes(end - at)
        (journal.path / name).write_bytes(data)
        rows = {row["name"]: row for row in journal.files()}
        journal.copies(name)
        is_noticed = rows[name]["state"] != VALID
        noticed += is_noticed
        if kind == 0 and any(start <= at < end for start, end in spans[name]):
            head = next(start for start, end in spans[name] if start <= at < end)
            # The unused end of a head has no checksum, and the last head may be of no copy.
            is_used = at - head < 112 or at - head >= HEAD_SIZE
            is_last = head == spans[name][-1][0]
            assert is_noticed or not is_used or (is_last and at - head < HEAD_SIZE), at
        (journal.path / name).write_bytes(originals[name])
    assert noticed > FLIPS // 3


def test_files_of_runs_that_are_not_needed_are_shown_until_they_are_removed(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path, journal_sync_data=False)
    rows = journal.files()
    assert len(rows) == 3
    assert not any(row["is_needed"] for row in rows), "a start reads the entry-log files only"
    assert sum(row["groups"] for row in rows) > 0


def test_other_names_are_refused(journal: Journal) -> None:
    for name in ("journal-of-another-bookie", "", "MANIFEST", "../bookie/MANIFEST"):
        with pytest.raises(ConfigurationError, match="inspect journal"):
            journal.copies(name)
    prefix = journal.files()[0]["name"][:-2]
    assert journal.copies(prefix + "x") == []


def test_check_reports_that_the_journal_may_have_entries(journal: Journal) -> None:
    assert any(str(journal.path) in note for note in checked(journal.directory).notes)


def test_the_command_prints_files_records_and_copies(journal: Journal) -> None:
    def run(*words: str) -> str:
        result = CliRunner().invoke(app, ["bookie", "inspect", "journal", *words])
        assert result.exit_code == 0, result.output
        return result.output

    shown = json.loads(run(str(journal.directory), "--json"))
    assert shown["journal_files"] == journal.files()
    assert shown["rows"]
    name = shown["journal_files"][0]["name"]
    copies = json.loads(run(str(journal.directory), name, "--json", "--limit", "2"))
    assert copies["rows"] == journal.copies(name, 2)
    assert copies["next"] == journal.copies(name)[2]["offset"]
    assert "journal files of" in run(str(journal.directory))
    assert "copies in" in run(str(journal.directory), name)
