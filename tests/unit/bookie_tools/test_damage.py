"""Damaged directories with `check`, `dump` and `rebuild-index`."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bookie_server.core.manifest_codec import FileEntry, FileState, decode_manifest
from bookie_server.core.record_codec import FIXED_SIZE, decode_header
from bookie_server.core.slot_header import RECORDS_START
from bookie_server.errors import (
    DamagedDirectoryError,
    DirectoryLockedError,
    FormatVersionError,
    WrongDirectoryError,
)
from bookie_server.storage.device.filesystem import OsFile
from bookie_server.tools import inspect
from ledgerlog_spark.model import Code
from tests.crash.machine import Machine, encode_manifest, entry
from tests.fixtures.examples import examples
from tests.fixtures.resting import GOLDEN, copied, golden, put_on, written
from tests.unit.bookie_tools.calls import (
    checked,
    content_of,
    dumped,
    rebuilt,
    with_directory,
)

ENTRIES = 60
ENTRIES_OF_FEW_FILES = 15
FLIPS = examples(100)


def stopped(entries: int) -> Machine:
    """Ledgers 1 and 2, in several finished files after a clean stop."""
    machine = Machine(5)
    machine.start()
    for number in range(entries):
        assert machine.add(1, (number,), b"a" * 700) is Code.OK
        assert machine.add(2, (number * 2,), b"b" * 2_000) is Code.OK
    machine.scheduler.run_for(500)
    machine.stop()
    return machine


@pytest.fixture
def machine() -> Machine:
    return stopped(ENTRIES)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of such a machine, of which each test gets a copy."""
    return written(stopped(ENTRIES), tmp_path_factory.mktemp("damage") / "bookie")


@pytest.fixture
def directory(original: Path, tmp_path: Path) -> Path:
    return copied(original, tmp_path / "bookie")


def finished(directory: Path) -> list[FileEntry]:
    manifest = decode_manifest((directory / "MANIFEST").read_bytes())
    return [file for file in manifest.files if file.state is FileState.FINISHED]


def flip(path: Path, offset: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)


def records_of(directory: Path, file: FileEntry) -> list[int]:
    """Offsets of the records of a file."""
    data = (directory / file.slot).read_bytes()
    starts = range(RECORDS_START, file.data_end, 512)
    return [at for at in starts if data[at : at + 4] == b"LREC"]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_directory_of_an_earlier_version_is_sound_and_dumped_whole(
    version: int, tmp_path: Path
) -> None:
    directory = golden(version, tmp_path / "bookie")
    expected = json.loads((GOLDEN / f"bookie_v{version}" / "expected.json").read_text())
    assert checked(directory).wrong == 0
    stored = {(ledger, i): bytes.fromhex(data) for ledger, i, data in expected["entries"]}
    for ledger_id in {ledger for ledger, _ in stored}:
        found, outcome = dumped(directory, ledger_id)
        assert found == {i: data for (ledger, i), data in stored.items() if ledger == ledger_id}
        assert outcome.entries == len(found)


def test_check_counts_what_it_verified(directory: Path) -> None:
    seen = checked(directory).seen
    assert seen["entries"] == 2 * ENTRIES
    assert seen["files"] == len(finished(directory)) > 2
    assert seen["pieces"] >= 2 * ENTRIES
    assert seen["ledgers"] == 2


def test_check_counts_the_ledgers_of_open_files(tmp_path: Path) -> None:
    machine = Machine(6)
    machine.start()
    for ledger_id in range(5):
        assert machine.add(ledger_id, (0,)) is Code.OK
    machine.crash()
    assert checked(written(machine, tmp_path / "bookie")).seen["ledgers"] == 5


