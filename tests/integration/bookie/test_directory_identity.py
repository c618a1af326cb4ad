"""Real bookies with wiped, swapped, restored, moved, downgraded and unsynced directories."""

from __future__ import annotations

import asyncio
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bookie_server.tools import cookies
from ledgerlog_spark.metadata.stores import open_metadata
from ledgerlog_spark.model import Code, Fragment, LedgerMetadata, Quorum
from ledgerlog_spark.wire.requests import encode_read
from tests.fixtures.bookie_process import add_frame, stored_entry
from tests.fixtures.command_line import Ended, run_here
from tests.fixtures.patience import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.metadata.stores import MetadataStores
    from tests.fixtures.bookie_process import BookieProcess

    MakeBookie = Callable[..., BookieProcess]
    Run = Callable[..., Ended]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

REFUSED = 3
FAILED, UNUSABLE = 1, 2


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    service_uri: str,
) -> Run:
    """`run("show", directory)` runs `ledgerlog bookie cookie show DIRECTORY` in this process."""
    monkeypatch.setenv("LEDGERLOG_METADATA_SERVICE_URI", service_uri)
    return partial(run_here, monkeypatch, capfdbinary, "bookie", "cookie")


def started(bookie: BookieProcess) -> BookieProcess:
    """Start a bookie, and create two open ledgers that a repair leaves in limbo."""

    async def create() -> None:
        stores = await open_metadata(bookie.service_uri)
        try:
            ensemble = (bookie_id(bookie), "127.0.0.1:1")
            metadata = LedgerMetadata(Quorum(2, 2, 2), (Fragment(0, ensemble),))
            for ledger_id in (1, 9):
                await stores.ledgers.create(ledger_id, metadata)
        finally:
            await stores.close()

    bookie.start()
    asyncio.run(create())
    return bookie


def add(bookie: BookieProcess, entry_id: int) -> None:
    with bookie.peer() as peer:
        assert peer.ask(add_frame(1, entry_id, b"%d" % entry_id)).code is Code.OK


def has(bookie: BookieProcess, entry_id: int) -> bool:
    with bookie.peer() as peer:
        return peer.read(encode_read(1, entry_id)) == stored_entry(1, entry_id, b"%d" % entry_id)


def copied(bookie: BookieProcess) -> Path:
    copy = bookie.directory.with_name("copy")
    shutil.copytree(bookie.directory, copy)
    return copy


def put_back(bookie: BookieProcess, copy: Path) -> Path:
    newest = bookie.directory.rename(bookie.directory.with_name("newest"))
    shutil.copytree(copy, bookie.directory)
    return newest


def has_counted(bookie: BookieProcess, changes: int) -> bool:
    return bool(bookie.manifest()["changes"] == changes)


def refused(bookie: BookieProcess) -> str:
    code, log = bookie.refusal()
    assert code == REFUSED, log
    return log.splitlines()[-1]


def bookie_id(bookie: BookieProcess) -> str:
    return f"127.0.0.1:{bookie.port}"


def is_dated(bookie: BookieProcess, epoch: int) -> bool:
    doubt = bookie.manifest()["doubt"]
    return bool(doubt["epoch"] == epoch and doubt["transaction"] > 0)


def answer_of(bookie: BookieProcess, ledger_id: int, entry_id: int) -> Code:
    with bookie.peer() as peer:
        return peer.ask(encode_read(ledger_id, entry_id)).code


def test_a_copy_from_an_earlier_run_starts_in_doubt_and_the_newest_directory_does_not(
    make_bookie: MakeBookie, run: Run
) -> None:
    bookie = started(make_bookie())
    add(bookie, 0)
    assert bookie.stop() == 0
    copy = copied(bookie)
    bookie.start()
    add(bookie, 1)
    assert bookie.stop() == 0
    newest = put_back(bookie, copy)
    shown = run("show", bookie.directory)
    assert shown.code == FAILED
    assert f"{bookie.directory} is an older copy" in shown.out
    bookie.start()
    (line,) = (line for line in bookie.log().splitlines() if "doubt_raised" in line)
    assert "at start 1, change 2" in line
    assert "at start 2, change 4" in line
    assert has(bookie, 0)
    assert answer_of(bookie, 1, 1) is answer_of(bookie, 9, 0) is Code.IO_ERROR
    until(partial(is_dated, bookie, 1))
    assert bookie.stop() == 0
    shutil.rmtree(bookie.directory)
    newest.rename(bookie.directory)
    bookie.start()  # now this directory is the older one
    assert has(bookie, 1)
    assert bookie.manifest()["doubt"]["epoch"] == 2
    assert bookie.stop() == 0


