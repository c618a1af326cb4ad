"""The life of a bookie, from its settings to its stop.

A starting bookie locks the directory, binds the ports, connects to the metadata store, checks the
cookie, opens and replays storage, serves, and registers. A stopping bookie withdraws the
registration, accepts no more requests, answers accepted requests for a limited time, and closes
storage. A permanent failure of storage stops it too.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bookie_server.config import BookieSettings
from bookie_server.core.directory_identity import FoundOutside, identity_of
from bookie_server.core.disk_use import DiskLevel, DiskSettings
from bookie_server.core.manifest_codec import NAME as MANIFEST
from bookie_server.core.settings import ModeSettings, StorageSettings
from bookie_server.descriptors import CALLERS_MAX, FILES_MAX
from bookie_server.errors import StorageError
from bookie_server.service.admin.routes import AdminApplication
from bookie_server.service.admin.server import AdminServer
from bookie_server.service.admin.view import BookieView
from bookie_server.service.collector import Collected, Collector
from bookie_server.service.compaction_clock import CompactionClock
from bookie_server.service.limits.lanes import Lanes, lane_gauges
from bookie_server.service.logging import fields_of, get_logger
from bookie_server.service.membership.cookie_check import check_cookies
from bookie_server.service.membership.directory_record import DirectoryRecord
from bookie_server.service.membership.ledger_records import StoreLedgerListing, StoreMetadataCheck
from bookie_server.service.membership.registration import BookieRegistration, SessionFile
from bookie_server.service.metrics.counters import ServiceCollector, ServiceCounters
from bookie_server.service.metrics.durations import Durations
from bookie_server.service.metrics.loop_lag import LoopLag
from bookie_server.service.port_claim import claim
from bookie_server.service.repair.progress import RepairProgress, repair_gauges
from bookie_server.service.v2.server import V2Server, listen
from bookie_server.service.v2.shared import V2Shared
from bookie_server.storage.compaction.cycle import Compacted
from bookie_server.storage.device.filesystem import OsFileSystem
from bookie_server.storage.device.runtime import OsClock, OsTasks
from bookie_server.storage.files.manifest import ManifestStore, initialize_directory
from bookie_server.storage.ledger_storage import LedgerStorage
from bookie_server.storage.modes.setup import creation_of, missing_journal
from bookie_server.storage.shared import Shared
from ledgerlog_spark.errors import StartupError
from ledgerlog_spark.metadata.stores import MetadataStores, open_metadata
from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX, BookieInfo
from ledgerlog_spark.wire.registration import OPERATIONS, OPERATIONS_PROPERTY

if TYPE_CHECKING:
    from bookie_server.service.grpc.server import GrpcServer
    from bookie_server.service.grpc.service import BookieServicer
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
        self._before_serving = before_serving  # called after the replay
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
        self._found = FoundOutside()
        self._storage: LedgerStorage | None = None
        self._registration: BookieRegistration | None = None

    @property
    def failure(self) -> Exception | None:
        """The error that ended storage, or None while storage works."""
        return None if self._storage is None else self._storage.failure

    async def start(self) -> None:
        """Start all parts, and return after the bookie is registered."""
        settings, closers = self.settings, self._closers
        try:
            files = self._directory(str(settings.directories[0]))
            await files.lock()
            closers.push_async_callback(files.unlock)
            self._require_journal()
            listener = listen(settings.bind_address, settings.port)
            closers.callback(listener.close)
            self.port = listener.getsockname()[1]
            closers.callback(self._claims.close)
            self._claim_grpc_port()
            self._open_admin_port()
            stores = await self._reach_metadata()
            await self._check_cookies(stores, files)
            record = await self._check_directory(stores, files)
            self._storage = await self._open_storage(files, stores)
            closers.push_async_callback(self._storage.close)
            await record.begin(self._storage)
            record.follow(self._tasks, settings.change_interval_ms)
            self._storage.losses.on_raised = partial(self._note_doubt, record)
            record.note_doubt(self._tasks)  # of this start, or of one that could not date it
            closers.callback(record.stop)
            collector = self._make_collector(self._storage, stores)
            repair = self._make_repair(self._storage, stores, files, collector)
            self._before_serving()
            await self._serve(listener, self._storage, collector, repair)
            await self._register(stores, self._storage)
            collector.start()
            repair.repairs.start()
            self._start_compaction(self._storage)
            self._view.is_running = True
        except BaseException:
            await closers.aclose()
            raise

    def _require_journal(self) -> None:
        """Refuse a first start without its journal directory, before the cookie is written.

        Otherwise, the cluster would have a bookie that never started. Storage checks later starts.
        """
        journal, directory = self.settings.journal_directory, self.settings.directories[0]
        if journal is not None and not journal.exists() and not (directory / MANIFEST).exists():
            raise missing_journal(str(journal), creation_of(str(journal)))

    def _directory(self, path: str) -> OsFileSystem:
        files = OsFileSystem(
            Path(path), lambda notice: _logger.warning("file_system", path=path, notice=notice)
        )
        files.on_sync = self._sync_times.note
        return files

    async def close(self) -> None:
        """Withdraw the registration, answer accepted requests for a limited time, close storage."""
        self._view.stop()
        await self._closers.aclose()

    def _claim_grpc_port(self) -> None:
        """Bind the port before the cookie is written, because its server starts last."""
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
        await stores.initialize()
        return stores

    async def _check_cookies(self, stores: MetadataStores, files: OsFileSystem) -> None:
        try:
            await check_cookies(
                stores.registration,
                self.bookie_id,
                self.settings.directories,
                partial(initialize_directory, files),
                stores.known_bookies,
                allow_lost_directory=self.settings.allow_lost_directory,
            )
        except OSError as error:
            raise StartupError(
                f"cannot use {error.filename or self.settings.directories[0]}: {error.strerror}"
            ) from error

    async def _check_directory(
        self, stores: MetadataStores, files: OsFileSystem
    ) -> DirectoryRecord:
        """Compare the directory with the bookie's record, before the storage changes a file."""
        record = DirectoryRecord(stores.known_bookies, self.bookie_id, files.path)
        manifest = await ManifestStore(files).read(await files.names())
        self._found = await record.check(identity_of(manifest))
        self._closers.push_async_callback(record.close, self.settings.drain_timeout_ms)
        return record

    async def _open_storage(self, files: OsFileSystem, stores: MetadataStores) -> LedgerStorage:
        self._tasks = tasks = OsTasks(self._crashed)
        self._closers.push_async_callback(tasks.aclose)
        limits = StorageSettings(
            file_size_bytes=self.settings.file_size_bytes,
            free_bytes_min=self.settings.free_bytes_min,
            open_files_max=self._open_files_max,
            # At this limit, storage would answer BUSY. The limits of the lanes are smaller, so
            # peers wait before storage reaches its limit.
            in_flight_bytes_max=self.settings.in_flight_bytes_max,
            mode_settings=ModeSettings(
                write_mode=self.settings.write_mode,
                journal_directory=str(self.settings.journal_directory or ""),
                journal_sync_data=self.settings.journal_sync_data,
                journal_files=self.settings.journal_files,
                checkpoint_interval_ms=self.settings.checkpoint_interval_ms,
                group_wait_ms=self.settings.group_wait_ms,
            ),
            compaction_minor_percent=self.settings.compaction_minor_percent,
            compaction_major_percent=self.settings.compaction_major_percent,
            compaction_minor_interval_ms=self.settings.compaction_minor_interval_ms,
            compaction_major_interval_ms=self.settings.compaction_major_interval_ms,
            compaction_bytes_per_s=self.settings.compaction_bytes_per_s,
            disk=DiskSettings(
                self.settings.disk_usage_warn,
                self.settings.disk_usage_max,
                self.settings.disk_usage_low_water,
                self.settings.disk_check_interval_ms,
            ),
        )
        metadata = StoreMetadataCheck(stores.ledgers, self.bookie_id, limits.metadata_check_ms)
        shared = Shared(files, OsClock(), tasks, limits, metadata, self._directory)
        shared.on_failed_read, shared.on_failed_add = _log_failed_read, _log_failed_add
        shared.found = self._found
        storage = await LedgerStorage.open(shared)
        for reason in storage.found_losses:
            _logger.warning("doubt_raised", epoch=storage.doubt.epoch, reason=reason)
        return storage

    def _make_collector(self, storage: LedgerStorage, stores: MetadataStores) -> Collector:
        collector = Collector(
            storage=storage,
            listing=StoreLedgerListing(stores.ledgers, stores.registration, self.bookie_id),
            tasks=self._tasks,
            interval_ms=self.settings.gc_interval_ms,
            on_pass=self._log_pass,
        )
        self._closers.callback(collector.stop)
        return collector

    def _make_repair(
        self,
        storage: LedgerStorage,
        stores: MetadataStores,
        files: OsFileSystem,
        collector: Collector,
    ) -> BookieRepair:
        # Imported only here, as in `_serve`: a start that is refused needs no client.
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

    def _start_compaction(self, storage: LedgerStorage) -> None:
        storage.compactor.on_compacted = self._log_compaction
        clock = CompactionClock(storage.compactor, self._tasks)
        clock.start()
        self._closers.callback(clock.stop)

    def _log_compaction(self, compacted: Compacted) -> None:
        self._view.note_compaction(compacted)
        if compacted.files_freed or compacted.files_withdrawn:
            _logger.info("compacted", **asdict(compacted))

    def _log_pass(self, collected: Collected) -> None:
        self._view.note_pass(collected)
        if collected.ledgers_dropped or not collected.is_whole:
            _logger.info("collected", **asdict(collected))

    async def _serve(
        self,
        listener: socket.socket,
        storage: LedgerStorage,
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
            )
            metrics = ServiceCollector(
                self._counters, gauges, storage.counters.by_metric, loop_lag, self._sync_times
            )
            self._view.serve(storage, collector, metrics, repair.progress)

    async def _register(self, stores: MetadataStores, storage: LedgerStorage) -> None:
        settings = self.settings
        forget = await SessionFile(settings.directories[0]).take_over(stores.tree)
        self._closers.callback(forget)
        registration = BookieRegistration(
            stores.registration,
            BookieInfo(
                bookie_id=self.bookie_id,
                host=settings.host,
                port=self.port,
                grpc_port=self.grpc_port,
                properties={OPERATIONS_PROPERTY: ",".join(OPERATIONS)},
            ),
        )
        await registration.start(read_only=not storage.is_writable)
        self._closers.push_async_callback(registration.stop)
        self._registration = registration
        storage.on_state_change = self._storage_changed
        self._storage_changed()
        storage.on_disk_level = self._log_disk_level
        if storage.disk.level is not DiskLevel.NORMAL:
            self._log_disk_level()

    def _crashed(self, name: str, error: BaseException) -> None:
        """Stop after an exception in a task of storage, which is a bug."""
        _logger.error("task_crashed", task=name, exc_info=error)
        self.crash = error
        self.failed.set()

    def _storage_changed(self) -> None:
        assert self._storage is not None, "storage reports before it is open"
        assert self._registration is not None, "storage reports before the bookie is registered"
        if self._storage.failure is not None:
            self.failed.set()
        self._registration.set_read_only(read_only=not self._storage.is_writable)

    def _note_doubt(self, record: DirectoryRecord) -> None:
        """Date a doubt that the storage has raised while the bookie serves."""
        assert self._storage is not None, "storage reports before it is open"
        _logger.warning("doubt_raised", epoch=self._storage.doubt.epoch)
        record.note_doubt(self._tasks)

    def _log_disk_level(self) -> None:
        """Write one line for each change of the level of the device."""
        assert self._storage is not None, "storage reports before it is open"
        disk = self._storage.disk
        log = _logger.info if disk.level is DiskLevel.NORMAL else _logger.warning
        log(
            "disk_level_changed",
            disk_level=disk.level.value,
            used_part=round(disk.space.used_part, 4),
            free_bytes=disk.space.free,
            total_bytes=disk.space.total,
        )


