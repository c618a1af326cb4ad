"""The blocking API of logs, for Spark's driver and workers."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.log.blocking.maintenance import BlockingLogMaintenance
from ledgerlog_spark.log.logs import logs_of
from ledgerlog_spark.log.picture import Picture, picture_of
from ledgerlog_spark.log.reading.begun_range import BegunRange
from ledgerlog_spark.protocol.ledger.read_room import ReadRoom
from ledgerlog_spark.protocol.log.commit.epoch import JobKind
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind, WriteMode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.client.client import LedgerClient
    from ledgerlog_spark.log.committing.job import Job
    from ledgerlog_spark.log.committing.range_writer import RangeWriter
    from ledgerlog_spark.log.log import Log
    from ledgerlog_spark.log.logs import Logs
    from ledgerlog_spark.log.maintenance.sweeper import Swept
    from ledgerlog_spark.metadata.ports import CancelWatch, OnChange
    from ledgerlog_spark.model import LedgerMetadata
    from ledgerlog_spark.protocol.log.commit.result import CommitResult
    from ledgerlog_spark.protocol.log.read.versions import LogState
    from ledgerlog_spark.protocol.log.read.view import LogView
    from ledgerlog_spark.protocol.log.state.records import LogSnapshot, StagedRange, VersionInterval

T = TypeVar("T")


class BlockingLogs:
    """The logs of the cluster that a blocking client is connected to; same calls as `Logs`."""

    def __init__(self, client: BlockingClient) -> None:
        """Logs that end with the client."""
        self._client = client

    def create(
        self,
        name: str,
        *,
        schema: bytes = b"",
        properties: Mapping[str, str] | None = None,
        kind: LogKind = LogKind.TRANSACTIONAL,
        content: LogContent = LogContent.ROWS,
    ) -> BlockingLog:
        """See `Logs.create`."""
        return self._log(
            lambda logs: logs.create(
                name, schema=schema, properties=properties, kind=kind, content=content
            )
        )

    def open(self, name: str) -> BlockingLog:
        """See `Logs.open`."""
        return self._log(lambda logs: logs.open(name))

    def open_or_create(
        self, name: str, *, schema: bytes = b"", properties: Mapping[str, str] | None = None
    ) -> BlockingLog:
        """See `Logs.open_or_create`."""
        return self._log(
            lambda logs: logs.open_or_create(name, schema=schema, properties=properties)
        )

    def open_job(self, job: Job) -> BlockingLog:
        """The log of a job, without asking the store."""
        return BlockingLog(self._client, job.log, job.log_id)

    def open_by_id(self, name: str, log_id: str) -> BlockingLog:
        """The log of that id, without asking the store."""
        return BlockingLog(self._client, name, log_id)

    def records(self, ledger_ids: Sequence[int]) -> dict[int, LedgerMetadata]:
        """Records of ledgers for `remember`; see `LedgerClient.recent_records`."""
        return self._client.run(lambda client: client.recent_records(ledger_ids))

    def remember(self, records: Mapping[int, LedgerMetadata]) -> None:
        """Read listed ranges under these records, which another client has read lately."""

        async def remembered(client: LedgerClient) -> None:
            client.remember(records)

        self._client.run(remembered)

    def names(self) -> Sequence[str]:
        """See `Logs.names`."""
        return self._client.run(lambda client: logs_of(client).names())

    def now_ms(self) -> int:
        """See `Logs.now_ms`."""
        return self._client.run(lambda client: logs_of(client).now_ms())

    def watch_names(self, on_change: OnChange) -> CancelWatch:
        """See `Logs.watch_names`; `on_change` runs on the client's thread and must not block."""

        async def watched(client: LedgerClient) -> CancelWatch:
            return logs_of(client).watch_names(on_change)

        return _on_loop(self._client, self._client.run(watched))

    def owner(self, ledger_id: int) -> str | None:
        """See `Logs.owner`."""
        return self._client.run(lambda client: logs_of(client).owner(ledger_id))

    def seal(self, ledger_id: int, *, password: bytes = b"") -> LedgerMetadata:
        """See `Logs.seal`."""
        return self._client.run(lambda client: logs_of(client).seal(ledger_id, password=password))

    def delete(self, name: str) -> None:
        """See `Logs.delete`."""
        self._client.run(lambda client: logs_of(client).delete(name))

    def sweep(self) -> tuple[list[Swept], list[LedgerLogError]]:
        """One pass of the sweeper over every log; see `Sweeper.sweep_all`."""
        return self._client.run(lambda client: logs_of(client).sweeper().sweep_all())

    def _log(self, work: Callable[[Logs], Coroutine[Any, Any, Log]]) -> BlockingLog:
        log = self._client.run(lambda client: work(logs_of(client)))
        return BlockingLog(self._client, log.name, log.log_id)