def test_a_copy_of_the_same_run_is_in_doubt_after_a_rise(make_bookie: MakeBookie) -> None:
    bookie = started(make_bookie(change_interval_ms=100))
    copy = None
    # The third rise begins when the second one is in the record.
    for entry_id in range(4):
        add(bookie, entry_id)
        until(partial(has_counted, bookie, 2 + entry_id))
        copy = copy or copied(bookie)  # nothing changes while it is made
    assert copy is not None
    bookie.stop(signal.SIGKILL)
    put_back(bookie, copy)
    bookie.start()
    assert "change 2, but" in bookie.log()
    assert answer_of(bookie, 1, 3) is Code.IO_ERROR


def test_a_copy_of_a_bookie_that_runs_is_refused_and_stays_the_older_one(
    make_bookie: MakeBookie,
) -> None:
    bookie = started(make_bookie())
    copy = copied(bookie)
    add(bookie, 0)
    running = bookie.directory.rename(bookie.directory.with_name("running"))
    copy.rename(bookie.directory)
    second = make_bookie(bookie_id=bookie_id(bookie))
    before = second.manifest()
    assert "is registered by another session" in refused(second)
    # A raised counter would make the copy the newest directory.
    assert second.manifest() == before
    bookie.directory.rename(copy)
    running.rename(bookie.directory)
    assert has(bookie, 0)
    assert bookie.stop() == 0
    put_back(bookie, copy)
    bookie.start()
    assert "doubt_raised" in bookie.log()
    assert answer_of(bookie, 1, 0) is Code.IO_ERROR