def _log_failed_read(ledger_id: int, entry_id: int, peer: object, error: StorageError) -> None:
    about = {"ledger_id": ledger_id, "entry_id": entry_id, "peer": peer}
    _logger.warning("read_failed", **{**fields_of(error), **about})


def _log_failed_add(ledger_id: int, entry_id: int, peer: object, error: StorageError) -> None:
    about = {"ledger_id": ledger_id, "entry_id": entry_id, "peer": peer}
    _logger.warning("add_failed", **{**fields_of(error), **about})


def bookie_gauges(
    view: BookieView,
    storage: LedgerStorage,
    v2: V2Server,
    grpc: GrpcServer,
    servicer: BookieServicer,
    lanes: Lanes,
    repair: RepairProgress,
    log_lines_dropped: Callable[[], int],
) -> dict[str, Callable[[], float]]:
    """Return a map from gauge names without prefix to the functions that return the values."""
    return {
        "connections": lambda: v2.connections_count,
        "ledgers": lambda: storage.ledgers_count,
        "writable": view.status_number,
        "entry_log_files": lambda: storage.files_count,
        "doubt_epoch": lambda: storage.doubt.epoch,
        "in_doubt": lambda: not storage.doubt.is_over,
        "ledgers_in_limbo": lambda: storage.ledgers_in_limbo,
        "disk_used_part": lambda: storage.disk.space.used_part,
        "disk_free_bytes": lambda: storage.disk.space.free,
        "disk_total_bytes": lambda: storage.disk.space.total,
        "disk_is_high": lambda: storage.disk.level is not DiskLevel.NORMAL,
        "calls": lambda: grpc.call_slots.count,
        "calls_refused": lambda: grpc.call_slots.refused,
        "calls_ended": lambda: grpc.call_slots.ended,
        "watches": lambda: servicer.watch_slots.count,
        "watches_refused": lambda: servicer.watch_slots.refused,
        "watches_ended": lambda: servicer.watch_slots.ended,
        "log_lines_dropped": log_lines_dropped,
        **repair_gauges(repair),
        **lane_gauges(lanes),
    }
