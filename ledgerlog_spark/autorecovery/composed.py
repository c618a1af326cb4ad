"""Runs the auditor, the replication worker and the vacations in one process, on given stores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ledgerlog_spark.autorecovery.audit.service import AuditService, AuditServiceSettings
from ledgerlog_spark.autorecovery.replicate.worker import (
    ReplicationWorker,
    WorkerParts,
    WorkerSettings,
)
from ledgerlog_spark.autorecovery.vacate.vacations import run_vacations
from ledgerlog_spark.composition import log_client_on, services_on
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import LedgerMetadata
from ledgerlog_spark.protocol.autorecovery.vacate.vacating import VacatingSettings
from ledgerlog_spark.retry import NO_LIMIT, RetryPolicy
from ledgerlog_spark.transport.grpc.transport import GrpcTransport
from ledgerlog_spark.transport.v2.transport import V2Transport

RETRY = RetryPolicy(first_delay_ms=1_000, delay_max_ms=60_000, attempts_max=NO_LIMIT)
LONG_SECONDS = 600.0
"""Time in seconds that a part must run before a failure, so that its next pause is the shortest."""

Report = Callable[[str, Any], None]
"""A function that is called with the name of an event, and with the subject of the event."""


class AutoRecovery:
    """The auditor and the replication worker of one process.

    Attributes:
        auditor: The auditor, which votes, and audits while it is elected.
        worker: The worker, which heals ledgers.
    """

    def __init__(
        self,
        member_id: str,
        stores: MetadataStores,
        report: Report,
        worker: WorkerSettings | None = None,
        audit: AuditServiceSettings | None = None,
        vacating: VacatingSettings | None = None,
    ) -> None:
        """Create the auditor and the worker. Nothing is sent before `run`.

        Args:
            member_id: The id of the bookie, or `host:port` of the daemon.
            stores: The stores of the cluster, which this object does not close.
            report: Function that is called with each event.
            worker: The limits of the worker.
            audit: The settings of the auditor.
            vacating: The times of vacations.
        """
        self._id, self._stores, self._vacating = member_id, stores, vacating
        self._report = report
        self._transport = V2Transport(stores.registration.info)
        self._control = GrpcTransport(stores.registration.info)
        self._client = client = log_client_on(stores, self._transport)
        services = services_on(stores, self._transport)

        async def recover(ledger_id: int, password: bytes, floor: int) -> LedgerMetadata:
            return await client.seal(ledger_id, password=password, floor_entry_id=floor)

        parts = WorkerParts(
            stores=stores,
            transport=self._transport,
            control=self._control,
            bookies=services.bookies,
            floor_of=client.logs.floor,
            recover=recover,
        )
        self.worker = ReplicationWorker(member_id, parts, report, worker)
        self.auditor = AuditService(member_id, stores, services, self._transport, report, audit)

    async def run(self) -> None:
        """Audit, heal and run vacations until this call is cancelled. Then close everything."""

        async def vacate() -> None:
            await run_vacations(self._id, self._stores, self._vacating)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_for_ever("auditor", self.auditor.run, self._report))
                group.create_task(_for_ever("worker", self.worker.run, self._report))
                group.create_task(_for_ever("vacations", vacate, self._report))
        finally:
            await self._client.aclose()
            await self._control.aclose()
            await self._transport.aclose()


async def _for_ever(name: str, run: Callable[[], Awaitable[None]], report: Report) -> None:
    """Run a part. After an unexpected error, report the error and restart the part.

    Without the restart, a defect of one part would end all three parts. In a bookie, the parts
    would even end without a message.
    """
    now_s = asyncio.get_running_loop().time
    failures = 0
    while True:
        began_s = now_s()
        try:
            await run()
        except Exception as error:  # noqa: BLE001 - every defect is reported
            failures = 1 if now_s() - began_s >= LONG_SECONDS else failures + 1
            report(f"{name}_crashed", error)
        await asyncio.sleep(RETRY.pause_ms(max(1, failures)) / 1e3)