def _on_loop(client: BlockingClient, cancel: CancelWatch) -> CancelWatch:
    """The same, to be called on any thread."""

    async def cancelled() -> None:
        cancel()

    return lambda: client.run(lambda _: cancelled())


class BlockingLog(BlockingLogMaintenance):
    """One transactional log; same calls and errors as `Log`, without `await`.

    Attributes:
        name: The name it was opened under.
        log_id: Its id.
    """

    def __init__(self, client: BlockingClient, name: str, log_id: str) -> None:
        self.name = name
        self.log_id = log_id
        self._client = client

    def state(self, *, is_fresh: bool = True) -> LogState:
        """See `Log.state`."""
        return self._run(lambda log: log.state(is_fresh=is_fresh))

    def snapshot(self, version: int | None = None) -> LogSnapshot:
        """See `Log.snapshot`."""
        return self._run(lambda log: log.snapshot(version))

    def history(self) -> tuple[VersionInterval, ...]:
        """See `Log.history`."""
        return self._run(lambda log: log.history())

    def view(
        self,
        first_offset: int = 0,
        *,
        seen_offset: int = 0,
        known_version: int | None = None,
        known_schemas: Collection[int] = (),
        is_fresh: bool = True,
    ) -> LogView:
        """See `Log.view`."""
        return self._run(
            lambda log: log.view(
                first_offset,
                seen_offset=seen_offset,
                known_version=known_version,
                known_schemas=known_schemas,
                is_fresh=is_fresh,
            )
        )

    def watch_end(self, on_change: OnChange) -> CancelWatch:
        """See `Log.watch_end`; `on_change` runs on the client's thread and must not block."""

        async def watched(log: Log) -> CancelWatch:
            return log.watch_end(on_change)

        return _on_loop(self._client, self._run(watched))

    def begin(
        self,
        *,
        schema: bytes = b"",
        mode: WriteMode = WriteMode.APPEND,
        app: str | None = None,
        batch_id: int = 0,
        run: str | None = None,
        kind: JobKind = JobKind.BATCH,
        overwrite_if_changed: bool = False,
        password: bytes = b"",
        planned: LogState | None = None,
    ) -> Job:
        """See `Log.begin`."""
        return self._run(
            lambda log: log.begin(
                schema=schema,
                mode=mode,
                app=app,
                batch_id=batch_id,
                run=run,
                kind=kind,
                overwrite_if_changed=overwrite_if_changed,
                password=password,
                planned=planned,
            )
        )

    def open_range(self, job: Job, schema_message: bytes | None = None) -> BlockingRangeWriter:
        """See `Log.open_range`."""
        writer = self._run(lambda log: log.open_range(job, schema_message))
        return BlockingRangeWriter(self._client, writer)

    def commit(
        self, job: Job, ranges: Sequence[StagedRange], *, is_last: bool = False
    ) -> CommitResult:
        """See `Log.commit`."""
        return self._run(lambda log: log.commit(job, ranges, is_last=is_last))

    def abort(self, job: Job) -> None:
        """See `Log.abort`."""
        self._run(lambda log: log.abort(job))

    def read_range(
        self, ledger_id: int, first_entry_id: int, last_entry_id: int, *, password: bytes = b""
    ) -> Iterator[Sequence[Any]]:
        """Batches of entries of a listed range; see `committed_range.read_range`."""
        (reading,) = self.begin_ranges(
            [(ledger_id, first_entry_id, last_entry_id)], password=password
        )
        return iter(reading)

    def begin_ranges(
        self,
        ranges: Sequence[tuple[int, int, int]],
        *,
        password: bytes = b"",
        room: ReadRoom | None = None,
    ) -> list[BlockingRangeReader]:
        """Readers of listed ranges, the first entries of them on their way; take them in order.

        Args:
            ranges: Ledger id, first and last entry id, both inclusive.
            password: Of the ledgers.
            room: Bounds what these readers and others of the room hold. Without it these have one
                of their own, 64 MiB.
        """
        shared = room or ReadRoom()

        async def begun(log: Log) -> list[BegunRange]:
            places = [shared.place() for _ in ranges]
            return [
                BegunRange(log.read_range(*each, password=password, place=place), place)
                for each, place in zip(ranges, places, strict=True)
            ]

        return [BlockingRangeReader(self._client, reading) for reading in self._run(begun)]

    def picture(self, *, gone: Collection[str] = ()) -> Picture:
        """The log as a picture that notebooks show; see `picture_of`.

        Args:
            gone: Bookies to mark although they are still registered, as for some seconds after a
                crash.
        """

        async def drawn(client: LedgerClient) -> Picture:
            log = logs_of(client).open_by_id(self.name, self.log_id)
            return await picture_of(log, client, gone=gone)

        return self._client.run(drawn)

    def _repr_html_(self) -> str:
        try:
            return self.picture().svg
        except LedgerLogError as error:
            return f"<b>log {escape(self.name)}</b>: {escape(error.message)}"

    def __repr__(self) -> str:
        return f"<ledgerlog log {self.name!r}, id {self.log_id}>"

    def _run(self, work: Callable[[Log], Coroutine[Any, Any, T]]) -> T:
        return self._client.run(
            lambda client: work(logs_of(client).open_by_id(self.name, self.log_id))
        )


