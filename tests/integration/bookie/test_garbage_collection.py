"""The space of a deleted ledger is freed, and its files hold the next ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ledgerlog_spark as ll
from bookie_server.core.manifest_codec import Manifest, decode_manifest
from ledgerlog_spark.errors import LedgerNotFoundError
from tests.fixtures.bookie_process import MEBIBYTE

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from tests.fixtures.bookie_process import BookieProcess

pytestmark = [pytest.mark.zookeeper, pytest.mark.processes]

ENTRY = bytes(range(256)) * 2_048  # 512 KiB
ENTRIES = 180
POOL_FILES = 4


def write_ledger(client: BlockingClient, entries: int = ENTRIES) -> int:
    ledger = client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
    for pending in [ledger.append_async(ENTRY) for _ in range(entries)]:
        pending.result()
    ledger.close()
    return ledger.id


def disk_bytes(bookie: BookieProcess) -> int:
    """The disk space of the slots in bytes."""
    return sum(path.stat().st_blocks * 512 for path in bookie.directory.glob("slot-*"))


def inodes(bookie: BookieProcess) -> dict[int, str]:
    return {path.stat().st_ino: path.name for path in bookie.directory.glob("slot-*")}


def manifest(bookie: BookieProcess) -> Manifest:
    return decode_manifest((bookie.directory / "MANIFEST").read_bytes())


def test_space_of_a_deleted_ledger_comes_back_and_its_slots_are_used_again(
    make_bookie: Callable[..., BookieProcess], service_uri: str
) -> None:
    bookie = make_bookie(file_size_bytes=8 * MEBIBYTE).start()
    with ll.connect(service_uri) as client:
        kept = write_ledger(client, 3)
        deleted = write_ledger(client)
        before = disk_bytes(bookie)
        assert before > len(ENTRY) * ENTRIES
        assert bookie.collect().ledgers_dropped == 0
        client.delete_ledger(deleted)
        collected = bookie.collect()
        assert (collected.code, collected.ledgers_held, collected.ledgers_dropped) == (0, 2, 1)
        after = disk_bytes(bookie)
        # The active and the next file, the files for reuse, and the first file, with the other
        # ledger.
        assert after <= (2 + POOL_FILES + 1) * 8 * MEBIBYTE < before
        free = set(manifest(bookie).free_slots)
        assert len(free) == POOL_FILES
        files = inodes(bookie)
        again = write_ledger(client, 60)
        used = {file.slot for file in manifest(bookie).files}
        assert free & used, "no slot was recycled"
        assert {inode for inode, name in inodes(bookie).items() if name in free & used} <= set(
            files
        )
        bookie.kill()
        bookie.start()
        for ledger_id, entries in ((kept, 3), (again, 60)):
            read = [entry.payload for entry in client.open_ledger(ledger_id).read()]
            assert read == [ENTRY] * entries
        with pytest.raises(LedgerNotFoundError):
            client.open_ledger(deleted)
        assert bookie.collect().ledgers_dropped == 0
