"""Compaction on a device that becomes full or fails: each copy of each entry is read afterwards."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from typing import TYPE_CHECKING

import grpc
import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.wire.requests import encode_read
from tests.abuse.loop_lags import samples_of
from tests.fixtures.bookie_process import MEBIBYTE
from tests.fixtures.failing_device import failing
from tests.fixtures.patience import until
from tests.fixtures.ports import free_port
from tests.fixtures.replicas import Copies
from tests.fixtures.stage import start_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from tests.fixtures.bookie_process import BookieProcess
    from tests.fixtures.small_device import Device

    MakeBookie = Callable[..., BookieProcess]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

DISK_FAILED = 5
PAYLOAD = os.urandom(100_000)
WITHDRAWN = re.compile('"files_withdrawn": [1-9]')
COMPACTIONS = "ledgerlog_bookie_storage_compactions"
COPIED = "ledgerlog_bookie_storage_compaction_bytes_copied"
KEPT_PART = 4
"""One of this many entries belongs to a ledger that stays."""
ENTRIES = 60
SETTINGS = {
    "session_timeout_ms": 10_000,
    "file_size_bytes": 8 * MEBIBYTE,
    "free_bytes_min": 0,
    "disk_usage_max": 1,
    "disk_check_interval_ms": 100,
    "gc_interval_ms": 1_000,  # deletes the entries, but compacts nothing
}


class Cluster:
    """Three bookies whose files have entries of ledgers that stay and of deleted ones.

    Attributes:
        bookies: The bookies by id. The bookie b1 has the errors.
    """

    def __init__(self, make_bookie: MakeBookie, **settings: object) -> None:
        names = ("b1", "b2", "b3")
        self.bookies = {
            name: make_bookie(
                name, bookie_id=name, metrics_port=free_port(), **SETTINGS, **settings
            )
            for name in names
        }
        start_all(self.bookies.values())
        self._kept: list[int] = []

    @property
    def victim(self) -> BookieProcess:
        return self.bookies["b1"]

    def write(self, client: BlockingClient) -> None:
        """Write two ledgers side by side, delete one, and wait until its entries are deleted.

        The entries alternate on each bookie, so each file has some that stay. Otherwise the bookie
        could free a file without a compaction, and use the file again.
        """
        with (
            client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3) as kept,
            client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3) as deleted,
        ):
            for _ in range(ENTRIES):
                ledgers = [kept, *[deleted] * (KEPT_PART - 1)]
                for appended in [ledger.append_async(PAYLOAD) for ledger in ledgers]:
                    appended.result()
        client.delete_ledger(deleted.id)
        self._kept.append(kept.id)
        for bookie in self.bookies.values():
            with bookie.peer() as peer:
                until(lambda peer=peer: peer.ask(encode_read(deleted.id, 0)).code.is_absent)  # type: ignore[misc]

    def check(self, client: BlockingClient) -> None:
        """Read each copy of each entry that stays."""
        copies = Copies()
        for ledger_id in self._kept:
            metadata = client.ledger_metadata(ledger_id)
            copies.check(ledger_id, metadata, self.bookies, lambda _entry_id: PAYLOAD)
        assert copies.broken == []
        entries = len(self._kept) * ENTRIES
        assert (copies.entries, copies.read) == (entries, 3 * entries)


def slots(bookie: BookieProcess) -> set[str]:
    """The files that the MANIFEST lists."""
    return {file["slot"] for file in bookie.manifest()["files"]}


def finished(bookie: BookieProcess) -> set[str]:
    """The files that the MANIFEST lists as finished."""
    return {file["slot"] for file in bookie.manifest()["files"] if file["state"] == "finished"}


def check_is_running(bookie: BookieProcess) -> None:
    """Fail if the process has ended."""
    assert bookie.process is not None
    assert bookie.process.poll() is None, bookie.log()[-3000:]


def compactions(bookie: BookieProcess) -> float:
    """The number of compactions that have ended, whether they freed anything or not."""
    return samples_of(int(str(bookie.settings["metrics_port"])))[COMPACTIONS]


def compacted(bookie: BookieProcess, condition: Callable[[], object]) -> None:
    """Request compactions, one after the other, until the condition is true.

    A compaction ends without an effect if the bookie has just allocated its next file, and the
    device has no room for the copies.
    """

    def is_true() -> bool:
        if condition():
            return True
        if not bookie.is_compacting():
            bookie.collect()
        return False

    until(is_true)


def test_a_compaction_on_a_full_device_keeps_each_copy_of_each_entry(
    device: Device, make_bookie: MakeBookie, service_uri: str
) -> None:
    cluster = Cluster(make_bookie, compaction_bytes_per_s=4 * MEBIBYTE)
    victim = cluster.victim
    with ll.connect(service_uri) as client:
        cluster.write(client)
        sources = slots(victim)
        # The file of the copies has its space.
        compacted(victim, lambda: samples_of(int(str(victim.settings["metrics_port"])))[COPIED])
        device.fill()
        until(lambda: not victim.is_compacting())
        assert not sources <= slots(victim), "the unused end of the draft is room for the MANIFEST"
        cluster.check(client)
        device.make_room()
        cluster.write(client)
        sources = slots(victim)
        device.fill()
        ended = compactions(victim)
        compacted(victim, lambda: compactions(victim) > ended)
        assert sources <= slots(victim), "without room for a MANIFEST, the sources stay"
        cluster.check(client)
        victim.kill()
        code, log = victim.refusal()
        assert code == DISK_FAILED
        assert "make room" in log
        device.make_room()
        victim.start()
        cluster.check(client)
        compacted(victim, lambda: not sources <= slots(victim))
        cluster.check(client)
        victim.kill()
        victim.start()
        cluster.check(client)


FAULTS = (
    "pwritev2:error=EIO:when=4",
    "fdatasync:error=EIO:when=1",
    "fdatasync:error=EIO:when=2",
    "rename:error=EIO:when=1",
    "rename:error=EIO:when=2",
)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_an_error_of_the_device_during_a_compaction_keeps_each_copy_of_each_entry(
    make_bookie: MakeBookie, service_uri: str, tmp_path: Path
) -> None:
    cluster = Cluster(make_bookie)
    victim, trace = cluster.victim, tmp_path / "trace"
    with ll.connect(service_uri) as client:
        for fault in FAULTS:
            cluster.write(client)
            with failing(victim, fault, trace):
                with contextlib.suppress(grpc.RpcError):  # the bookie may end before its answer
                    victim.collect()
                assert victim.process is not None
                assert victim.process.wait(60) == DISK_FAILED, fault
            assert victim.process.stdout is not None
            victim.process.stdout.close()
            assert "(INJECTED)" in trace.read_text(), fault
            victim.start()
            cluster.check(client)
        cluster.write(client)
        sources = finished(victim)  # the bookie stops if it cannot read the header of another file
        assert not WITHDRAWN.search(victim.log())
        with failing(victim, "pread64,preadv2:error=EIO", trace, sources):
            victim.collect()
            until(lambda: WITHDRAWN.search(victim.log()), lambda: check_is_running(victim))
        assert sources <= slots(victim), "files that cannot be read stay"
        cluster.check(client)
        victim.kill()
        victim.start()
        compacted(victim, lambda: not sources <= slots(victim))
        cluster.check(client)