class BlockingRangeReader:
    """One listed range that is being read; iterate once, close when that does not come to its end.

    Errors, of what was read ahead too, come when their place is reached.
    """

    def __init__(self, client: BlockingClient, reading: BegunRange) -> None:
        self._client = client
        self._reading = reading

    def __iter__(self) -> Iterator[Sequence[Any]]:
        """Batches of entries; see `committed_range.read_range`."""
        is_over = False
        try:
            while (batch := self._client.run(lambda _: self._reading.following())) is not None:
                yield batch
            is_over = True
        finally:
            if not is_over:
                self.close()

    def close(self) -> None:
        """Forget what is on its way; closing again is fine."""
        self._client.run(lambda _: self._reading.aclose())


class BlockingRangeWriter:
    """One range of a task; same calls and errors as `RangeWriter`, without `await`.

    Attributes:
        ledger_id: The range's ledger.
    """

    def __init__(self, client: BlockingClient, writer: RangeWriter) -> None:
        self.ledger_id = writer.ledger_id
        self._client = client
        self._writer = writer

    @property
    def rows(self) -> int:
        """Appended so far."""
        return self._writer.rows

    @property
    def size_bytes(self) -> int:
        """Payload appended so far."""
        return self._writer.size_bytes

    @property
    def is_full(self) -> bool:
        """Whether the task should finish this range and go on in a new one."""
        return self._writer.is_full

    def append(self, payload: bytes | bytearray | memoryview, rows: int) -> None:
        """See `RangeWriter.append`."""
        self._client.run(lambda _: self._writer.append(payload, rows))

    def finish(self, index: bytes | None = None, *, statistics: bytes = b"") -> StagedRange | None:
        """See `RangeWriter.finish`."""
        return self._client.run(lambda _: self._writer.finish(index, statistics=statistics))

    def cut(self) -> tuple[StagedRange | None, tuple[bytes | bytearray | memoryview, ...]]:
        """See `RangeWriter.cut`."""
        return self._client.run(lambda _: self._writer.cut())

    def abandon(self) -> None:
        """See `RangeWriter.abandon`."""

        async def abandoned() -> None:
            self._writer.abandon()

        self._client.run(lambda _: abandoned())
