"""The commands for the files of a stopped bookie, beside real bookies."""

from __future__ import annotations

import base64
import json
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.model import Code
from tests.fixtures.bookie_process import MEBIBYTE, add_frame, stored_entry
from tests.fixtures.command_line import Ended, run_here

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.bookie_process import BookieProcess

    MakeBookie = Callable[..., BookieProcess]
    Run = Callable[..., Ended]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

ENTRIES = 30
UNUSABLE = 2
WRONG = 1


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """`run("check", directory)` runs `ledgerlog bookie check DIRECTORY` in the test's process."""
    return partial(run_here, monkeypatch, capfdbinary, "bookie")


def payload(entry_id: int) -> bytes:
    return b"%d " % entry_id * 20_000


@pytest.fixture
def bookie(make_bookie: MakeBookie) -> BookieProcess:
    """A running bookie with the ledgers 1 and 2, of which 2 has every third entry."""
    bookie = make_bookie(file_size_bytes=8 * MEBIBYTE)
    bookie.start()
    with bookie.peer() as peer:
        for ledger_id, step in ((1, 1), (2, 3)):
            for number in range(ENTRIES):
                frame = add_frame(ledger_id, number * step, payload(number))
                assert peer.ask(frame).code is Code.OK
    return bookie


def test_a_running_bookie_is_refused_by_each_command(run: Run, bookie: BookieProcess) -> None:
    for words in (
        ("check",),
        ("inspect", "manifest"),
        ("inspect", "journal"),
        ("inspect", "ledger"),
        ("rebuild-index",),
        ("format", "--yes", "--force"),
    ):
        ended = run(*words, bookie.directory)
        assert ended.code == UNUSABLE, ended
        assert "stop the bookie" in ended.err
    assert run("dump", bookie.directory, 1).code == UNUSABLE
    with bookie.peer() as peer:
        assert peer.ask(add_frame(1, ENTRIES, b"goes on")).code is Code.OK
    assert bookie.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_entries_are_dumped_in_each_form(
    run: Run, bookie: BookieProcess, tmp_path: Path, number: signal.Signals
) -> None:
    bookie.stop(number)
    wanted = {i: stored_entry(1, i, payload(i)) for i in range(ENTRIES)}
    lines = run("dump", bookie.directory, 1).done.splitlines()
    assert lines == [f"{i} {data.hex()}" for i, data in wanted.items()]
    objects = run("dump", bookie.directory, 1, "--json").done.splitlines()
    found = [json.loads(line) for line in objects]
    assert {e["entry_id"]: base64.b64decode(e["stored_base64"]) for e in found} == wanted
    assert {e["entry_id"]: e["size_bytes"] for e in found} == {i: len(wanted[i]) for i in wanted}
    raw = tmp_path / "raw"
    options = ("--raw", "--output", raw, "--first", 3, "--last", 5)
    ended = run("dump", bookie.directory, 1, *options)
    assert (ended.code, ended.out) == (0, "")
    assert raw.read_bytes() == b"".join(
        len(wanted[i]).to_bytes(4, "big") + wanted[i] for i in (3, 4, 5)
    )
    ended = run("dump", bookie.directory, 1, *options)
    assert ended.code == UNUSABLE
    assert "exists" in ended.err
    ended = run("dump", bookie.directory, 2, "--last", 6)
    size = sum(len(stored_entry(2, 3 * i, payload(i))) for i in range(3))
    counts = f"3 entries, {size:,} bytes, 4 missing, 0 not readable"
    assert ended.err.splitlines()[-2:] == [counts, "missing: 1-2, 4-5"]
    ended = run("dump", bookie.directory, 99)
    assert (ended.code, ended.out) == (0, "")
    assert f"{bookie.directory} has no ledger 99" in ended.err
    ended = run("dump", bookie.directory, 1, "--first", 7, "--last", 6)
    assert ended.code == UNUSABLE
    assert "--last 6 is below --first 7" in ended.err


