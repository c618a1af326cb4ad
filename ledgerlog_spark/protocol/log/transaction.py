"""The transaction that changes a head. A machine with this base class only plans the change.

An attempt reads the head, plans the change, reads the pages that the change needs and writes new
pages. Then it replaces the head, if the head still has the version that was read. So when the
transaction succeeds, everything that the machine concluded from the head is still true. If the head
has another version, the attempt is repeated with another token.

A change without a producer is idempotent (LOGS.md#U1, LOGS.md#U2, LOGS.md#U3). So after an unknown
outcome the machine reads the head again, and repeats the change if necessary. If the earlier
attempt is still in flight, only one of the two attempts succeeds, because both compare a version of
the head. A commit is not idempotent, so `commit/commit.py` uses the producer record to find out
whether the commit succeeded.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from ledgerlog_spark.errors import (
    ConcurrentCommitError,
    LedgerLogError,
    LedgerNotFoundError,
    MetadataUnknownError,
)
from ledgerlog_spark.model import Version
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.machine import (
    LogMachine,
    PageMissingError,
    Steps,
    token_after,
)
from ledgerlog_spark.protocol.log.messages import (
    Finished,
    TimeNeeded,
    WriteHead,
    WritePages,
    Written,
)
from ledgerlog_spark.protocol.log.state.pages import Loaded, PageRequest
from ledgerlog_spark.protocol.log.state.records import LogHead
from ledgerlog_spark.protocol.request_numbers import RequestNumbers

R = TypeVar("R")

ATTEMPTS_MAX = 100
"""Maximum number of attempts. If all of them end with a conflict or an unknown outcome, the change
fails."""

PAGE_WRITES_UNKNOWN_MAX = 10
"""Maximum number of page writes without an answer. If there are more, the machine fails."""

_MAY_HAVE_PASSED = {MetadataOutcome.OK, MetadataOutcome.UNKNOWN}

Build = Callable[[str, Loaded], tuple[LogHead, tuple[bytes, ...]]]
"""Makes the new head and its pages from the token of an attempt and the records of the wanted
pages."""


@dataclass(frozen=True, slots=True)
class HeadChange(Generic[R]):
    """A planned change of a head."""

    build: Build  # called once for each attempt
    result: Callable[[LogHead], R]  # makes the machine's result from the new head
    wanted: tuple[PageRequest, ...] = ()  # pages that have to be read before `build`
    unlisted: tuple[int, ...] = ()  # ledgers that no retained version names after the change
    listed: tuple[int, ...] = ()  # ledgers of a leader that the change adds to the list


def rewritten(
    head: LogHead, result: Callable[[LogHead], R], *, unlisted: tuple[int, ...] = ()
) -> HeadChange[R]:
    """Return the change that stores `head` with the token of the attempt, and writes no pages."""
    return HeadChange(lambda token, _: (replace(head, token=token), ()), result, unlisted=unlisted)


Plan = Steps[HeadChange[R] | Finished[R] | None]
"""Steps that return a change of the head, the machine's last effect, or None for a new attempt."""


