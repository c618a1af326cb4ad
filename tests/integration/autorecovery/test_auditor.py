"""An auditor on real bookies and ZooKeeper: a killed bookie is marked, and a hole is reported."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from ledgerlog_spark.autorecovery.audit.service import AuditService, AuditServiceSettings
from ledgerlog_spark.client.services import Services
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.local.zookeeper import ZooKeeperProcess
from ledgerlog_spark.metadata.stores import MetadataStores, open_metadata
from ledgerlog_spark.protocol.autorecovery.audit.auditor import AuditSettings
from ledgerlog_spark.transport.v2.transport import V2Transport
from ledgerlog_spark.wire.repair_notes import Hole, HoleKind
from tests.fixtures.bookie_cluster import BookieCluster, bookie_cluster
from tests.fixtures.patience import until

T = TypeVar("T")

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

SESSION_MS = 1_000
SETTINGS = AuditServiceSettings(auditor=AuditSettings(session_timeout_ms=SESSION_MS))
ENTRIES = 20


@pytest.fixture
def cluster(
    zookeeper: ZooKeeperProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[BookieCluster]:
    """Four bookies of its own."""
    uri = f"zk://{zookeeper.connect_string}/a-{abs(hash(request.node.nodeid))}/ledgers"
    with bookie_cluster(tmp_path, uri) as running:
        running.start(1)
        yield running


def written(cluster: BookieCluster, ledgers: int) -> list[int]:
    """Write closed ledgers on three of the bookies each."""
    ids = []
    with cluster.connect() as client:
        for _ in range(ledgers):
            with client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2) as ledger:
                for number in range(ENTRIES):
                    ledger.append(b"%d" % number * 100)
                ids.append(ledger.id)
    return ids


class Audited:
    """An auditor on an event loop of its own, and another session with the same store."""

    def __init__(self, uri: str) -> None:
        self.reports: list[tuple[str, Any]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.stores: MetadataStores = self.run(open_metadata(uri))
        self._own: MetadataStores = self.run(open_metadata(uri))
        self._audit = self.run(self._begin())

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    @property
    def is_elected(self) -> bool:
        return any(name == "elected" for name, _ in self.reports)

    def marks(self) -> dict[int, tuple[str, ...]]:
        return self.run(self._marks())

    def holes(self, ledger_id: int) -> tuple[Hole, ...]:
        found = self.run(self.stores.holes.load(ledger_id))
        return () if found is None else found.value.holes

    def close(self) -> None:
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _begin(self) -> asyncio.Task[None]:
        stores = self._own
        self._transport = V2Transport(stores.registration.info)
        random = Random(0)
        services = Services.on(stores, self._transport, ClientSettings(), random)
        service = AuditService(
            "daemon:1", stores, services, self._transport, self._report, SETTINGS
        )
        return asyncio.create_task(service.run())

    def _report(self, name: str, about: Any) -> None:
        self.reports.append((name, about))

    async def _end(self) -> None:
        self._audit.cancel()
        await asyncio.gather(self._audit, return_exceptions=True)
        await self._transport.aclose()
        await self._own.close()
        await self.stores.close()

    async def _marks(self) -> dict[int, tuple[str, ...]]:
        found = {}
        async for ledger_id in self.stores.marks.walk():
            mark = await self.stores.marks.load(ledger_id)
            if mark is not None:
                found[ledger_id] = mark.replicas
        return found


@contextmanager
def audited(cluster: BookieCluster) -> Iterator[Audited]:
    made = Audited(cluster.uri)
    try:
        yield made
    finally:
        made.close()


def test_the_ledgers_of_a_killed_bookie_are_marked(cluster: BookieCluster) -> None:
    ids = written(cluster, 12)
    killed = "bookie-1"
    with audited(cluster) as audit:
        audit.run(audit.stores.recovery_switch.set_lost_bookie_delay(0))
        until(lambda: audit.is_elected)
        naming = {
            ledger_id
            for ledger_id in ids
            if killed in audit.run(audit.stores.ledgers.load(ledger_id)).value.fragments[0].ensemble
        }
        assert naming
        cluster.bookies[killed].kill()

        def marked() -> set[int]:
            return {each for each, members in audit.marks().items() if killed in members}

        until(lambda: marked() >= naming)
        assert marked() == naming
        # The auditor may also take a slow bookie for lost.
        assert any(members == (killed,) for members in audit.marks().values())


def test_a_member_without_its_copies_is_reported_as_a_hole(cluster: BookieCluster) -> None:
    (ledger_id,) = written(cluster, 1)
    with audited(cluster) as audit:
        ledgers = audit.stores.ledgers
        record = audit.run(ledgers.load(ledger_id))
        (fragment,) = record.value.fragments
        (spare,) = set(cluster.bookies) - set(fragment.ensemble)
        ensemble = (fragment.ensemble[0], spare, fragment.ensemble[2])
        moved = record.value.with_fragments((replace(fragment, ensemble=ensemble),))
        audit.run(ledgers.write(ledger_id, moved, record.version))
    with audited(cluster) as audit:
        until(partial(audit.holes, ledger_id))
        whole = Hole(spare, 0, HoleKind.MISSING, ((0, ENTRIES - 1),))
        assert audit.holes(ledger_id) == (whole,)
        assert audit.marks() == {}
