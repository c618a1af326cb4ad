"""The output of `inspect` for directories that the storage wrote, excerpt by excerpt."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bookie_server.core.manifest_codec import FileState
from bookie_server.ports import Priority
from bookie_server.storage.device.filesystem import OsFile
from bookie_server.storage.replay import WINDOW_SIZE
from bookie_server.tools import inspect
from bookie_server.tools.directory import RestingDirectory
from bookie_server.tools.excerpts import Excerpt, Row
from ledgerlog_spark.errors import ConfigurationError, LedgerNotFoundError
from ledgerlog_spark.model import Code
from tests.crash.machine import KEY, Machine
from tests.fixtures.resting import written
from tests.unit.bookie_tools.calls import checked, content_of, dumped, with_directory

ENTRIES = 70
FILE_SIZE = 2 << 30
Show = Callable[[RestingDirectory, int, int], Coroutine[Any, Any, Excerpt]]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Three ledgers in several files after a SIGKILL. The last file is open."""
    machine = Machine(6)
    machine.start()
    for number in range(ENTRIES):
        assert machine.add(1, (number,), b"a" * 1_500) is Code.OK
        assert machine.add(2, range(3 * number, 3 * number + 3), b"b" * 100) is Code.OK
    assert machine.fence(2)[0] is Code.OK
    assert machine.add(3, (0,)) is Code.OK
    assert machine.drop(3) is Code.OK
    assert machine.ask(lambda done: machine.serving.write_lac(1, 41, KEY, done)) == (Code.OK,)
    machine.scheduler.run_for(500)
    machine.crash()
    return written(machine, tmp_path / "bookie")


def all_rows(directory: Path, show: Show, limit: int) -> list[Row]:
    """All pages, one after the other."""
    rows: list[Row] = []
    start: int | None = 0
    while start is not None:
        excerpt = with_directory(directory, partial(_shown, show=show, start=start, limit=limit))
        assert len(excerpt.rows) <= limit
        assert excerpt.following is None or len(excerpt.rows) == limit
        rows += excerpt.rows
        start = excerpt.following
    return rows


async def _shown(opened: RestingDirectory, *, show: Show, start: int, limit: int) -> Excerpt:
    return await show(opened, start, limit)


def of_file(show: Callable[..., Coroutine[Any, Any, Excerpt]], file_id: str) -> Show:
    return lambda opened, start, limit: show(opened, opened.entry_of(file_id), start, limit)


async def manifest_files(opened: RestingDirectory, start: int, limit: int) -> Excerpt:
    return inspect.manifest_files(opened, start, limit)


def test_an_open_file_has_no_index_to_show(directory: Path) -> None:
    files = all_rows(directory, manifest_files, 1_000)
    file_id = str(next(row["file_id"] for row in files if row["state"] == "open"))
    with pytest.raises(ConfigurationError, match=f"inspect entrylog {directory} {file_id}`"):
        all_rows(directory, of_file(inspect.index, file_id), 10)


def test_pages_show_the_same_rows_as_one_large_page(directory: Path) -> None:
    before = content_of(directory)
    files = all_rows(directory, manifest_files, 1_000)
    finished = [str(row["file_id"]) for row in files if row["state"] == "finished"]
    shows: list[Show] = [manifest_files, inspect.journal, inspect.ledgers]
    # The oldest and the newest files: those between them are like them.
    shows += [of_file(inspect.index, each) for each in (finished[0], finished[-1])]
    shows += [of_file(inspect.entry_log, str(row["file_id"])) for row in (files[0], *files[-2:])]
    for show in shows:
        rows = all_rows(directory, show, 1_000)
        for limit in (1, 3, len(rows) or 1):
            assert all_rows(directory, show, limit) == rows
    assert content_of(directory) == before


def test_records_of_all_files_have_consecutive_sequences(directory: Path) -> None:
    files = all_rows(directory, manifest_files, 1_000)
    assert len(files) > 3
    found = [
        row
        for file in files
        for row in all_rows(directory, of_file(inspect.entry_log, str(file["file_id"])), 1_000)
    ]
    assert [row["sequence"] for row in found] == list(range(1, len(found) + 1))
    assert {row["state"] for row in found} == {"valid"}
    kinds = {row["kind"] for row in found}
    assert {"run", "fence", "lac", "tombstone", "finish"} <= kinds
    assert sum(row["entries"] for row in found) == 4 * ENTRIES + 1


def test_the_journal_is_the_records_of_the_open_files(directory: Path) -> None:
    files = all_rows(directory, manifest_files, 1_000)
    opened = [str(row["file_id"]) for row in files if row["state"] == FileState.OPEN.value]
    in_files = [row for each in opened for row in
                all_rows(directory, of_file(inspect.entry_log, each), 1_000)]  # fmt: skip
    assert all_rows(directory, inspect.journal, 7) == in_files
    assert in_files[-1]["kind"] == "watermark"


