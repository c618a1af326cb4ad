"""The base class of the log's machines, which handles replies and reads a head and its pages.

Pages are immutable, but a page is deleted some time after its records were merged into a larger
page. So if a page is missing, the machine reads the head again, because the records are then in
other pages. Data is lost only if the head is still the same and a page is missing again
(LOGS.md#Q3).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from ledgerlog_spark.errors import (
    DataLossError,
    LedgerLogError,
    LogKindError,
    LogNotFoundError,
    LogTimeoutError,
    MetadataFormatError,
    MetadataUnavailableError,
    MetadataUnknownError,
)
from ledgerlog_spark.model import Versioned
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.claim import LEADER_CLAIM
from ledgerlog_spark.protocol.log.messages import (
    DropLedger,
    Failed,
    Finished,
    LogEffects,
    LogReply,
    LogRequest,
    R_co,
    ReadHead,
    ReadPages,
    Reply,
    Sync,
    TimeNeeded,
    WriteHead,
    WriteProducer,
)
from ledgerlog_spark.protocol.log.password import PASSWORD_CHECK
from ledgerlog_spark.protocol.log.state.pages import PageRequest
from ledgerlog_spark.protocol.log.state.records import LogHead, LogKind, PageRef
from ledgerlog_spark.protocol.log.state.walk import ListWalk
from ledgerlog_spark.protocol.request_numbers import RequestNumbers

T = TypeVar("T")

Steps = Generator[LogRequest[Any], Any, T]
"""A part of a machine that yields requests and handles their replies."""


Read = TypeVar("Read", bound=LogReply)

READER_FEATURES: tuple[str, ...] = ()
"""Features of logs that this release can read. A head with another feature is refused."""

WRITER_FEATURES: tuple[str, ...] = (LEADER_CLAIM, PASSWORD_CHECK)
"""Features of logs to which this release can write."""

_WRITTEN_BY = {
    LogKind.LEADER: "write to it through its leader",
    LogKind.TRANSACTIONAL: "write to it with commits, because it has no leader",
}

_WRITES = (WriteHead, WriteProducer, DropLedger)
"""Requests whose writes users may see. Users cannot see pages that no head names."""

_ANSWERED = {MetadataOutcome.OK, MetadataOutcome.GONE}

_TOKEN_END = 1 << 128


def token_after(token: str, count: int = 1) -> str:
    """Return the token of the `count`-th attempt after the attempt with `token`.

    Each attempt has its own token.
    """
    return f"{(int(token, 16) + count) % _TOKEN_END:032x}"


class PageMissingError(Exception):
    """A page that the head names is missing. Other pages may contain its records (LOGS.md#Q3)."""


class LogMachine(ABC, Generic[R_co]):
    """A machine that sends one request at a time.

    The host calls `start`, and then `handle` for each reply, until the machine returns `Finished`
    or `Failed`. `_run` is a generator. It yields requests, gets their replies and returns the
    result. If it raises a `LedgerLogError`, the machine ends with `Failed`.
    """

    time_needed = TimeNeeded.NONE  # the time that a reply with the head has to contain

    def __init__(
        self, log: str, *, is_fresh: bool = True, numbers: RequestNumbers | None = None
    ) -> None:
        """If `is_fresh` is true, the machine sends a `Sync` before it reads the head.

        Without a `Sync`, the head may be old. Further rows can be read with an old head, but an old
        head does not prove that something does not exist. If the machine is a part of another
        machine, both take their request numbers from `numbers`.
        """
        self.log = log
        self._is_fresh = is_fresh
        self._running: Steps[R_co] | None = None
        self._numbers = numbers or RequestNumbers()
        self._out: LogRequest[Any] | None = None
        self.has_ended = False  # the machine returned `Finished` or `Failed`
        self._has_written = False
        self._head: Versioned[LogHead] | None = None
        self._now_ms = 0
        self._missed_token: str | None = None

    @property
    def may_write(self) -> bool:
        """Whether a write of this machine may have happened, or may still happen."""
        return self._has_written

    def awaits(self, reply: Any) -> bool:
        """Whether this is the reply to the pending request."""
        return self._out is not None and reply.request == self._out.request

    def give_up(self, timeout_ms: int) -> LedgerLogError:
        """End the machine without the pending reply.

        Return the error for the waiting caller (LOGS.md#K16).
        """
        definite = not self.may_write
        self.has_ended = True
        then = "the log was not changed" if definite else "the log may have been changed"
        return LogTimeoutError(
            f"the operation on log {self.log!r} did not end within {timeout_ms / 1e3:g} s, and "
            f"{then}: check that ZooKeeper runs (`ledgerlog doctor`), then try again",
            definite=definite,
            log=self.log,
            timeout_ms=timeout_ms,
        )

    def start(self) -> LogEffects[R_co]:
        """Start the machine, and return the first effects. Call this once."""
        assert self._running is None, "started twice"
        self._running = self._run()
        return self._go_on(None)

    def handle(self, reply: LogReply) -> LogEffects[R_co]:
        """Take the reply to the pending request, and return the next effects."""
        assert not self.has_ended, "a reply after the end"
        assert self.awaits(reply), (reply, self._out)
        self._out = None
        return self._go_on(reply)

    def _go_on(self, reply: LogReply | None) -> LogEffects[R_co]:
        assert self._running is not None
        try:
            request = self._running.send(reply)
        except StopIteration as end:
            self.has_ended = True
            return [Finished(end.value)]
        except LedgerLogError as error:
            self.has_ended = True
            return [Failed(self._failed(error))]
        self._out = replace(request, request=self._numbers.next())
        self._has_written = self._has_written or isinstance(request, _WRITES)
        return [self._out]

    @abstractmethod
    def _run(self) -> Steps[R_co]:
        """Run the steps of the machine, from its first request to its result."""

    def _failed(self, error: LedgerLogError) -> LedgerLogError:
        """Return the error with which the machine ends."""
        return error

    def _reply_to(self, request: LogRequest[Reply]) -> Steps[Reply]:
        """Send the request, and return the reply, whatever its outcome."""
        reply: Reply = yield request
        return reply

    def _read(self, request: LogRequest[Read]) -> Steps[Read]:
        """Send a request that changes nothing, and return the reply.

        Raise an error if the request failed.
        """
        reply = yield from self._reply_to(request)
        if reply.outcome not in _ANSWERED:
            raise self._read_error(reply.outcome)
        return reply

    def _pages(self, wanted: Sequence[PageRequest]) -> Steps[tuple[tuple[Any, ...], ...]]:
        """Read these pages, and return the records of each page."""
        reply = yield from self._read(ReadPages(tuple(wanted)))
        if reply.outcome is MetadataOutcome.GONE:
            raise PageMissingError
        return reply.pages

    def _walk(self, walk: ListWalk[T]) -> Steps[tuple[T, ...]]:
        """Read all pages that the walk needs, and return the records of the walk."""
        while walk.wanted:
            walk.feed((yield from self._pages(walk.wanted)))
        return walk.records()

    def _refs(self, walk: ListWalk[Any]) -> Steps[list[PageRef]]:
        """Return the references to all pages of the walk. To find them, read only index pages."""
        while not walk.is_indexed:
            walk.feed((yield from self._pages(walk.wanted)))
        return walk.refs

    def _read_head(self) -> Steps[LogHead]:
        """Read the head, and store it in the machine with its version and the time in the reply."""
        is_synced = False
        while True:
            if self._is_fresh:
                yield from self._read(Sync())
                is_synced = True
            self._is_fresh = True
            reply = yield from self._read(ReadHead(self.time_needed))
            if reply.head is not None or is_synced:
                break  # without a `Sync`, a lagging replica may not have the log yet (LOGS.md#Q2)
        self._head, self._now_ms = reply.head, reply.now_ms
        return self._head_of(reply.head.value if reply.head else None, writes=None)

    def _look(self, at: Callable[[LogHead], Steps[T]]) -> Steps[T]:
        """Read the head, and return the result of `at(head)`.

        If a page is missing, read the head again, and repeat the call.
        """
        while True:
            head = yield from self._read_head()
            try:
                return (yield from at(head))
            except PageMissingError:
                self._miss_page()

    def _miss_page(self) -> None:
        """Note that a page of the head is missing.

        Raise an error if a page of the same head was already missing before (LOGS.md#Q3).
        """
        assert self._head is not None
        token = self._head.value.token
        if token == self._missed_token:
            raise DataLossError(
                f"log {self.log!r} names a page of its list that is not there", log=self.log
            )
        self._missed_token = token

    def _head_of(self, head: LogHead | None, *, writes: LogKind | None) -> LogHead:
        """Return the head, or raise an error if this release may not use the log.

        `writes` is the kind of log that the caller writes to, or None if it only reads.

        Raises:
            LogNotFoundError: The log does not exist.
            LogKindError: The log is not of the kind `writes`.
            MetadataFormatError: The log has a feature that this release does not support.
        """
        if head is None or head.deleted_ms:
            raise LogNotFoundError(f"log {self.log!r} does not exist: it was deleted", log=self.log)
        known = WRITER_FEATURES if writes else READER_FEATURES
        named = (*head.reader_features, *head.writer_features) if writes else head.reader_features
        unknown = [feature for feature in named if feature not in (*known, *READER_FEATURES)]
        if unknown:
            raise MetadataFormatError(
                f"log {self.log!r} uses {', '.join(unknown)}, which this version does not support: "
                "use a later ledgerlog",
                log=self.log,
                features=tuple(unknown),
            )
        if writes is not None and head.kind is not writes:
            raise LogKindError(
                f"log {self.log!r} is a {head.kind.name.lower()} log: {_WRITTEN_BY[head.kind]}",
                log=self.log,
            )
        return head

    def _read_error(self, outcome: MetadataOutcome) -> LedgerLogError:
        """Return the error for a request that ended with this outcome."""
        if outcome is MetadataOutcome.UNREADABLE:
            return MetadataFormatError(
                f"a record of log {self.log!r} cannot be read: it is damaged, or a later "
                "ledgerlog wrote it",
                log=self.log,
            )
        if outcome is MetadataOutcome.UNKNOWN:
            return MetadataUnknownError(
                f"a write to the records of log {self.log!r} has an unknown outcome", log=self.log
            )
        return MetadataUnavailableError(
            f"the metadata store cannot be reached; log {self.log!r} was not changed",
            log=self.log,
        )
