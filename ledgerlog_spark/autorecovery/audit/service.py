"""The auditor of one process: takes part in the election, and takes the lease of the checks.

The elected auditor marks the ledgers of lost bookies. An auditor of Apache may be elected instead
of this auditor. The checks of replicas, digests and placement run in the process that has the
lease. Only processes of ledgerlog take this lease (AUTORECOVERY.md#N15).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from ledgerlog_spark.autorecovery.accepted import AcceptedEntries
from ledgerlog_spark.autorecovery.audit.copy_requests import AuditTransport, CopyRequests
from ledgerlog_spark.autorecovery.audit.machine_host import AuditMachine, AuditMachineHost
from ledgerlog_spark.autorecovery.audit.store_requests import AuditStoreRequests, AuditStores
from ledgerlog_spark.client.services import Services
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.metadata.leases import Leases
from ledgerlog_spark.metadata.replication.ports import AuditorElection, AuditorVote, Walk
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.metadata.tree import CancelWatch
from ledgerlog_spark.protocol.autorecovery.audit import messages as m
from ledgerlog_spark.protocol.autorecovery.audit.auditor import Auditor, AuditSettings
from ledgerlog_spark.protocol.autorecovery.audit.digests import DigestCheck, DigestSettings
from ledgerlog_spark.protocol.autorecovery.audit.placements import (
    PlacementCheck,
    PlacementSettings,
)
from ledgerlog_spark.protocol.autorecovery.audit.replicas import ReplicaCheck, ReplicaSettings
from ledgerlog_spark.protocol.autorecovery.audit.unknown import UnknownCopies
from ledgerlog_spark.retry import NO_LIMIT, RetryPolicy
from ledgerlog_spark.waits import forever, within

LEASE = "autorecovery-checks"
DELAY_SECONDS = 60
"""Delay in seconds that the first auditor of a cluster stores."""
POLL_SECONDS = 0.25
"""Time between two checks of the connection to the store."""
LEASE_SECONDS = 10.0
RETRY = RetryPolicy(first_delay_ms=500, delay_max_ms=30_000, attempts_max=NO_LIMIT)

Report = Callable[[str, Any], None]
"""A function that is called with the name of an event and its indication or error."""


@dataclass(frozen=True, slots=True)
class AuditServiceSettings:
    """The settings of all machines.

    Attributes:
        auditor: The settings of the auditor.
        replicas: The settings of the replica check.
        digests: The settings of the digest check.
        placement: The settings of the placement check.
        read_timeout_ms: Deadline of one request to a bookie.
    """

    auditor: AuditSettings = field(default_factory=AuditSettings)
    replicas: ReplicaSettings = field(default_factory=ReplicaSettings)
    digests: DigestSettings = field(default_factory=DigestSettings)
    placement: PlacementSettings = field(default_factory=PlacementSettings)
    read_timeout_ms: int = 10_000


def settings_at(digest_bytes_per_second: int) -> AuditServiceSettings:
    """Return settings whose digest check reads at most this number of bytes per second."""
    return AuditServiceSettings(
        digests=DigestSettings(rate_bytes_per_second=digest_bytes_per_second)
    )


class AuditService:
    """Audits a cluster until the call of `run` is cancelled."""

    def __init__(
        self,
        candidate_id: str,
        stores: MetadataStores,
        services: Services,
        transport: AuditTransport,
        report: Report,
        settings: AuditServiceSettings | None = None,
    ) -> None:
        """Create a service that sends nothing before `run`.

        Args:
            candidate_id: The id of the bookie, or `host:port` of the daemon.
            stores: The stores of the cluster.
            services: The services of a client on these stores.
            transport: Sends the requests to bookies.
            report: Function that is called with each event.
            settings: The settings of the machines.
        """
        self._id = candidate_id
        self._stores = stores_of(stores)
        self._election: AuditorElection = stores.auditor_election
        self._leases: Leases = stores.leases
        self._services = services
        self._report = report
        self._settings = settings or AuditServiceSettings()
        timeout_ms = self._settings.read_timeout_ms
        accepted = AcceptedEntries(stores.accepted_losses)
        self._copies = CopyRequests(transport, stores.registration.info, timeout_ms, accepted)
        self.is_elected = False
        self.holds_checks = False
        self._auditor: Auditor | None = None

    @property
    def lost_bookies(self) -> tuple[str, ...]:
        """The lost bookies; empty if the auditor of this process is not elected."""
        return self._auditor.lost if self._auditor is not None else ()

    async def run(self) -> None:
        """Audit until this call is cancelled. If a machine fails, report and replace it."""
        await _all([self._for_ever("auditor", self._audit), self._for_ever("checks", self._check)])

    async def _for_ever(self, name: str, turn: Callable[[], Any]) -> None:
        """Call `turn` repeatedly. After an error of the store, wait before the next call."""
        failures = 0
        while True:
            try:
                await turn()
                failures = 0
            except LedgerLogError as error:
                self._report(f"{name}_failed", error)
                failures += 1
                await asyncio.sleep(RETRY.pause_ms(failures) / 1e3)

    # Methods for the auditor.

    async def _audit(self) -> None:
        """Take part in one election. If it is won, audit until the vote is lost."""
        candidacy = await self._election.join(self._id)
        try:
            await _first(candidacy.elected, candidacy.lost)
            if not candidacy.lost.is_set():
                await self._elected(candidacy)
        finally:
            self._auditor = None
            if self.is_elected:
                self.is_elected = False
                self._report("stepped_down", self._id)
            with contextlib.suppress(LedgerLogError):
                await candidacy.leave()

    async def _elected(self, candidacy: AuditorVote) -> None:
        await self._stores.switch.initialize_delay(DELAY_SECONDS)
        position = await self._stores.times.position(Walk.LEDGERS)
        self.is_elected = True
        self._report("elected", self._id)
        machine = self._auditor = Auditor(self._settings.auditor, position.ledger_id)
        requests = self._requests(lambda: candidacy.may_publish)
        host = self._host(machine, requests)
        async with self._running(host, requests, candidacy.lost):
            cancels = self._watches(lambda: host.post(m.ClusterChanged()))
            try:
                await host.run()
            finally:
                for cancel in cancels:
                    cancel()

    def _watches(self, on_change: Callable[[], None]) -> list[CancelWatch]:
        registration, switch = self._stores.registration, self._stores.switch
        return [
            registration.watch_writable(on_change),
            registration.watch_read_only(on_change),
            switch.watch_enabled(on_change),
            switch.watch_delay(on_change),
        ]

    # Methods for the checks.

    async def _check(self) -> None:
        """Take the lease, and run the checks until the session is replaced."""
        tree = self._stores.tree
        if not await self._leases.acquire(LEASE, {"id": self._id}):
            await asyncio.sleep(LEASE_SECONDS)
            return
        session_id, lost = tree.session_id, asyncio.Event()
        cancel = tree.watch_session(lost.set)
        try:
            self.holds_checks = True
            self._report("checks_begin", self._id)
            await self._run_checks(session_id, lost)
        finally:
            self.holds_checks = False
            cancel()
            with contextlib.suppress(LedgerLogError):
                await self._leases.release(LEASE)

    async def _run_checks(self, session_id: int, lost: asyncio.Event) -> None:
        tree, settings, unknown = self._stores.tree, self._settings, UnknownCopies()

        def may_write() -> bool:
            return tree.is_connected and tree.session_id == session_id

        machines: list[AuditMachine] = [
            ReplicaCheck(unknown, settings.replicas),
            DigestCheck(unknown, settings.digests),
            PlacementCheck(settings.placement),
        ]
        await _all([self._run_check(machine, may_write, lost) for machine in machines])

    async def _run_check(
        self, machine: AuditMachine, may_write: Callable[[], bool], lost: asyncio.Event
    ) -> None:
        requests = self._requests(may_write)
        host = self._host(machine, requests)
        async with self._running(host, requests, lost):
            await host.run()

    # Methods for both the auditor and the checks.

    def _requests(self, may_write: Callable[[], bool]) -> AuditStoreRequests:
        return AuditStoreRequests(
            self._stores,
            self._services.bookies,
            may_write,
            lambda error: self._report("store_failed", error),
        )

    def _host(self, machine: AuditMachine, requests: AuditStoreRequests) -> AuditMachineHost:
        return AuditMachineHost(
            machine,
            {**requests.performs, **self._copies.performs},
            requests.stores,
            random=self._services.random,
            on_indication=lambda effect: self._report(type(effect).__name__, effect),
        )

    @contextlib.asynccontextmanager
    async def _running(
        self, host: AuditMachineHost, requests: AuditStoreRequests, lost: asyncio.Event
    ) -> AsyncIterator[None]:
        """Notify the machine when the connection is lost or returns, and when the session ends."""
        watching = asyncio.create_task(self._watch_session(host, lost))
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await requests.close()

    async def _watch_session(self, host: AuditMachineHost, lost: asyncio.Event) -> None:
        was_connected = True
        while not lost.is_set():
            is_connected = self._stores.tree.is_connected
            if is_connected is not was_connected:
                host.post(m.StoreResumed() if is_connected else m.StoreSuspended())
            was_connected = is_connected
            with contextlib.suppress(TimeoutError):
                await within(lost.wait(), POLL_SECONDS)
        host.post(m.SessionEnded())


def stores_of(stores: MetadataStores) -> AuditStores:
    """Select, from all stores of a cluster, the stores that the audit uses."""
    return AuditStores(
        tree=stores.tree,
        ledgers=stores.ledgers,
        registration=stores.registration,
        marks=stores.marks,
        holes=stores.holes,
        moves=stores.moves,
        switch=stores.recovery_switch,
        times=stores.check_times,
    )


async def _all(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all coroutines. If one fails, cancel the other coroutines and raise its error."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await forever(
            asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION),
            "each coroutine ends with the session, or is cancelled by the caller",
        )
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _first(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await forever(
            asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED),
            "a vote wins the election, or is lost with its session",
        )
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
