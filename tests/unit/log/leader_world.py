"""A whole cluster inside one event loop, with a leader log on it."""

from __future__ import annotations

from typing import Any

from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.log.leader.leader import Leader
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.log.logs import Logs
from ledgerlog_spark.log.reading.record_log import RecordLog
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind
from tests.fixtures.client_world import ClientWorld


class LeaderWorld(ClientWorld):
    """A cluster with leader logs. Every handle has its own client."""

    def logs(self) -> Logs:
        client, stores = self.client_and_stores()
        return Logs(store=stores.logs, ledgers=client)

    async def log(self, **properties: str) -> Log:
        return await self.logs().open_or_create(
            "orders", kind=LogKind.LEADER, content=LogContent.RECORDS, properties=properties
        )

    async def lead(self, **properties: str) -> Leader:
        return await (await self.log(**properties)).lead(ClientSettings())

    async def reader(self) -> RecordLog:
        log = await self.logs().open("orders")
        return RecordLog(log, LogKind.LEADER, LogContent.RECORDS)

    async def values(self, *places: Any) -> list[bytes]:
        return [record.value async for record in (await self.reader()).read(*places)]