def test_the_index_points_at_the_records(directory: Path) -> None:
    files = all_rows(directory, manifest_files, 1_000)
    [first, *_] = [str(row["file_id"]) for row in files if row["state"] == "finished"]
    records = {
        row["offset"]: row for row in all_rows(directory, of_file(inspect.entry_log, first), 1_000)
    }
    pieces = all_rows(directory, of_file(inspect.index, first), 1_000)
    assert [piece["piece"] for piece in pieces] == list(range(len(pieces)))
    for piece in pieces:
        record = records[piece["record_offset"]]
        names = ("ledger_id", "first_entry_id", "last_entry_id", "origin_sequence")
        assert [piece[name] for name in names] == [record[name] for name in names]


def test_a_ledger_is_shown_with_what_the_open_files_add(directory: Path) -> None:
    states = {row["ledger_id"]: row for row in all_rows(directory, inspect.ledgers, 2)}
    assert sorted(states) == [1, 2, 3]
    assert (states[1]["last_add_confirmed"], states[1]["is_fenced"]) == (ENTRIES - 2, False)
    assert states[2]["is_fenced"]
    assert states[3]["tombstone"] > 0
    assert "master_key" not in states[1]

    async def ranges(opened: RestingDirectory, start: int, limit: int) -> Excerpt:
        return (await inspect.ledger(opened, 2, start, limit))[1]

    found = all_rows(directory, ranges, 4)
    ids = [i for row in found for i in range(row["first_entry_id"], row["last_entry_id"] + 1)]
    assert sorted(ids) == list(range(3 * ENTRIES))


def test_a_ledger_has_no_entries_in_files_that_were_finished_before_its_deletion(
    tmp_path: Path,
) -> None:
    machine = Machine(6)
    machine.start()
    for number in range(ENTRIES):
        assert machine.add(1, (number,), b"a" * 1_500) is Code.OK
        assert machine.add(2, (number,), b"b" * 1_500) is Code.OK
    assert machine.drop(2) is Code.OK
    assert machine.add(2, (7,), b"back", is_recovery=True) is Code.OK
    machine.stop()
    directory = written(machine, tmp_path / "bookie")

    async def ranges(opened: RestingDirectory, start: int, limit: int) -> Excerpt:
        return (await inspect.ledger(opened, 2, start, limit))[1]

    found = all_rows(directory, ranges, 4)
    assert [(row["first_entry_id"], row["last_entry_id"]) for row in found] == [(7, 7)]


def test_what_is_not_there_is_refused(directory: Path) -> None:
    with pytest.raises(ConfigurationError, match="inspect manifest"):
        all_rows(directory, of_file(inspect.index, "99"), 1)
    with pytest.raises(LedgerNotFoundError, match="inspect ledger"):
        with_directory(directory, lambda opened: inspect.ledger(opened, 99, 0, 1))


def test_a_file_of_2_gib_is_never_read_at_once(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The open files get the size of a bookie's files. Their bytes stay in place."""
    sizes: list[int] = []
    read, read_now = OsFile.read, OsFile.read_now

    async def noted(
        self: OsFile, offset: int, size: int, priority: Priority = Priority.FOREGROUND
    ) -> bytes:
        sizes.append(size)
        return await read(self, offset, size, priority)

    def noted_now(self: OsFile, offset: int, size: int) -> bytes | None:
        sizes.append(size)
        return read_now(self, offset, size)

    monkeypatch.setattr(OsFile, "read", noted)
    monkeypatch.setattr(OsFile, "read_now", noted_now)
    manifest = (directory / "MANIFEST").read_text()
    opened = [row["slot"] for row in all_rows(directory, manifest_files, 99)
              if row["state"] == "open"]  # fmt: skip
    for slot in opened:
        with (directory / slot).open("r+b") as file:
            file.truncate(FILE_SIZE)
    assert checked(directory).wrong == 0
    assert len(dumped(directory, 1)[0]) == ENTRIES
    assert (directory / "MANIFEST").read_text() == manifest
    assert 0 < max(sizes) <= WINDOW_SIZE


def test_a_directory_with_the_marker_is_not_clean(directory: Path) -> None:
    async def is_clean(opened: RestingDirectory) -> Any:
        return inspect.manifest_fields(opened)["is_clean"]

    (directory / "UNCLEAN").write_bytes(b"")
    assert with_directory(directory, is_clean) is False
    (directory / "UNCLEAN").unlink()
    assert with_directory(directory, is_clean) is True


def test_the_state_of_a_ledger_has_no_key(directory: Path) -> None:
    async def state(opened: RestingDirectory) -> Row:
        return (await inspect.ledger(opened, 1, 0, 10))[0]

    fields = with_directory(directory, state)
    assert fields["has_key"] is True
    assert all(isinstance(value, bool | int) for value in fields.values())