def test_a_stopped_bookie_is_inspected(run: Run, bookie: BookieProcess) -> None:
    assert bookie.stop() == 0
    manifest = run("inspect", "manifest", bookie.directory, "--json").json
    assert manifest["is_clean"] is True
    [file] = manifest["rows"]
    assert file["state"] == "finished"
    where = (bookie.directory, file["slot"])
    pieces = run("inspect", "index", *where, "--limit", 7, "--json").json
    assert (len(pieces["rows"]), pieces["next"]) == (7, 7)
    records = run("inspect", "entrylog", *where, "--limit", 1, "--json").json
    following = run("inspect", "entrylog", *where, "--from", records["next"], "--json").json
    assert following["rows"][0]["sequence"] == records["rows"][0]["sequence"] + 1
    assert run("inspect", "journal", bookie.directory, "--json").json["rows"] == []
    ledger = run("inspect", "ledger", bookie.directory, 2, "--json").json
    assert [row["first_entry_id"] for row in ledger["rows"]] == [3 * i for i in range(ENTRIES)]
    table = run("inspect", "ledger", bookie.directory, "--limit", 1).done
    assert "--from 2" in table
    counts = run("check", bookie.directory).done.splitlines()[-1]
    assert counts.startswith("1 file, 2 ledgers, ")
    assert counts.endswith(" 0 wrong")


def test_damage_is_found_and_an_index_is_rebuilt(run: Run, bookie: BookieProcess) -> None:
    assert bookie.stop() == 0
    [file] = run("inspect", "manifest", bookie.directory, "--json").json["rows"]
    slot = bookie.directory / file["slot"]
    with slot.open("r+b") as opened:
        opened.seek(file["finish_offset"])
        opened.write(bytes(512))
    ended = run("check", bookie.directory)
    assert ended.code == WRONG
    assert f"wrong: {file['slot']} at byte {file['finish_offset']}" in ended.out
    assert ended.out.splitlines()[-1].endswith(" wrong")
    ended = run("check", bookie.directory, "--json")
    assert json.loads(ended.out)["wrong"] == len(json.loads(ended.out)["findings"]) > 0
    assert "0 intact, 1 rebuilt, 0 refused" in run("rebuild-index", bookie.directory).done
    assert "1 intact, 0 rebuilt, 0 refused" in run("rebuild-index", bookie.directory).done
    assert run("check", bookie.directory).done.endswith(" 0 wrong\n")
    bookie.start()
    assert bookie.stop() == 0


def test_directories_that_cannot_be_used_end_with_code_2(
    run: Run, bookie: BookieProcess, tmp_path: Path
) -> None:
    assert bookie.stop() == 0
    for wrong in (tmp_path / "missing", tmp_path):
        ended = run("check", wrong)
        assert ended.code == UNUSABLE
        assert "directory of a bookie" in ended.err
    ended = run("inspect", "index", bookie.directory, "slot-00000099")
    assert ended.code == UNUSABLE
    assert "inspect manifest" in ended.err
    manifest = bookie.directory / "MANIFEST"
    sound = manifest.read_bytes()
    for damaged, message in (
        (sound[:-1], "MANIFEST is damaged"),
        (sound.replace(b"ledgerlog-manifest 4", b"ledgerlog-manifest 9"), "format version"),
    ):
        manifest.write_bytes(damaged)
        for words in (("check",), ("inspect", "manifest"), ("rebuild-index",)):
            ended = run(*words, bookie.directory)
            assert ended.code == UNUSABLE
            assert message in " ".join(ended.err.split())


def test_format_deletes_only_what_was_confirmed(run: Run, bookie: BookieProcess) -> None:
    assert bookie.stop() == 0
    before = sorted(path.name for path in bookie.directory.iterdir())
    ended = run("format", bookie.directory, "--yes")
    assert ended.code == UNUSABLE
    assert "--force" in ended.err
    ended = run("format", bookie.directory, "--force")
    assert ended.code == UNUSABLE
    assert "--yes" in ended.err
    assert "delete MANIFEST, slot-" in " ".join(ended.err.split())
    assert sorted(path.name for path in bookie.directory.iterdir()) == before
    deleted = run("format", bookie.directory, "--force", "--yes", "--json").json["deleted"]
    assert sorted([*deleted, "LOCK"]) == before
    assert [path.name for path in bookie.directory.iterdir()] == ["LOCK"]
    code, log = bookie.refusal()
    assert code == 3
    assert "allow_lost_directory=true" in log
