"""The blocking API of logs and of one log, for Spark's driver and workers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from html import escape
from typing import Any, TypeVar

from ledgerlog_spark.client.arguments import check_iterable, check_optional
from ledgerlog_spark.client.blocking.client import BlockingClient
from ledgerlog_spark.client.blocking.derived import (
    Blocking,
    Shown,
    as_coroutine,
    derived,
    derived_as,
    documented_by,
    on_loop,
)
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.errors import LedgerLogError, LocalProtocolError
from ledgerlog_spark.log.committing.range_writer import RangeWriter
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.log.logs import Logs, check_id, logs_of
from ledgerlog_spark.log.maintenance.sweeper import Swept
from ledgerlog_spark.log.picture import Picture, picture_of
from ledgerlog_spark.log.reading.committed_range import BegunRange
from ledgerlog_spark.metadata.tree import CancelWatch
from ledgerlog_spark.model import LedgerMetadata
from ledgerlog_spark.protocol.ledger.read_room import ReadRoom
from ledgerlog_spark.protocol.ledger.slices import SliceSource

T = TypeVar("T")

RANGE_NUMBERS = 3


def _on_loop(handle: Blocking[Any], cancel: CancelWatch) -> CancelWatch:
    """Return a function that any thread may call. It runs `cancel` on the client's event loop."""

    async def cancelled(_: object) -> None:
        cancel()

    return lambda: handle._run(cancelled)  # noqa: SLF001


class BlockingLogs(Blocking[Logs]):
    """The logs of a blocking client's cluster.

    The object can be used until the client is closed.
    """

    def __init__(self, client: BlockingClient) -> None:
        """Create the object for the logs of the client's cluster."""
        self._client = client

    def _blocking(self, log: Log) -> BlockingLog:
        return BlockingLog(self._client, log.name, log.log_id)

    create = derived_as(Logs.create, _blocking)
    open = derived_as(Logs.open, _blocking)
    open_or_create = derived_as(Logs.open_or_create, _blocking)
    names = derived(Logs.names)
    now_ms = derived(Logs.now_ms)
    owner = derived(Logs.owner)
    seal = derived(Logs.seal)
    delete = derived(Logs.delete)
    watch_names = derived_as(as_coroutine(Logs.watch_names), _on_loop)

    @documented_by(Logs.open_by_id)
    def open_by_id(self, name: str, log_id: str) -> BlockingLog:
        """The call sends no request, so it runs on the caller's thread."""
        check_id(name, log_id)
        return BlockingLog(self._client, name, log_id)

    def sweep(self) -> tuple[list[Swept], list[LedgerLogError]]:
        """Pass over all logs once, and delete ledgers and pages that no version of a log lists.

        Returns:
            The result for each log, and the errors of the logs that could not be swept.

        Raises:
            MetadataError: There is no cluster at the path of the service URI, or the store failed.
        """
        return self._run(lambda logs: logs.sweeper().sweep_all())

    def records(self, ledger_ids: Sequence[int]) -> dict[int, LedgerMetadata]:
        """Return metadata of ledgers that was read at most 60 s ago.

        The caller may pass the result to `remember` in another process. The result omits ledgers
        that no longer exist. If all the metadata exceeds 16 MiB, the result contains only the
        metadata of the first ledgers.

        Raises:
            MetadataUnavailableError: The metadata of a ledger could not be read.
        """
        return self._client.run(lambda client: client.recent_records(ledger_ids))

    def remember(self, records: Mapping[int, LedgerMetadata]) -> None:
        """Store metadata that another client has just read, for later reads of listed ranges."""

        async def remembered(client: LedgerClient) -> None:
            client.remember(records)

        self._client.run(remembered)

    def _run(self, work: Callable[[Logs], Coroutine[Any, Any, T]]) -> T:
        return self._client.run(lambda client: work(logs_of(client)))