def test_the_comparison_of_a_bookie_that_runs_is_not_disturbed_by_a_rise(
    make_bookie: MakeBookie, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = make_bookie(change_interval_ms=100).start()
    look = cookies.stored_about

    async def look_later(stores: MetadataStores, of: str) -> cookies.Stored:
        """Two rises: the second one begins when the first one is in the record."""
        for changes in (2, 3):
            add(bookie, changes)
            until(partial(has_counted, bookie, changes))
        return await look(stores, of)

    monkeypatch.setattr(cookies, "stored_about", look_later)
    assert "can start with" in run("show", bookie.directory).done


def test_a_lost_run_without_syncs_is_in_doubt(make_bookie: MakeBookie) -> None:
    """Its number in shared memory is gone, as after a power loss."""
    bookie = started(make_bookie(write_mode="unjournaled"))
    add(bookie, 0)
    assert bookie.manifest()["run"]["is_synced"] is False
    bookie.stop(signal.SIGKILL)
    number = Path("/dev/shm") / f"ledgerlog-{bookie.manifest()['directory_id']}"
    number.unlink()
    bookie.start()
    assert "its number in shared memory is missing" in bookie.log()
    assert has(bookie, 0), "the page cache had it"
    assert answer_of(bookie, 1, 1) is answer_of(bookie, 9, 0) is Code.IO_ERROR
    until(partial(is_dated, bookie, 1))
    assert bookie.stop() == 0


def test_a_wiped_directory_is_refused_unless_its_loss_is_allowed(
    make_bookie: MakeBookie, run: Run
) -> None:
    bookie = started(make_bookie())
    add(bookie, 0)
    assert bookie.stop() == 0
    before = bookie.manifest()
    shutil.rmtree(bookie.directory)
    assert "its data is missing" in refused(bookie)
    shutil.rmtree(bookie.directory, ignore_errors=True)
    bookie.settings["allow_lost_directory"] = True
    bookie.start()
    assert answer_of(bookie, 1, 0) is answer_of(bookie, 9, 0) is Code.IO_ERROR
    until(partial(is_dated, bookie, 1))
    after = bookie.manifest()
    assert after["previous_id"] == before["directory_id"]
    assert after["changes"] > before["changes"]
    assert bookie.stop() == 0
    del bookie.settings["allow_lost_directory"]
    bookie.start()
    assert answer_of(bookie, 1, 0) is Code.IO_ERROR
    assert bookie.stop() == 0
    shutil.rmtree(bookie.directory)
    done = run("delete", bookie_id(bookie), "--yes").done
    assert "is out of service" in done
    assert "was in the cluster before" in refused(bookie)


def test_a_swapped_directory_is_refused(make_bookie: MakeBookie) -> None:
    """Only its cookie was edited."""
    bookie, other = make_bookie("b1").start(), make_bookie("b2").start()
    assert (bookie.stop(), other.stop()) == (0, 0)
    cookie = (bookie.directory / "VERSION").read_bytes()
    shutil.rmtree(bookie.directory)
    shutil.copytree(other.directory, bookie.directory)
    assert "belongs to another bookie" in refused(bookie)
    (bookie.directory / "VERSION").write_bytes(cookie)
    assert "is not the directory of bookie" in refused(bookie)
    other.start()


def test_a_downgrade_and_an_upgrade_keep_the_identity(
    make_bookie: MakeBookie, run: Run, monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:  # fmt: skip
    bookie = make_bookie().start()
    add(bookie, 0)
    assert bookie.stop() == 0
    before = bookie.manifest()
    assert run_here(monkeypatch, capfdbinary, "bookie", "downgrade", bookie.directory).code == 0
    assert "changes" not in bookie.manifest()
    assert run("show", bookie.directory).code == 0
    bookie.start()
    assert has(bookie, 0)
    after = bookie.manifest()
    assert after["directory_id"] == before["directory_id"]
    assert (after["starts"], after["changes"]) == (2, before["changes"] + 1)
    assert not (bookie.directory / "IDENTITY").exists()
    assert bookie.stop() == 0


def test_a_moved_directory_is_fixed_and_keeps_its_entries(
    make_bookie: MakeBookie, run: Run
) -> None:
    bookie = make_bookie().start()
    add(bookie, 0)
    assert run("fix", bookie.directory).code == UNUSABLE  # it runs
    assert bookie.stop() == 0
    bookie.directory = bookie.directory.rename(bookie.directory.with_name("moved"))
    assert "ledgerlog bookie cookie fix" in refused(bookie)
    wrong = run("fix", bookie.directory, "--bookie-id", "bookie-99")
    assert wrong.code == UNUSABLE
    assert f"--bookie-id {bookie_id(bookie)}" in wrong.err
    assert run("fix", bookie.directory, "--json").json["changed"] == [
        "MANIFEST", "VERSION", "metadata store",
    ]  # fmt: skip
    assert "nothing was changed" in run("fix", bookie.directory).done
    bookie.start()
    assert has(bookie, 0)
    assert bookie.stop() == 0
    assert "can start with" in run("show", bookie.directory).done


def test_a_deleted_bookie_comes_back_with_its_directory(make_bookie: MakeBookie, run: Run) -> None:
    bookie = make_bookie().start()
    add(bookie, 0)
    running = run("delete", bookie_id(bookie), "--yes")
    assert (running.code, "is registered (writable)" in running.err) == (UNUSABLE, True)
    assert bookie.stop() == 0
    unconfirmed = run("delete", bookie_id(bookie))
    assert unconfirmed.code == UNUSABLE
    assert "pass --yes" in unconfirmed.err
    assert "Its copies of entries count as lost" in unconfirmed.err
    assert run("show", "--bookie-id", bookie_id(bookie)).code == 0
    assert run("delete", bookie_id(bookie), "--yes", "--json").json == {
        "bookie_id": bookie_id(bookie),
        "deleted": True,
    }
    assert run("delete", bookie_id(bookie), "--yes").code == FAILED
    assert "cookie create" in refused(bookie)
    shown = run("show", bookie.directory, "--json")
    assert shown.code == FAILED
    assert "was taken out of service" in shown.out
    assert "again" in run("create", bookie.directory).done
    bookie.start()
    assert has(bookie, 0)


def test_the_commands_need_a_bookie_or_a_directory(run: Run, tmp_path: Path) -> None:
    assert "or --bookie-id" in run("show").err
    assert "pass --bookie-id" in run("show", tmp_path).err
    assert run("create", tmp_path).code == UNUSABLE
