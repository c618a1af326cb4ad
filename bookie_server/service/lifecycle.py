"""Starts and stops a bookie.

A starting bookie locks the directory, binds the ports, connects to the metadata store, checks the
cookie, opens and replays storage, serves, and registers. A stopping bookie withdraws the
registration, accepts no more requests, answers accepted requests for a limited time, and closes
storage. A permanent failure of storage also stops the bookie.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bookie_server.config import BookieSettings
from bookie_server.core.directory_identity import FoundOutside, identity_of
from bookie_server.core.manifest_codec import NAME as MANIFEST
from bookie_server.core.manifest_codec import Manifest
from bookie_server.descriptors import CALLERS_MAX, FILES_MAX
from bookie_server.errors import CookieMismatchError, lost_directory_advice
from bookie_server.service.admin.routes import AdminApplication
from bookie_server.service.admin.server import AdminServer
from bookie_server.service.admin.view import BookieView
from bookie_server.service.background_clock import BackgroundClock, log_compactions, log_scrubs
from bookie_server.service.collector import Collected, Collector
from bookie_server.service.devices import Devices
from bookie_server.service.limits.lanes import Lanes
from bookie_server.service.logging import get_logger
from bookie_server.service.membership.cookie_check import (
    COOKIE_FILE,
    CheckedCookie,
    WantedChange,
    check_cookies,
)
from bookie_server.service.membership.directory_changes import (
    add_directories,
    found_removal,
    manifest_of,
    removal,
)
from bookie_server.service.membership.directory_record import DirectoryRecord
from bookie_server.service.membership.ledger_records import (
    StoreLedgerListing,
    StoreLedgerRecords,
    StoreMetadataCheck,
)
from bookie_server.service.membership.registration import BookieRegistration, SessionFile
from bookie_server.service.membership.vacation import OwnVacation
from bookie_server.service.metrics.counters import ServiceCollector, ServiceCounters
from bookie_server.service.metrics.durations import Durations
from bookie_server.service.metrics.gauges import AutoRecoveryNumbers, bookie_gauges
from bookie_server.service.metrics.loop_lag import LoopLag
from bookie_server.service.port_claim import claim
from bookie_server.service.read_only import ReadOnlyReason, ReadOnlySwitch
from bookie_server.service.releaser import Releaser
from bookie_server.service.storage_start import (
    StorageReports,
    directory_at,
    log_failed_add,
    log_failed_read,
    storage_settings,
)
from bookie_server.service.v2.server import V2Server, listen
from bookie_server.service.v2.shared import V2Shared
from bookie_server.storage.device.filesystem import OsFileSystem
from bookie_server.storage.device.runtime import OsClock, OsTasks
from bookie_server.storage.directories.opening import BookieStorage, naming, open_directories
from bookie_server.storage.files.manifest import initialize_directory
from bookie_server.storage.modes.setup import creation_of, missing_journal
from bookie_server.storage.shared import Shared
from ledgerlog_spark.errors import StartupError
from ledgerlog_spark.metadata.stores import MetadataStores, open_metadata
from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX, BookieInfo
from ledgerlog_spark.wire.registration import registered_properties

if TYPE_CHECKING:
    from bookie_server.service.repair.composed import BookieRepair

_logger = get_logger("lifecycle")


class Bookie:
    """One bookie process. Its parts start in order, and stop in the reverse order."""

    def __init__(
        self,
        settings: BookieSettings,
        open_files_max: int = FILES_MAX,
        callers_max: int = CALLERS_MAX,
        before_serving: Callable[[], None] = lambda: None,
        log_lines_dropped: Callable[[], int] = lambda: 0,
    ) -> None:
        self._log_lines_dropped = log_lines_dropped
        self._before_serving = before_serving  # called when storage has replayed its files
        self.settings = settings
        self._open_files_max = open_files_max
        self._callers_max = callers_max
        self.bookie_id = settings.bookie_id or f"{settings.host}:{settings.port}"
        self.port = settings.port
        self.grpc_port = settings.grpc_port
        self.failed = asyncio.Event()  # set after a permanent failure or a crash of storage
        self.crash: BaseException | None = None  # an unexpected exception, which is a bug
        self._counters = ServiceCounters()
        self._sync_times = Durations()
        self._view = BookieView(settings, self.bookie_id)
        self._lanes = Lanes.of(settings)
        self._closers = contextlib.AsyncExitStack()
        self._claims = contextlib.ExitStack()
        self._found: Sequence[FoundOutside] = ()
        self._storage: BookieStorage | None = None
        self._registration: BookieRegistration | None = None
        self._auto_recovery_numbers: Callable[[], AutoRecoveryNumbers] = AutoRecoveryNumbers

    @property
    def failure(self) -> Exception | None:
        """The error that ended storage, or None while storage works."""
        return None if self._storage is None else self._storage.failure

    @property
    def directory_failure(self) -> Exception | None:
        """The error of the first directory that has failed, or None if no directory has failed."""
        directories = () if self._storage is None else self._storage.directories
        return next((each.failure for each in directories if each.failure is not None), None)

    async def start(self) -> None:
        """Start all parts, and return after the bookie is registered."""
        settings, closers = self.settings, self._closers
        try:
            directories = await self._lock_directories()
            self._require_journals()
            listener = listen(settings.bind_address, settings.port)
            closers.callback(listener.close)
            self.port = listener.getsockname()[1]
            closers.callback(self._claims.close)
            self._claim_grpc_port()
            self._open_admin_port()
            stores = await self._reach_metadata()
            await self._require_alone(stores)
            self._vacation = OwnVacation(stores.vacations, self.bookie_id)
            await self._vacation.note_return()
            checked = await self._check_cookies(stores, directories)
            record = await self._check_directories(stores, directories, checked)
            self._storage = await self._open_storage(stores, directories, checked)
            closers.push_async_callback(self._storage.close)
            self._read_only = ReadOnlySwitch(self._storage)
            await record.begin(self._storage.directories, removal(checked, directories))
            record.follow(self._tasks, settings.change_interval_ms)
            self._storage.losses.on_raised = partial(self._note_doubt, record)
            record.note_doubt(self._tasks)  # a doubt from this start or an earlier start
            closers.callback(record.stop)
            collector = self._make_collector(self._storage, stores)
            repair = self._make_repair(self._storage, stores, directories[0], collector)
            self._before_serving()
            await self._serve(listener, self._storage, collector, repair)
            await self._register(stores, self._storage)
            collector.start()
            repair.repairs.start()
            self._start_auto_recovery(stores)
            self._start_background_work(self._storage)
            self._view.is_running = True
        except BaseException:
            await closers.aclose()
            raise

    async def _lock_directories(self) -> list[OsFileSystem]:
        locked = []
        for place in self.settings.places:
            files = self._directory(str(place.path))
            self._closers.push_async_callback(files.unlock)
            with naming(files.path, len(self.settings.places)):
                await files.lock()
            locked.append(files)
        return locked

    def _require_journals(self) -> None:
        """Refuse a first start without a journal directory, before the cookie is written.

        Otherwise, the cluster would have a bookie that never started. At later starts, storage
        makes this check.
        """
        for path, journal in self.settings.places:
            is_missing = journal is not None and not journal.exists()
            if is_missing and not (path / MANIFEST).exists():
                raise missing_journal(str(journal), creation_of(str(journal)))

    def _directory(self, path: str) -> OsFileSystem:
        return directory_at(path, self._sync_times.note, len(self.settings.places))

    async def close(self) -> None:
        """Withdraw the registration, answer accepted requests in limited time, close storage."""
        self._view.stop()
        await self._closers.aclose()

    def _claim_grpc_port(self) -> None:
        """Bind the gRPC port before the cookie is written. The gRPC server starts later."""
        settings = self.settings
        if settings.grpc_port:
            self._claims.enter_context(
                claim(settings.bind_address, settings.grpc_port, "grpc_port")
            )

    def _open_admin_port(self) -> None:
        """Serve the metrics port for the whole life of the bookie, including its start and stop."""
        settings = self.settings
        if settings.metrics_port is not None:
            application = AdminApplication(self._view)
            admin = AdminServer(settings.bind_address, settings.metrics_port, application)
            self._closers.callback(admin.close)

    async def _reach_metadata(self) -> MetadataStores:
        settings = self.settings
        stores = await open_metadata(
            settings.metadata_service_uri,
            session_timeout_ms=settings.session_timeout_ms,
            connect_timeout_ms=settings.metadata_wait_ms,
            request_timeout_ms=settings.metadata_wait_ms,
        )
        self._closers.push_async_callback(stores.close)
        used = [one.path for one in settings.places if (one.path / COOKIE_FILE).exists()]
        if used and not await stores.registration.has_cluster():
            raise CookieMismatchError(
                f"the data in {used[0]} belongs to another cluster: there is no cluster at "
                f"{settings.metadata_service_uri}, and none was created; check the metadata "
                "service URI. If the cluster was deleted, format the directory with `ledgerlog "
                "bookie format --force`",
                bookie_id=self.bookie_id,
                path=str(used[0]),
            )
        await stores.initialize()
        return stores

    async def _require_alone(self, stores: MetadataStores) -> None:
        """Wait until no other process has this bookie id, before this start changes stored data.

        Otherwise, a process with a copy of the directory of a running bookie would increase the
        counters in the bookie's record. Then the copy would count as the newest directory, although
        it lacks later entries.
        """
        await SessionFile(self.settings.places[0].path).end_last(stores.tree)
        await stores.registration.wait_until_alone(self.bookie_id)

    async def _check_cookies(
        self, stores: MetadataStores, directories: Sequence[OsFileSystem]
    ) -> CheckedCookie:
        settings = self.settings

        async def initialize(first: Manifest | None) -> None:
            for each in directories:
                await initialize_directory(each, first)

        try:
            checked = await check_cookies(
                stores.registration,
                self.bookie_id,
                [place.path for place in settings.places],
                initialize,
                stores.known_bookies,
                WantedChange(
                    settings.without_directories,
                    settings.allow_storage_expansion,
                    settings.allow_lost_directory,
                ),
            )
            if checked.added:
                await add_directories(stores.known_bookies, checked, directories)
        except OSError as error:
            path = Path(error.filename or settings.places[0].path)
            advice = lost_directory_advice(path.parent, len(settings.places))
            raise StartupError(f"cannot use {path}: {error.strerror}. {advice}") from error
        return checked

    async def _check_directories(
        self, stores: MetadataStores, directories: Sequence[OsFileSystem], checked: CheckedCookie
    ) -> DirectoryRecord:
        """Compare the directories with the bookie's record, before the storage changes a file."""
        paths = [each.path for each in directories]
        record = DirectoryRecord(stores.known_bookies, self.bookie_id, paths)
        identities = []
        for each in directories:
            with naming(each.path, len(directories)):
                identities.append(identity_of(await manifest_of(each)))
        self._found = await record.check(identities, may_miss=bool(checked.removed))
        self._closers.push_async_callback(record.close, self.settings.drain_timeout_ms)
        return record

    async def _open_storage(
        self, stores: MetadataStores, directories: Sequence[OsFileSystem], checked: CheckedCookie
    ) -> BookieStorage:
        self._tasks = tasks = OsTasks(self._crashed)
        self._closers.push_async_callback(tasks.aclose)
        parts = []
        for files, place, found in zip(directories, self.settings.places, self._found, strict=True):
            limits = storage_settings(self.settings, place.journal, self._open_files_max)
            metadata = StoreMetadataCheck(stores.ledgers, self.bookie_id, limits.metadata_check_ms)
            shared = Shared(files, OsClock(), tasks, limits, metadata, self._directory)
            shared.on_failed_read, shared.on_failed_add = log_failed_read, log_failed_add
            shared.found = found_removal(checked, found)
            parts.append(shared)
        storage = await open_directories(parts)
        for directory in storage.directories:
            for reason in directory.found_losses:
                _logger.warning(
                    "doubt_raised",
                    directory=directory.path,
                    epoch=storage.doubt.epoch,
                    reason=reason,
                )
        return storage

    def _make_collector(self, storage: BookieStorage, stores: MetadataStores) -> Collector:
        records = StoreLedgerRecords(stores.ledgers, stores.replication_locks, self.bookie_id)
        collector = Collector(
            storage=storage,
            listing=StoreLedgerListing(stores.ledgers, stores.registration, self.bookie_id),
            releaser=Releaser(storage, records, self._tasks, self.bookie_id),
            tasks=self._tasks,
            interval_ms=self.settings.gc_interval_ms,
            on_pass=self._log_pass,
        )
        self._closers.callback(collector.stop)
        return collector

    def _make_repair(
        self,
        storage: BookieStorage,
        stores: MetadataStores,
        files: OsFileSystem,
        collector: Collector,
    ) -> BookieRepair:
        # Imported only here, because a start that is refused does not need the client.
        from bookie_server.service.repair.composed import BookieRepair

        repair = BookieRepair(
            self.bookie_id,
            self.settings,
            storage,
            stores,
            files,
            self._tasks,
            OsClock(),
            on_deleted=collector.request,
        )
        self._closers.push_async_callback(repair.stop)
        return repair

    def _start_auto_recovery(self, stores: MetadataStores) -> None:
        if not self.settings.autorecovery:
            return
        from bookie_server.service.auto_recovery import BookieAutoRecovery

        recovery = BookieAutoRecovery(self.bookie_id, self.settings, stores)
        recovery.start()
        self._auto_recovery_numbers = recovery.numbers
        self._closers.push_async_callback(recovery.stop)

    def _start_background_work(self, storage: BookieStorage) -> None:
        for directory in storage.directories:
            log_compactions(directory.compactor, directory.path, self._view.note_compaction)
            log_scrubs(directory.scrubber)
            self._start_clock(BackgroundClock(directory.compactor, directory.scrubber, self._tasks))

    def _start_clock(self, clock: BackgroundClock) -> None:
        clock.start()
        self._closers.callback(clock.stop)

    def _log_pass(self, collected: Collected) -> None:
        self._view.note_pass(collected)
        has_changed = collected.ledgers_dropped or collected.ledgers_released
        if has_changed or collected.ledgers_kept or not collected.is_whole:
            _logger.info("collected", **asdict(collected))

    async def _serve(
        self,
        listener: socket.socket,
        storage: BookieStorage,
        collector: Collector,
        repair: BookieRepair,
    ) -> None:
        # Imported only here, because the import of grpc takes 0.2 s, and a start that is refused
        # does not need it.
        from bookie_server.service.grpc.limbo import LimboCalls
        from bookie_server.service.grpc.server import GrpcServer
        from bookie_server.service.grpc.service import BookieServicer

        settings = self.settings
        v2 = V2Server(settings, V2Shared(settings, storage, self._lanes, self._counters))
        await v2.start(listener)
        self._closers.push_async_callback(v2.stop, settings.drain_timeout_ms)
        devices = Devices(storage)
        servicer = BookieServicer(
            self.bookie_id,
            storage,
            collector,
            LimboCalls(storage, repair.progress, repair.acceptance),
            self._lanes,
            self._counters,
            lambda: v2.connections_count,
            settings.watches_max,
            min(settings.frame_size_bytes_max, FRAME_SIZE_BYTES_MAX),
            lambda: devices.space,
        )
        v2.sweeper.others.append(servicer.relieve)
        grpc = GrpcServer(settings, servicer, self._callers_max)
        self._claims.close()
        self.grpc_port = await grpc.start()
        self._closers.push_async_callback(grpc.stop, settings.drain_timeout_ms)
        if settings.metrics_port is not None:
            loop_lag = LoopLag()
            loop_lag.start()
            self._closers.callback(loop_lag.stop)
            gauges = bookie_gauges(
                self._view,
                storage,
                v2,
                grpc,
                servicer,
                self._lanes,
                repair.progress,
                self._log_lines_dropped,
                lambda: self._auto_recovery_numbers(),  # noqa: PLW0108 - set after this
            )
            metrics = ServiceCollector(
                self._counters,
                gauges,
                storage.counters.by_metric,
                loop_lag,
                self._sync_times,
                storage.directories,
            )
            self._view.serve(storage, collector, metrics, repair.progress, self._read_only)

    async def _register(self, stores: MetadataStores, storage: BookieStorage) -> None:
        settings = self.settings
        self._closers.callback(SessionFile(settings.places[0].path).follow(stores.tree))
        registration = BookieRegistration(
            stores.registration,
            BookieInfo(
                bookie_id=self.bookie_id,
                host=settings.host,
                port=self.port,
                grpc_port=self.grpc_port,
                properties=registered_properties(settings.rack, settings.region),
            ),
            partial(Devices(storage).usable_bytes, settings.free_bytes_min),
        )
        self._set_vacation(await self._vacation.is_read_only())
        await registration.start(read_only=not storage.is_writable)
        self._closers.push_async_callback(registration.stop)
        self._registration = registration
        self._reports = StorageReports(storage)
        storage.on_state_change = self._storage_changed
        self._storage_changed()
        self._vacation.follow(self._set_vacation)
        self._closers.push_async_callback(self._vacation.stop)

    def _set_vacation(self, is_read_only: bool) -> None:
        self._read_only.set(ReadOnlyReason.VACATION, is_read_only=is_read_only)

    def _crashed(self, name: str, error: BaseException) -> None:
        """Stop the bookie, because a task of storage raised an exception, which is a bug."""
        _logger.error("task_crashed", task=name, exc_info=error)
        self.crash = error
        self.failed.set()

    def _storage_changed(self) -> None:
        assert self._storage is not None, "storage reports before it is open"
        assert self._registration is not None, "storage reports before the bookie is registered"
        self._reports.report_failures()
        if self._storage.failure is not None:
            self.failed.set()
        self._registration.set_read_only(read_only=not self._storage.is_writable)

    def _note_doubt(self, record: DirectoryRecord) -> None:
        """Store the transaction id of an epoch of doubt that began while the bookie serves."""
        assert self._storage is not None, "storage reports before it is open"
        _logger.warning("doubt_raised", epoch=self._storage.doubt.epoch)
        record.note_doubt(self._tasks)

    from bookie_server.service.repair.composed import BookieRepair
