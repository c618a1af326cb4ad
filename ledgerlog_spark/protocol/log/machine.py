"""What the log's machines share: numbering of requests, failures, and reading the head first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic

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
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.messages import (
    DropLedger,
    Failed,
    Finished,
    R_co,
    WriteHead,
    WriteProducer,
)
from ledgerlog_spark.protocol.log.password import PASSWORD_CHECK
from ledgerlog_spark.protocol.log.state.records import LogHead, LogKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.protocol.log.messages import LogEffects, LogReply, LogRequest

READER_FEATURES: tuple[str, ...] = ()
"""Features of logs that this version reads; a head that names another is refused."""

WRITER_FEATURES: tuple[str, ...] = (PASSWORD_CHECK,)
"""Features of logs that this version writes."""

_WRITTEN_BY = {
    LogKind.LEADER: "write to it through its leader",
    LogKind.TRANSACTIONAL: "write to it with commits, it has no leader",
}

_WRITES = (WriteHead, WriteProducer, DropLedger)
"""What users may see of a machine; pages that no head names are nothing to them."""

NOTHING = -1
"""No request is out."""

_TOKEN_END = 1 << 128


def token_after(token: str) -> str:
    """The token of the next attempt: each names one only."""
    return f"{(int(token, 16) + 1) % _TOKEN_END:032x}"


def lost_page(log: str) -> DataLossError:
    """The error for a page that is missing under the same head twice (LOGS.md#Q3)."""
    return DataLossError(f"log {log!r} names a page of its list that is not there", log=log)


class LogMachine(ABC, Generic[R_co]):
    """One request at a time: `start`, then `handle` of each reply, until `Finished` or `Failed`.

    Attributes:
        log: Name of the log, for messages.
    """

    __slots__ = ("_ended", "_has_written", "_next_request", "_waiting_for", "log")

    def __init__(self, log: str) -> None:
        self.log = log
        self._next_request = 0
        self._waiting_for = NOTHING
        self._ended = False
        self._has_written = False

    @property
    def has_ended(self) -> bool:
        """Whether `Finished` or `Failed` was returned."""
        return self._ended

    @property
    def is_waiting(self) -> bool:
        """Whether a request is out."""
        return self._waiting_for != NOTHING

    @property
    def may_write(self) -> bool:
        """Whether a write of this machine may have happened, or may happen still."""
        return self._has_written

    def give_up(self, timeout_ms: int) -> LedgerLogError:
        """End without the reply to the request that is out; the error for who waits (LOGS.md#K16).

        Args:
            timeout_ms: How long the machine had.
        """
        definite = not self.may_write
        self._ended = True
        then = "nothing was changed" if definite else "it may have been changed nevertheless"
        return LogTimeoutError(
            f"log {self.log!r} was not changed within {timeout_ms / 1e3:g} s, and {then}: check "
            "that ZooKeeper runs (`ledgerlog doctor`), then try again",
            definite=definite,
            log=self.log,
            timeout_ms=timeout_ms,
        )

    def start(self) -> LogEffects[R_co]:
        """The first effects; called once."""
        assert self._next_request == 0, "started twice"
        return self._guarded(self._begin)

    def handle(self, reply: LogReply) -> LogEffects[R_co]:
        """What follows from the reply to the one request that is out."""
        assert not self._ended, "a reply after the end"
        assert reply.request == self._waiting_for, (reply, self._waiting_for)
        self._waiting_for = NOTHING
        return self._guarded(lambda: self._step(reply))

    @abstractmethod
    def _begin(self) -> LogEffects[R_co]:
        """The first effects."""

    @abstractmethod
    def _step(self, reply: LogReply) -> LogEffects[R_co]:
        """What follows from a reply."""

    def _ask(self, request: Callable[[int], LogRequest]) -> LogEffects[R_co]:
        number = self._next_request
        self._next_request += 1
        self._waiting_for = number
        asked = request(number)
        self._has_written = self._has_written or isinstance(asked, _WRITES)
        return [asked]

    def _finish(self, result: R_co) -> LogEffects[R_co]:  # type: ignore[misc]
        """End with a result. The machine alone calls this, so that its type may be covariant."""
        self._ended = True
        return [Finished(result)]

    def _fail(self, error: LedgerLogError) -> LogEffects[R_co]:
        self._ended = True
        return [Failed(error)]

    def _guarded(self, step: Callable[[], LogEffects[R_co]]) -> LogEffects[R_co]:
        try:
            return step()
        except LedgerLogError as error:
            return self._fail(error)

    def _head_of(self, head: LogHead | None, *, writes: LogKind | None) -> LogHead:
        """The head, if this version of ledgerlog may use the log.

        Args:
            head: As read.
            writes: The kind of log that the machine writes, None when it only reads.

        Raises:
            LogNotFoundError: There is none.
            LogKindError: A transactional operation on a leader log, or the other way round.
            MetadataFormatError: It has a feature that this version does not know.
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
        """The error for a request that changed nothing and did not succeed."""
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