class BlockingLog(Blocking[Log]):
    """A handle of one log. It has no connection of its own, so it need not be closed.

    Attributes:
        name: The name under which the log was opened.
        log_id: The log's id; a later log of the same name has another id.
    """

    def __init__(self, client: BlockingClient, name: str, log_id: str) -> None:
        self.name = name
        self.log_id = log_id
        self._client = client

    def _writer(self, writer: RangeWriter) -> BlockingRangeWriter:
        return BlockingRangeWriter(self._client, writer)

    state = derived(Log.state)
    snapshot = derived(Log.snapshot)
    history = derived(Log.history)
    view = derived(Log.view)
    version_at = derived(Log.version_at)
    begin = derived(Log.begin)
    open_range = derived_as(Log.open_range, _writer)
    commit = derived(Log.commit)
    abort = derived(Log.abort)
    add_columns = derived(Log.add_columns)
    change_schema = derived(Log.change_schema)
    has_batch = derived(Log.has_batch)
    floor = derived(Log.floor)
    seal = derived(Log.seal)
    truncate = derived(Log.truncate)
    retain = derived(Log.retain)
    restore = derived(Log.restore)
    set_properties = derived(Log.set_properties)
    switch = derived(Log.switch)
    release = derived(Log.release)
    check = derived(Log.check)
    delete_orphans = derived(Log.delete_orphans)
    delete = derived(Log.delete)
    delete_if_unused = derived(Log.delete_if_unused)
    watch_end = derived_as(as_coroutine(Log.watch_end), _on_loop)

    @documented_by(Log.read_range)
    def read_range(
        self, ledger_id: int, first_entry_id: int, last_entry_id: int, *, password: bytes = b""
    ) -> Iterator[Sequence[Any]]:
        """The read begins immediately, even before the caller iterates over the result."""
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
        slices: Sequence[SliceSource | None] | None = None,
    ) -> list[BlockingRangeReader]:
        """Return readers of listed ranges. Each reader begins to read immediately.

        The caller should use the readers in the order of their ranges. If an entry cannot be read,
        its error is raised when the iteration reaches this entry.

        Args:
            ranges: For each range, the ledger id and the ids of its first and its last entry.
            password: The password of the ledgers.
            room: A limit of memory that all readers of the room share. If it is None, the readers
                of this call share a separate limit of 64 MiB.
            slices: For each range, the parts of its entries to read; None if complete entries are
                read. A reader may return some entries completely.

        Raises:
            LocalProtocolError: The client is closed, a range does not have three numbers, or
                `slices` does not have one element for each range.
        """
        check_iterable("ranges", ranges)
        listed = list(ranges)
        for each in listed:
            _check_range(each)
        check_optional("room", room, ReadRoom)
        parts = _checked_slices(slices, len(listed))
        shared = room or ReadRoom()

        async def begun(log: Log) -> list[BegunRange]:
            places = [shared.place() for _ in listed]
            return [
                BegunRange(
                    log.read_range(*each, password=password, place=place, slices=part), place
                )
                for each, place, part in zip(listed, places, parts, strict=True)
            ]

        return [BlockingRangeReader(self._client, reading) for reading in self._run(begun)]

    def picture(self, *, gone: Collection[str] = ()) -> Picture:
        """Return a picture of the log's ranges and of the bookies that store them, for notebooks.

        Args:
            gone: Bookies to draw as lost, even if they are registered. A crashed bookie stays
                registered for some seconds.

        Raises:
            LogNotFoundError: The log was deleted.
            MetadataError: The store failed.
        """
        check_iterable("gone", gone)

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


def _checked_slices(
    slices: Sequence[SliceSource | None] | None, count: int
) -> list[SliceSource | None]:
    if slices is None:
        return [None] * count
    check_iterable("slices", slices)
    parts = list(slices)
    for part in parts:
        check_optional("each of slices", part, SliceSource)
    if len(parts) != count:
        raise LocalProtocolError(
            f"slices must have one element for each of {count} ranges, got {len(parts)}",
            argument="slices",
        )
    return parts


def _check_range(found: object) -> None:
    if not isinstance(found, Sequence) or len(found) != RANGE_NUMBERS:
        raise LocalProtocolError(
            f"each range must have a ledger id, a first and a last entry id, got {found!r}",
            argument="ranges",
        )


class BlockingRangeReader:
    """One listed range that is being read. A reader can be iterated only once.

    Close the reader if you stop the iteration before the end. If an entry cannot be read, its error
    is raised when the iteration reaches the entry, even if the read ahead failed earlier.
    """

    def __init__(self, client: BlockingClient, reading: BegunRange) -> None:
        self._client = client
        self._reading = reading

    def __iter__(self) -> Iterator[Sequence[Any]]:
        is_over = False
        try:
            while (batch := self._client.run(lambda _: self._reading.following())) is not None:
                yield batch
            is_over = True
        finally:
            if not is_over:
                self.close()

    def close(self) -> None:
        """Stop the read, and drop the entries that were read ahead. A second call does nothing."""
        self._client.run(lambda _: self._reading.aclose())


class BlockingRangeWriter(Blocking[RangeWriter]):
    """Writes the entries of one range, in order.

    Several tasks must not use one writer at the same time. After an error, the writer accepts no
    more entries. If the ledger was fenced, the task can call `cut` and continue. After any other
    error, the task must start again.

    Attributes:
        ledger_id: The id of the ledger that contains the range.
    """

    def __init__(self, client: BlockingClient, writer: RangeWriter) -> None:
        self.ledger_id = writer.ledger_id
        self._client = client
        self._twin = writer

    @property
    def rows(self) -> int:
        """Number of rows appended so far."""
        return self._twin.rows

    @property
    def size_bytes(self) -> int:
        """Bytes of payload appended so far."""
        return self._twin.size_bytes

    is_full = Shown(RangeWriter.is_full)
    append = derived(RangeWriter.append)
    finish = derived(RangeWriter.finish)
    cut = derived(RangeWriter.cut)
    abandon = on_loop(RangeWriter.abandon)

    def _run(self, work: Callable[[RangeWriter], Coroutine[Any, Any, T]]) -> T:
        return self._client.run(lambda _: work(self._twin))