def test_each_flipped_bit_of_a_record_or_an_index_is_found(tmp_path: Path) -> None:
    random = Random(1)
    directory = written(stopped(ENTRIES_OF_FEW_FILES), tmp_path / "bookie")
    files = finished(directory)
    assert len(files) > 2
    for _ in range(FLIPS):
        file = random.choice(files)
        path = directory / file.slot
        data = path.read_bytes()
        used = range(file.finish_offset, len(data))
        if random.random() < 0.5:
            used = range(RECORDS_START, file.data_end)
        offset = random.choice([at for at in used if data[at]])
        flip(path, offset, random.randrange(8))
        report = checked(directory)
        assert report.wrong > 0, (file.slot, offset)
        assert report.findings[0].file == file.slot
        path.write_bytes(data)
    assert checked(directory).wrong == 0


def test_findings_are_counted_beyond_the_limit(directory: Path) -> None:
    for file in finished(directory):
        for offset in records_of(directory, file)[:3]:
            flip(directory / file.slot, offset + FIXED_SIZE + 4)
    report = checked(directory, 2)
    assert report.wrong > len(report.findings) == 2


def test_check_compares_the_manifest_with_the_files(directory: Path) -> None:
    file = finished(directory)[0]
    sound = decode_manifest((directory / "MANIFEST").read_bytes())

    def findings_of(entry: FileEntry) -> list[str]:
        (directory / "MANIFEST").write_bytes(encode_manifest(sound.with_file(entry)))
        return [finding.what for finding in checked(directory).findings]

    assert findings_of(file) == []
    [wrong] = findings_of(replace(file, live_bytes=file.live_bytes + 1))
    assert f"has {file.live_bytes} live bytes" in wrong
    assert findings_of(replace(file, has_damage=True)) == ["the MANIFEST lists the file as damaged"]
    assert "identity" in findings_of(replace(file, salt="00" * 16))[0]
    assert "ids of the files" in findings_of(replace(file, file_id=sound.next_file_id))[0]
    twice = replace(sound, free_slots=(file.slot,))
    (directory / "MANIFEST").write_bytes(encode_manifest(twice))
    assert checked(directory).findings[0].what == f"{file.slot} is listed 2 times"


def test_check_finds_a_missing_file(directory: Path) -> None:
    file = finished(directory)[0]
    (directory / file.slot).unlink()
    report = checked(directory)
    assert [(f.file, f.what) for f in report.findings] == [
        (file.slot, "the file is missing, but the MANIFEST lists it")
    ]


def test_check_notes_what_the_next_start_removes(directory: Path) -> None:
    (directory / "slot-00000099").write_bytes(b"")
    (directory / "MANIFEST.new").write_bytes(b"")
    report = checked(directory)
    assert report.wrong == 0
    assert len(report.notes) == 2


def test_dump_reports_entries_of_a_damaged_record_and_of_a_damaged_file(
    directory: Path, tmp_path: Path
) -> None:
    whole, _ = dumped(directory, 1)
    assert whole == {i: entry(1, i, b"a" * 700) for i in range(ENTRIES)}
    file = finished(directory)[0]
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    flip(copy / file.slot, records_of(copy, file)[0] + FIXED_SIZE + 40)
    found, outcome = dumped(copy, 1)
    assert outcome.unreadable.first_ones == [(0, 0)]
    assert found == {i: data for i, data in whole.items() if i}
    (copy / file.slot).unlink()
    found, outcome = dumped(copy, 1)
    assert outcome.files_in_doubt == 1
    assert outcome.missing.count == ENTRIES - len(found) > 0
    assert outcome.missing.first_ones[0][0] == 0


def test_dump_reports_the_ids_that_a_ledger_does_not_have(directory: Path) -> None:
    found, outcome = dumped(directory, 2, 1, 8)
    assert sorted(found) == [2, 4, 6, 8]
    assert outcome.missing.first_ones == [(1, 1), (3, 3), (5, 5), (7, 7)]
    found, outcome = dumped(directory, 2, 500, 509)
    assert (found, outcome.missing.count) == ({}, 10)
    assert dumped(directory, 77)[1].missing.count == 0