class HeadTransaction(LogMachine[R]):
    """Changes the head by compare-and-swap, until the head is as `_plan` requires."""

    time_needed = TimeNeeded.RECENT

    def __init__(self, log: str, *, token: str, numbers: RequestNumbers | None = None) -> None:
        """`token` has 32 random hexadecimal digits. Each later attempt uses the next number."""
        super().__init__(log, numbers=numbers)
        self._token = token
        self._attempts = 0
        self._page_writes_unknown = 0
        self._is_unsure = False
        """Whether an attempt got no answer, and may still succeed."""

    @property
    def may_write(self) -> bool:
        """Whether an attempt is pending or got no answer. Such an attempt may change the head."""
        return self._is_unsure or isinstance(self._out, WriteHead)

    def leave(self, reply: Any) -> bool:
        """Take a late reply. Return whether this reply proves that no attempt can still succeed."""
        if not self.awaits(reply):
            return False
        self._out = None
        is_refusal = isinstance(reply, Written) and reply.outcome not in _MAY_HAVE_PASSED
        return is_refusal and not self.may_write

    @abstractmethod
    def _plan(self, head: LogHead) -> Plan[R]:
        """Plan the change of the head that was read."""

    def _run(self) -> Steps[R]:
        ended = None
        while ended is None:
            ended = yield from self._attempt()
        return ended.result

    def _attempt(self) -> Steps[Finished[R] | None]:
        """Make one attempt. Return the last effect, or None when another attempt is needed."""
        try:
            planned = yield from self._planned()
            if isinstance(planned, Finished):
                return planned
            write = None if planned is None else (yield from self._prepare(planned))
        except PageMissingError:
            self._miss_page()
            planned = write = None
        if planned is not None and write is not None:
            return (yield from self._send(planned, write))
        self._count_attempt()
        return None

    def _planned(self) -> Plan[R]:
        head = yield from self._read_head()
        return (yield from self._plan(head))

    def _prepare(self, change: HeadChange[R]) -> Steps[WriteHead | None]:
        """Write the new pages. Return the transaction, or None when another attempt is needed."""
        loaded: Loaded = {}
        if change.wanted:
            pages = yield from self._pages(change.wanted)
            places = ((page.ref.token, page.ref.number) for page in change.wanted)
            loaded = dict(zip(places, pages, strict=True))
        head, new_pages = change.build(self._token, loaded)
        if not new_pages:
            return self._write(change, head, None)
        reply = yield from self._reply_to(WritePages(self._token, new_pages))
        if reply.outcome is MetadataOutcome.OK:
            return self._write(change, head, reply.version)
        if reply.outcome is MetadataOutcome.UNKNOWN:
            self._count_unknown_pages()
        elif reply.outcome is not MetadataOutcome.CONFLICT:
            raise self._read_error(reply.outcome)
        return None  # the pages may exist, and the sweeper may have touched them

    def _count_unknown_pages(self) -> None:
        """Count a write of pages without an answer, and fail with this cause after too many."""
        self._page_writes_unknown += 1
        if self._page_writes_unknown > PAGE_WRITES_UNKNOWN_MAX:
            raise self._read_error(MetadataOutcome.UNAVAILABLE)

    def _write(
        self, change: HeadChange[R], head: LogHead, pages_version: Version | None
    ) -> WriteHead:
        assert self._head is not None
        return WriteHead(
            token=self._token,
            head=head,
            head_version=self._head.version,
            pages_version=pages_version,
            unlisted=change.unlisted,
            listed=change.listed,
        )

    def _send(self, change: HeadChange[R], write: WriteHead) -> Steps[Finished[R] | None]:
        """Send the transaction.

        Return the machine's last effect, or None when another attempt is needed.
        """
        reply = yield from self._reply_to(write)
        match reply.outcome:
            case MetadataOutcome.OK:
                return Finished(change.result(write.head))
            case MetadataOutcome.UNKNOWN:
                self._is_unsure = True
            case MetadataOutcome.CONFLICT:
                pass
            case MetadataOutcome.GONE:
                self._is_unsure = False
                yield from self._on_unlistable(change)
            case _:
                raise self._read_error(reply.outcome)
        self._count_attempt()
        return None

    def _on_unlistable(self, change: HeadChange[R]) -> Steps[None]:
        """Raise an error: no attempt listed the change's ledgers, and none can list them later."""
        yield from ()
        raise LedgerNotFoundError(
            f"log {self.log!r} cannot list ledger {', '.join(map(str, change.listed))}, because it "
            f"was created more than stagingTtlMs ago and is being deleted: open the log again",
            retriable=True,
            log=self.log,
            ledger_ids=change.listed,
        )

    def _count_attempt(self) -> None:
        """Take the token of the next attempt. Raise an error if the limit is reached."""
        self._attempts += 1
        self._next_token()
        if self._attempts >= ATTEMPTS_MAX:
            raise self._overtaken()

    def _next_token(self) -> None:
        """Use another token, because the sweeper may have changed pages of the last attempt."""
        self._token = token_after(self._token)

    def _overtaken(self) -> ConcurrentCommitError:
        return ConcurrentCommitError(
            f"{ATTEMPTS_MAX} attempts to change log {self.log!r} were overtaken or got no "
            "answer: check the state of the log, and try again",
            log=self.log,
            retriable=True,
            definite=not self._is_unsure,
        )

    def _failed(self, error: LedgerLogError) -> LedgerLogError:
        """Return the error, which is not definite if an earlier attempt may have succeeded."""
        error.definite = error.definite and not self._is_unsure
        return error

    def _read_error(self, outcome: MetadataOutcome) -> LedgerLogError:
        """Return the store's error, or `MetadataUnknownError` if an attempt may still succeed."""
        if self._is_unsure:
            return MetadataUnknownError(
                f"it is unknown whether log {self.log!r} was changed: try again", log=self.log
            )
        return super()._read_error(outcome)
