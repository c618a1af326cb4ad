"""A bookie process on a device that is full or fails: its answers and its stored entries."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import shutil
from typing import TYPE_CHECKING

import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.metadata.stores import open_metadata
from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.requests import encode_read
from tests.fixtures.bookie_process import (
    KEY,
    MEBIBYTE,
    BookieProcess,
    Peer,
    add_frame,
    stored_entry,
)
from tests.fixtures.patience import until
from tests.fixtures.replicas import Copies

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.small_device import Device

    MakeBookie = Callable[..., BookieProcess]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

REFUSED, DISK_FAILED = 3, 5
RECOVERY = 6
PAYLOAD = os.urandom(100_000)
SMALL = {
    # The device is busy in these tests, and ZooKeeper uses it too.
    "session_timeout_ms": 10_000,
    "file_size_bytes": 8 * MEBIBYTE,
    "free_bytes_min": 0,
    "disk_check_interval_ms": 100,
}

ENTRIES_MAX = 6_000  # a ledger has b1 in its ensemble or not
THRESHOLDS = {"disk_usage_warn": 0.6, "disk_usage_max": 0.8, "disk_usage_low_water": 0.5}


def fill_with_entries(peer: Peer, first: int = 0) -> int:
    """Add entries until one is refused, and return the id of the refused one."""
    for entry_id in range(first, 2_000):
        code = peer.ask(add_frame(1, entry_id, PAYLOAD)).code
        if code is not Code.OK:
            assert code is Code.READ_ONLY
            return entry_id
    raise AssertionError("never full")


def check_entries(bookie: BookieProcess, count: int) -> None:
    """Read every entry."""
    with bookie.peer() as peer:
        for entry_id in range(count):
            assert peer.read(encode_read(1, entry_id)) == stored_entry(1, entry_id, PAYLOAD)
        assert peer.ask(encode_read(99, 0)).code is Code.NO_LEDGER, "nothing is in doubt"


def read_only_bookies(service_uri: str) -> list[str]:
    async def look() -> list[str]:
        stores = await open_metadata(service_uri)
        try:
            return list(await stores.registration.read_only())
        finally:
            await stores.close()

    return asyncio.run(look())


def levels_of(bookie: BookieProcess) -> list[str]:
    lines = [line for line in bookie.log().splitlines() if "disk_level_changed" in line]
    return [json.loads(line)["disk_level"] for line in lines]


def accepts(peer: Peer, entry_id: int) -> bool:
    return peer.ask(add_frame(1, entry_id, PAYLOAD)).code is Code.OK


def test_a_bookie_above_the_maximum_is_read_only_until_its_device_is_below_the_low_water_mark(
    device: Device, make_bookie: MakeBookie, service_uri: str
) -> None:
    bookie = make_bookie(**SMALL, **THRESHOLDS).start()
    name = f"127.0.0.1:{bookie.port}"
    with bookie.peer() as peer:
        count = fill_with_entries(peer)
        until(lambda: read_only_bookies(service_uri) == [name])
        assert peer.ask(encode_read(2, -1, fence_key=KEY)).code.is_absent
        assert peer.ask(add_frame(2, 0, PAYLOAD)).code is Code.FENCED
        assert peer.ask(add_frame(1, count, PAYLOAD, flags=RECOVERY)).code is Code.OK
        check_entries(bookie, count + 1)
        device.resize(80)
        until(lambda: not accepts(peer, count + 1) and levels_of(bookie)[-1:] == ["full"])
        device.resize(256)
        until(lambda: accepts(peer, count + 1))
        until(lambda: read_only_bookies(service_uri) == [])
    until(lambda: levels_of(bookie)[-1:] == ["normal"])
    levels = ["normal", *levels_of(bookie)]
    assert all(before != after for before, after in itertools.pairwise(levels))
    assert len(levels) <= 6
    bookie.kill()
    bookie.start()
    check_entries(bookie, count + 2)


@pytest.mark.parametrize("mode", ["direct", "journal", "unjournaled"])
@pytest.mark.parametrize("is_killed_while_full", [False, True])
def test_no_byte_left_during_appends_checkpoints_and_commits_loses_nothing(
    device: Device, make_bookie: MakeBookie, tmp_path: Path, mode: str, is_killed_while_full: bool
) -> None:
    """The journal is on another device. Checkpoints run all the time."""
    settings: dict[str, object] = {**SMALL, "disk_usage_max": 1}
    settings |= {"write_mode": mode, "checkpoint_interval_ms": 100}
    if mode == "journal":
        settings["journal_directory"] = tmp_path / "journal"
        (tmp_path / "journal").mkdir()
    bookie = make_bookie(**settings).start()
    with bookie.peer() as peer:
        for entry_id in range(20):
            assert accepts(peer, entry_id)
        device.fill()
        count = fill_with_entries(peer, 20)
        assert count > 70, "the active file takes entries to its end"
        # Files end and commits fail; fences and recovery adds use the next file.
        assert peer.ask(encode_read(2, -1, fence_key=KEY)).code.is_absent
        for entry_id in range(count, count + 5):
            assert peer.ask(add_frame(1, entry_id, PAYLOAD, flags=RECOVERY)).code is Code.OK
        count += 5
    check_entries(bookie, count)
    if is_killed_while_full:
        bookie.kill()
        code, log = bookie.refusal()
        assert code == DISK_FAILED
        assert "make room" in log
        device.make_room()
        bookie.start()
    else:
        device.make_room()
    with bookie.peer() as peer:
        until(lambda: accepts(peer, count))
        for entry_id in range(count + 1, count + 40):
            assert accepts(peer, entry_id)
        assert peer.ask(add_frame(2, 0, PAYLOAD)).code is Code.FENCED
    check_entries(bookie, count + 40)
    assert bookie.stop() == 0
    bookie.start()
    check_entries(bookie, count + 40)


def test_a_client_goes_on_with_another_bookie_and_each_replica_has_each_entry(
    device: Device, make_bookie: MakeBookie, service_uri: str
) -> None:
    del device

    # Only the device of b1 is small. The device of the others may have other files.
    def start(name: str, **thresholds: float) -> BookieProcess:
        return make_bookie(name, bookie_id=name, **SMALL, **thresholds).start()

    bookies = {"b1": start("b1", **THRESHOLDS), "b2": start("b2")}
    written = 0
    with ll.connect(service_uri) as client:
        # A ledger that is created later would rather be on bookies with more free bytes.
        with client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2) as ledger:
            bookies["b3"] = start("b3")
            while read_only_bookies(service_uri) != ["b1"]:
                assert written < ENTRIES_MAX, "it does not become full"
                for pending in [ledger.append_async(PAYLOAD) for _ in range(300)]:
                    pending.result()
                written += 300
        copies = Copies()
        metadata = client.seal(ledger.id)
        copies.check(ledger.id, metadata, bookies, lambda _entry_id: PAYLOAD)
        assert copies.broken == []
        assert (copies.entries, copies.read, copies.absent) == (written, 2 * written, 0)
        assert "b1" in metadata.fragments[0].ensemble


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize(
    "fault",
    [
        "fdatasync:error=EIO:when=9",
        "fdatasync:error=ENOSPC:when=9",
        "pwritev2:error=EIO:when=9",
        "fsync:error=EIO:when=20",
        "rename:error=EIO:when=5",
    ],
)
def test_an_error_of_the_device_ends_a_bookie_which_keeps_all_acknowledged_entries(
    make_bookie: MakeBookie, tmp_path: Path, fault: str
) -> None:
    trace = tmp_path / "trace"
    call = fault.partition(":")[0]
    bookie = make_bookie(**SMALL)
    bookie.launcher = ["strace", "-f", "-qq", "-y", "-o", str(trace)]
    bookie.launcher += ["-e", "trace=fdatasync,fsync,pwritev2,rename", "-e", f"inject={fault}"]
    bookie.start()
    acknowledged = 0
    with bookie.peer() as peer:
        for entry_id in range(1_000):
            peer.send(add_frame(1, entry_id, PAYLOAD))
            body = peer.body()
            if body is None or body[4:8] != bytes(4):
                break
            acknowledged += 1
    assert bookie.process is not None
    assert bookie.process.wait(60) == DISK_FAILED
    assert bookie.process.stdout is not None
    bookie.process.stdout.close()
    assert 0 < acknowledged < 1_000
    lines = trace.read_text().splitlines()
    failed = next(number for number, line in enumerate(lines) if "(INJECTED)" in line)
    assert call in lines[failed]
    # A sync of another file may have been under way.
    target = re.search(r"\(\d+(<.*?>)", lines[failed])
    again = [line for line in lines[failed + 1 :] if target and f"{target[1]})" in line]
    assert [line for line in again if "sync(" in line] == [], "synced again"
    bookie.launcher = []
    bookie.start()
    check_entries(bookie, acknowledged)
