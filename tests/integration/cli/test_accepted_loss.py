"""A worker gives up looking for entries once an operator has accepted their loss."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.composition import metadata
from ledgerlog_spark.wire.repair_notes import Hole, Holes
from tests.fixtures.command_line import spawn, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.local.cluster import Cluster
    from ledgerlog_spark.metadata.stores import MetadataStores
    from tests.fixtures.command_line import Ended

    Run = Callable[..., Ended]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]


def in_store(cluster: Cluster, work: Callable[[MetadataStores], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with metadata(cluster.metadata_service_uri) as stores:
            return await work(stores)

    return asyncio.run(run())


def ledger_with_lost_end(client: BlockingClient, cluster: Cluster) -> int:
    """A ledger whose record has three entries more than any bookie, as after lost disks."""
    ledger = client.create_ledger()
    ledger.append_batch([b"x"] * 10)
    ledger.close()

    async def lengthen(stores: MetadataStores) -> None:
        found = await stores.ledgers.load(ledger.id)
        await stores.ledgers.write(ledger.id, replace(found.value, last_entry_id=12), found.version)
        await stores.holes.add(ledger.id, Holes((Hole("bookie-0"),)))

    in_store(cluster, lengthen)
    return ledger.id


def test_a_worker_reports_a_loss_and_ends_when_it_is_accepted(
    run: Run, client: BlockingClient, cluster: Cluster
) -> None:
    ledger_id = ledger_with_lost_end(client, cluster)

    def status() -> Any:
        return run("autorecovery", "status", "--ledger", ledger_id, "--json").json

    worker = spawn("autorecovery", "run", "-u", cluster.metadata_service_uri)
    try:
        until(lambda: status()["unreadable"], worker)
        (lost,) = status()["unreadable"]
        assert (lost["first_entry_id"], lost["last_entry_id"], lost["is_lost"]) == (10, 12, True)
        assert status()["is_queued"]
        assert run("ledgers", "check", ledger_id).code == 1
        done = run("ledgers", "accept-loss", ledger_id, "--reason", "gone", "--yes", "--json").json
        assert done["entries_count"] == 3
        checked = run("ledgers", "check", ledger_id, "--notes", "--json")
        assert checked.code == 0
        (note,) = checked.json["findings"]
        assert note["finding"] == "an operator accepted that 3 entries are lost"
        until(lambda: not status()["is_queued"], worker)
        assert status()["unreadable"] == []
    finally:
        worker.terminate()
        worker.communicate()
    assert client.ledger_metadata(ledger_id).last_entry_id == 12
