"""Real bookies with several directories: one fails, is missing, is removed, is new."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from bookie_server.tools.directory import opened
from ledgerlog_spark.metadata.stores import open_metadata
from ledgerlog_spark.model import Code, Fragment, LedgerMetadata, Quorum
from ledgerlog_spark.wire.opcodes import Flag
from ledgerlog_spark.wire.requests import encode_read
from tests.fixtures.bookie_process import KEY, MEBIBYTE, add_frame, stored_entry
from tests.fixtures.failing_device import failing
from tests.fixtures.patience import until
from tests.fixtures.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.bookie_process import BookieProcess

    MakeBookie = Callable[..., BookieProcess]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

REFUSED, DISK_FAILED = 3, 5
RECOVERY = Flag.RECOVERY_ADD | Flag.HIGH_PRIORITY
LEDGERS = range(1, 41)
NEW_LEDGER = 1_000


class Spread:
    """A bookie with two directories, and ledgers with one entry each in both of them."""

    def __init__(self, make_bookie: MakeBookie, tmp_path: Path, **settings: object) -> None:
        self.second = tmp_path / "second"
        self.bookie = make_bookie(
            "first", metrics_port=free_port(), file_size_bytes=8 * MEBIBYTE, **settings
        )
        self.bookie.settings["directory"] = self.second
        self.first = self.bookie.directory
        self.bookie.start()
        self.payloads = {ledger_id: b"of ledger %d" % ledger_id for ledger_id in LEDGERS}
        for ledger_id in LEDGERS:
            assert self.add(ledger_id, 0) is Code.OK
        assert self.bookie.stop() == 0
        self.homes = {
            ledger_id: path for path in (self.first, self.second) for ledger_id in ledgers_in(path)
        }
        assert sorted(self.homes) == list(LEDGERS)
        self.bookie.start()

    def of(self, path: Path) -> list[int]:
        return [ledger_id for ledger_id, home in self.homes.items() if home == path]

    def add(self, ledger_id: int, entry_id: int, flags: int = 0) -> Code:
        with self.bookie.peer() as peer:
            return peer.ask(
                add_frame(ledger_id, entry_id, b"of ledger %d" % ledger_id, flags=flags)
            ).code

    def read(self, ledger_id: int, entry_id: int = 0) -> Code:
        """The answer to a read, whose entry must be the stored one."""
        with self.bookie.peer() as peer:
            answer = peer.ask(encode_read(ledger_id, entry_id))
        if answer.code is Code.OK:
            expected = stored_entry(ledger_id, entry_id, b"of ledger %d" % ledger_id)
            assert answer.entry == expected  # type: ignore[union-attr]
        return answer.code

    def fence(self, ledger_id: int) -> Code:
        with self.bookie.peer() as peer:
            return peer.ask(encode_read(ledger_id, -1, fence_key=KEY)).code

    def status(self) -> Any:
        url = f"http://127.0.0.1:{self.bookie.settings['metrics_port']}/api/v1/bookie/status"
        with urllib.request.urlopen(url, timeout=20) as answer:
            return json.load(answer)

    def without(self, path: Path) -> None:
        """Remove a directory from the next start."""
        self.bookie.settings["without_directory"] = path

    def refused(self) -> str:
        code, log = self.bookie.refusal()
        assert code == REFUSED, log
        return log.splitlines()[-1]


async def create_ledgers(bookie: BookieProcess) -> None:
    """Write the metadata of the ledgers. They are open, so a repair leaves them in limbo."""
    stores = await open_metadata(bookie.service_uri)
    try:
        ensemble = (f"127.0.0.1:{bookie.port}", "127.0.0.1:1")
        metadata = LedgerMetadata(Quorum(2, 2, 2), (Fragment(0, ensemble),))
        for ledger_id in LEDGERS:
            await stores.ledgers.create(ledger_id, metadata)
    finally:
        await stores.close()


def ledgers_in(path: Path) -> list[int]:
    """The ledgers of the directory of a stopped bookie."""

    async def read() -> list[int]:
        async with opened(path) as directory:
            await directory.replay()
            return sorted(directory.shared.states)

    return asyncio.run(read())


def test_one_directory_fails_and_the_other_one_serves(
    make_bookie: MakeBookie, tmp_path: Path
) -> None:
    spread = Spread(make_bookie, tmp_path)
    bookie, lost, kept = spread.bookie, spread.of(spread.second), spread.of(spread.first)
    assert len(lost) > len(LEDGERS) // 4
    assert len(kept) > len(LEDGERS) // 4
    slots = [str(path) for path in spread.second.glob("slot-*")]
    with failing(bookie, "fdatasync:error=EIO", tmp_path / "trace", slots):
        assert spread.add(lost[0], 1) is Code.IO_ERROR
        until(lambda: "directory_failed" in bookie.log())
        assert f"--without-directory {spread.second}" in bookie.log()
        # The bookie is read-only, also for the other directory.
        assert spread.add(kept[0], 1) is Code.READ_ONLY
        assert spread.add(NEW_LEDGER, 0) is Code.READ_ONLY
        assert {spread.read(each) for each in kept} == {Code.OK}
        assert {spread.add(each, 1, RECOVERY) for each in kept} == {Code.OK}
        assert {spread.fence(each) for each in kept[:5]} == {Code.OK}
        assert {spread.add(each, 1, RECOVERY) for each in lost} == {Code.IO_ERROR}
        assert {spread.read(each, 1) for each in lost} == {Code.IO_ERROR}
        assert {spread.read(each) for each in lost} <= {Code.OK, Code.IO_ERROR}
        assert spread.read(NEW_LEDGER) is Code.IO_ERROR, "it is not denied"
        assert spread.read(kept[0], 2) is Code.NO_ENTRY
        status = spread.status()
        assert status["state"] == {**status["state"], "running": True, "readOnly": True}
        assert [bool(each["failure"]) for each in status["directories"]] == [False, True]
        metric = "ledgerlog_bookie_directory_has_failed"
        assert status["metrics"][f'{metric}{{directory="{spread.second}"}}'] == 1
        assert status["metrics"][f'{metric}{{directory="{spread.first}"}}'] == 0
        assert bookie.stop() == DISK_FAILED
    # The device was repaired.
    bookie.start()
    assert {spread.read(each) for each in LEDGERS} == {Code.OK}
    assert {spread.read(each, 1) for each in kept} == {Code.OK}
    assert spread.add(NEW_LEDGER, 0) is Code.OK
    assert bookie.stop() == 0


def test_a_bookie_ends_when_all_directories_have_failed(
    make_bookie: MakeBookie, tmp_path: Path
) -> None:
    spread = Spread(make_bookie, tmp_path)
    bookie = spread.bookie
    with failing(bookie, "fdatasync:error=EIO", tmp_path / "trace"):
        for ledger_id in (spread.of(spread.first)[0], spread.of(spread.second)[0]):
            spread.add(ledger_id, 1, RECOVERY)
        assert bookie.wait() == DISK_FAILED
    bookie.start()
    assert {spread.read(each) for each in LEDGERS} == {Code.OK}


@pytest.mark.parametrize("how", ["missing", "empty", "without its MANIFEST"])
def test_a_lost_directory_is_removed_only_on_request_and_never_comes_back(
    make_bookie: MakeBookie, tmp_path: Path, how: str
) -> None:
    spread = Spread(make_bookie, tmp_path)
    bookie, lost, kept = spread.bookie, spread.of(spread.second), spread.of(spread.first)
    asyncio.run(create_ledgers(bookie))
    assert spread.add(kept[0], 1) is Code.OK
    assert bookie.stop() == 0
    aside = shutil.copytree(spread.second, tmp_path / "aside")
    if how == "without its MANIFEST":
        (spread.second / "MANIFEST").unlink()
    else:
        shutil.rmtree(spread.second)
        if how == "empty":
            spread.second.mkdir()
    assert f"--without-directory {spread.second}" in spread.refused()
    spread.without(spread.second)
    for _ in range(2):
        bookie.start()
        # Nothing that was acknowledged is denied.
        assert {spread.read(each) for each in kept} == {Code.OK}
        assert {spread.read(each) for each in lost} == {Code.IO_ERROR}
        assert {spread.fence(each) for each in lost[:3]} == {Code.IO_ERROR}
        assert spread.read(kept[0], 2) is Code.IO_ERROR
        assert bookie.manifest()["doubt"]["epoch"] == 1
        assert bookie.stop() == 0
    del bookie.settings["without_directory"]
    assert "but was started with" in spread.refused()
    shutil.rmtree(spread.second, ignore_errors=True)
    shutil.copytree(aside, spread.second)
    bookie.settings["allow_storage_expansion"] = True
    assert "it is an older copy" in spread.refused()
    del bookie.settings["directory"]
    bookie.start()
    assert {spread.read(each) for each in lost} == {Code.IO_ERROR}
    assert bookie.stop() == 0


def test_a_directory_is_added_on_request(make_bookie: MakeBookie, tmp_path: Path) -> None:
    bookie = make_bookie("first", file_size_bytes=8 * MEBIBYTE)
    bookie.start()
    second = tmp_path / "second"
    with bookie.peer() as peer:
        assert peer.ask(add_frame(1, 0, b"entry")).code is Code.OK
    assert bookie.stop() == 0
    bookie.settings["directory"] = second
    code, log = bookie.refusal()
    assert code == REFUSED
    assert "--allow-storage-expansion" in log
    bookie.settings["allow_storage_expansion"] = True
    for _ in range(2):
        bookie.start()
        with bookie.peer() as peer:
            assert peer.ask(encode_read(1, 0)).code is Code.OK
            assert peer.ask(encode_read(NEW_LEDGER, 0)).code is Code.NO_LEDGER, "there is no doubt"
            for ledger_id in range(2, 20):
                assert peer.ask(add_frame(ledger_id, 0, b"entry")).code is Code.OK
        assert bookie.stop() == 0
    assert ledgers_in(second)
    assert bookie.manifest()["doubt"]["epoch"] == 0
    bookie.settings["directory"] = tmp_path / "first"
    code, log = bookie.refusal()
    assert "is listed twice" in log


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_journals_of_two_directories(
    make_bookie: MakeBookie, tmp_path: Path, signal_number: int
) -> None:
    journals = [tmp_path / "j1", tmp_path / "j2"]
    for journal in journals:
        journal.mkdir()
    bookie = make_bookie(
        "first",
        file_size_bytes=8 * MEBIBYTE,
        write_mode="journal",
        journal_files=2,
        journal_directory=tuple(journals),
    )
    bookie.settings["directory"] = tmp_path / "second"
    bookie.start()
    with bookie.peer() as peer:
        for ledger_id in range(20):
            assert peer.ask(add_frame(ledger_id, 0, b"entry")).code is Code.OK
    bookie.stop(signal_number)
    bookie.start()
    with bookie.peer() as peer:
        for ledger_id in range(20):
            assert peer.ask(encode_read(ledger_id, 0)).code is Code.OK
    assert bookie.stop() == 0
