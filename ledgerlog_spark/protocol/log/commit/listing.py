"""A commit that has to know the log's list before it changes it: restoring, merging.

What it concludes from the list holds when its transaction passes, because that compares the head
with the version whose list was read.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.commit.commit import CommitMachine
from ledgerlog_spark.protocol.log.commit.phases import CommitPhase
from ledgerlog_spark.protocol.log.messages import PagesRead, ReadPages
from ledgerlog_spark.protocol.log.state.walk import Walks, is_complete

if TYPE_CHECKING:
    from ledgerlog_spark.protocol.log.commit.plan import CommitRequest
    from ledgerlog_spark.protocol.log.commit.result import CommitResult
    from ledgerlog_spark.protocol.log.messages import LogEffects, LogReply
    from ledgerlog_spark.protocol.log.state.records import LogHead
    from ledgerlog_spark.protocol.log.state.walk import Walk


class ListingCommit(CommitMachine):
    """Walks over sequences of the head that it is going to replace, then plans the change.

    `_walks` and `_more` say what to read; `_listed` gets it and goes on with `_prepare` or `_end`.
    """

    __slots__ = ("_listing",)

    def __init__(self, log: str, request: CommitRequest, *, token: str) -> None:
        """Machine of one commit; see `CommitMachine`."""
        super().__init__(log, request, token=token)
        self._listing = Walks([], is_complete)

    @abstractmethod
    def _walks(self, head: LogHead) -> list[Walk[Any]]:
        """What to read of this head first."""

    def _more(self, head: LogHead, walked: list[Walk[Any]]) -> list[Walk[Any]]:
        """What to read after that; asked again after each round, empty when all is there."""
        del head, walked
        return []

    @abstractmethod
    def _listed(self, head: LogHead, walked: list[Walk[Any]]) -> LogEffects[CommitResult]:
        """All is read."""

    def _plan(self) -> LogEffects[CommitResult]:
        assert self._head is not None
        self._listing = Walks(self._walks(self._head.value), is_complete)
        return self._go_on()

    def _step(self, reply: LogReply) -> LogEffects[CommitResult]:
        outcomes = {MetadataOutcome.OK, MetadataOutcome.GONE}
        if self.phase is CommitPhase.LISTING and reply.outcome in outcomes:
            return self._on_listing_pages(cast("PagesRead", reply))
        return super()._step(reply)

    def _on_listing_pages(self, reply: PagesRead) -> LogEffects[CommitResult]:
        assert self._head is not None
        if reply.outcome is MetadataOutcome.GONE:
            return self._pages_gone()
        self._listing.feed(reply.pages)
        return self._go_on()

    def _go_on(self) -> LogEffects[CommitResult]:
        assert self._head is not None
        head = self._head.value
        wanted = self._listing.wanted(partial(self._more, head))
        if not wanted:
            return self._listed(head, self._listing.walked)
        self.phase = CommitPhase.LISTING
        return self._ask(partial(ReadPages, pages=wanted))