def test_a_rebuilt_index_is_the_one_that_the_bookie_reads(
    machine: Machine, directory: Path
) -> None:
    whole = {each: dumped(directory, each)[0] for each in (1, 2)}
    assert {each.outcome for each in rebuilt(directory)} == {"intact"}
    first, second, *_ = finished(directory)
    flip(directory / first.slot, first.finish_offset + 1)
    flip(directory / second.slot, (directory / second.slot).stat().st_size - 16_000)
    assert {each: dumped(directory, each)[0] for each in (1, 2)} == whole
    assert checked(directory).wrong >= 2
    done = {each.slot: each.outcome for each in rebuilt(directory)}
    assert (done[first.slot], done[second.slot]) == ("rebuilt", "rebuilt")
    assert list(done.values()).count("intact") == len(done) - 2
    assert checked(directory).wrong == 0
    put_on(machine.disk, directory)
    machine.start()
    assert machine.serving.counters.boot_rebuilt_indexes == 0
    for ledger_id, entries in whole.items():
        for entry_id, data in entries.items():
            assert machine.read(ledger_id, entry_id) == (Code.OK, data)
    machine.stop()


def test_no_index_hides_a_record_whose_ledger_is_unknown(directory: Path) -> None:
    file = finished(directory)[0]
    flip(directory / file.slot, file.finish_offset + 1)
    flip(directory / file.slot, records_of(directory, file)[3] + 20)
    before = content_of(directory)
    assert [each.outcome for each in rebuilt(directory)].count("refused") == 1
    assert content_of(directory) == before


