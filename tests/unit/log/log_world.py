"""A whole cluster with logs inside one event loop, and short ways to write and read them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ledgerlog_spark.log import clock
from ledgerlog_spark.log.committing.job import Job
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.log.logs import Logs
from ledgerlog_spark.protocol.log.state.records import StagedRange
from tests.fixtures.client_world import ClientWorld

DAY_MS = 86_400_000
SCHEMA = b"schema message"


class LogWorld(ClientWorld):
    """A cluster and its logs; `skip` moves the clock of the host and of the store."""

    def __init__(self) -> None:
        super().__init__(3)
        self.now_ms = 1_700_000_000_000
        self.nodes._clock_ms = self.tick

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(clock, "now_ms", self.tick)

    def tick(self) -> int:
        self.now_ms += 1
        return self.now_ms

    def skip(self, ms: int) -> None:
        self.now_ms += ms

    def logs(self) -> Logs:
        client, stores = self.client_and_stores()
        return Logs(store=stores.logs, ledgers=client)


Work = Callable[[LogWorld], Awaitable[None]]


async def write(log: Log, job: Job, name: str, entries: int = 3) -> StagedRange:
    writer = await log.open_range(job)
    for number in range(entries):
        await writer.append(b"%s %d" % (name.encode(), number), rows=10)
    staged = await writer.finish(b"index of " + name.encode(), statistics=b"")
    assert staged is not None
    return staged


async def commit(log: Log, name: str, **how: Any) -> Job:
    job = await log.begin(schema=SCHEMA, **how)
    await log.commit(job, [await write(log, job, f"{name}{part}") for part in "ab"])
    return job


async def payloads(log: Log, version: int | None = None) -> list[bytes]:
    snapshot = await log.snapshot(version)
    read = []
    for item in snapshot.items:
        async for batch in log.read_range(item.ledger_id, item.first_entry_id, item.last_entry_id):
            read += [
                bytes(entry.payload) for entry in batch if entry.entry_id != item.index_entry_id
            ]
    return read


def of(*names: str) -> list[bytes]:
    return [b"%s%s %d" % (n.encode(), p, k) for n in names for p in (b"a", b"b") for k in range(3)]