def test_directories_that_cannot_be_used_are_refused(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(WrongDirectoryError, match="cannot read"):
        checked(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(WrongDirectoryError, match="not the directory of a bookie"):
        checked(tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == []
    manifest = (directory / "MANIFEST").read_bytes()
    (directory / "MANIFEST").write_bytes(manifest.replace(b"manifest 4", b"manifest 9"))
    with pytest.raises(FormatVersionError, match="version"):
        checked(directory)
    (directory / "MANIFEST").write_bytes(manifest[:-1])
    with pytest.raises(DamagedDirectoryError, match="MANIFEST is damaged"):
        checked(directory)
    (directory / "MANIFEST").unlink()
    with pytest.raises(DamagedDirectoryError, match="does not exist"):
        checked(directory)


def test_a_directory_in_use_is_refused(directory: Path) -> None:
    async def work(_opened: object) -> None:
        with pytest.raises(DirectoryLockedError, match="stop the bookie"):
            await locked_again()

    async def locked_again() -> None:
        from bookie_server.tools.directory import locked

        async with locked(directory):
            raise AssertionError("both have the lock")

    with_directory(directory, work)


def test_a_rebuilt_index_has_no_entries_from_before_a_tombstone(tmp_path: Path) -> None:
    """Otherwise the live bytes of the file would count deleted entries."""
    machine = Machine(6)
    machine.start()
    for number in range(5):
        assert machine.add(1, (number,), b"a" * 100) is Code.OK
        assert machine.add(2, (number,), b"b" * 100) is Code.OK
        assert machine.add(3, (number,), b"c" * 100) is Code.OK
    for ledger_id in (1, 2):
        assert machine.drop(ledger_id) is Code.OK
    assert machine.add(1, (3,), b"back", is_recovery=True) is Code.OK
    machine.stop()
    directory = written(machine, tmp_path / "bookie")
    (file,) = finished(directory)
    flip(directory / file.slot, file.finish_offset + 1)
    assert [each.outcome for each in rebuilt(directory)] == ["rebuilt"]
    assert checked(directory).wrong == 0
    put_on(machine.disk, directory)
    machine.start()
    (held,) = machine.serving._keeper.finished
    assert held.live_bytes == file.live_bytes
    assert [machine.read(1, number)[0] for number in (2, 3)] == [Code.NO_ENTRY, Code.OK]
    assert machine.read(2, 3)[0] is Code.NO_ENTRY


@pytest.mark.parametrize("place", ["index", "file"])
def test_dump_goes_on_where_the_device_cannot_read(
    place: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = dumped(directory, 1)[0]
    first, *_ = finished(directory)
    begin = first.finish_offset if place == "index" else 0
    read = OsFile._read

    def failing(self: OsFile, offset: int, size: int) -> bytes:
        if self.name == first.slot and offset + size > begin:
            raise OSError(errno.EIO, "Input/output error")
        return read(self, offset, size)

    monkeypatch.setattr(OsFile, "_read", failing)
    monkeypatch.setattr(OsFile, "read_now", lambda _self, _offset, _size: None)
    found, outcome = dumped(directory, 1)
    if place == "index":
        assert (found, outcome.files_in_doubt) == (whole, 0)
        return
    assert outcome.files_in_doubt == 1
    gone = ids_in(directory, first)
    assert gone
    assert found == {each: data for each, data in whole.items() if each not in gone}


def ids_in(directory: Path, file: FileEntry) -> set[int]:
    """The ids of the entries of ledger 1 in a file."""
    ids: set[int] = set()
    data = (directory / file.slot).read_bytes()
    for offset in records_of(directory, file):
        record = decode_header(data[offset : offset + 4_096], file.identity, offset)
        if record.ledger_id == 1:
            ids.update(record.entry_ids)
    return ids


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("VERSION", "1.4.2\n"),
        ("MANIFEST", "# file GENERATED by distutils\n"),
        ("slot-machine.py", ""),
        ("ledgers-2025.csv", "1,2\n"),
    ],
)
def test_directories_of_other_programs_are_refused(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(WrongDirectoryError, match="not the directory of a bookie"):
        checked(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_check_finds_an_open_file_that_was_cut(tmp_path: Path) -> None:
    machine = Machine(6)
    machine.start()
    assert machine.add(1, (0,), b"a" * 700) is Code.OK
    machine.crash()
    directory = written(machine, tmp_path / "bookie")
    assert checked(directory).wrong == 0
    files = decode_manifest((directory / "MANIFEST").read_bytes()).files
    (file, *_) = (each for each in files if each.state is FileState.OPEN)
    os.truncate(directory / file.slot, file.size_bytes - 512)
    (finding,) = checked(directory).findings
    assert (finding.file, finding.what) == (
        file.slot, "the file is shorter than the MANIFEST lists",
    )  # fmt: skip


def test_check_notes_a_free_slot_that_is_missing(machine: Machine, tmp_path: Path) -> None:
    machine.start()
    for ledger_id in (1, 2):
        assert machine.drop(ledger_id) is Code.OK
    machine.reclaim()
    machine.scheduler.run_for(500)
    machine.stop()
    directory = written(machine, tmp_path / "bookie")
    (slot, *_) = machine.manifest().free_slots
    assert not checked(directory).notes
    (directory / slot).unlink()
    report = checked(directory)
    assert (report.wrong, report.notes) == (
        0, [f"{slot} is listed as free, but does not exist; the bookie creates it"],
    )  # fmt: skip


def test_a_rebuilt_index_is_synced(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = finished(directory)[0]
    flip(directory / file.slot, file.finish_offset + 1)
    done: list[tuple[str, str]] = []
    write, datasync = OsFile.write, OsFile.datasync

    async def noted_write(self: OsFile, offset: int, buffers: Any, *rest: Any) -> None:
        done.append(("write", self.name))
        await write(self, offset, buffers, *rest)

    async def noted_sync(self: OsFile, *rest: Any) -> None:
        done.append(("sync", self.name))
        await datasync(self, *rest)

    monkeypatch.setattr(OsFile, "write", noted_write)
    monkeypatch.setattr(OsFile, "datasync", noted_sync)
    rebuilt(directory)
    assert done == [("write", file.slot), ("sync", file.slot)]


def test_the_record_of_a_rebuilt_index_is_as_before(directory: Path) -> None:
    file = finished(directory)[0]
    rows = records_shown(directory, file)
    flip(directory / file.slot, file.finish_offset + 1)
    assert records_shown(directory, file) != rows
    rebuilt(directory)
    assert records_shown(directory, file) == rows


def records_shown(directory: Path, file: FileEntry) -> list[Any]:
    shown = with_directory(directory, lambda opened: inspect.entry_log(opened, file, 0, 1_000))
    return shown.rows
