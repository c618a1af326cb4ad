"""Marking ledgers that nobody knows of, so that the sweeper deletes them (LOGS.md#U19)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.protocol.log.change.head import HeadChanger
from ledgerlog_spark.protocol.log.read.versions import listed_ledgers, listing_of

if TYPE_CHECKING:
    from ledgerlog_spark.protocol.log.messages import LogEffects
    from ledgerlog_spark.protocol.log.state.pages import Loaded, PageRequest
    from ledgerlog_spark.protocol.log.state.records import LogHead
    from ledgerlog_spark.protocol.log.state.walk import Walk


@dataclass(frozen=True, slots=True)
class Touched:
    """The head under another token: every change of it that is on its way fails."""

    head: LogHead

    def pages_to_merge(self) -> tuple[PageRequest, ...]:
        """None."""
        return ()

    def build(self, token: str, loaded: Loaded) -> tuple[LogHead, tuple[bytes, ...]]:
        """The new head; no pages."""
        del loaded
        return replace(self.head, token=token), ()


class OrphansMachine(HeadChanger[tuple[int, ...]]):
    """Ends with `Finished(tuple[int, ...])`: those of the ledgers that the log does not list.

    They are marked as if they had been listed, so that they stay for `deletedRetentionMs`. Or
    `Failed` with `LogNotFoundError`, `ConcurrentCommitError`, or the store's errors.
    """

    __slots__ = ("_ledger_ids",)

    def __init__(self, log: str, ledger_ids: tuple[int, ...], *, token: str) -> None:
        """Machine of one change.

        Args:
            log: Name, for messages.
            ledger_ids: At most 1,000, registered nowhere.
            token: 32 random hexadecimal digits.
        """
        super().__init__(log, token=token)
        self._ledger_ids = ledger_ids

    def _walks(self, head: LogHead) -> list[Walk[Any]]:
        return [listing_of(head)]

    def _done(self, head: LogHead, walked: list[Walk[Any]]) -> LogEffects[tuple[int, ...]]:
        listed = listed_ledgers(head, walked[0].records())
        unlisted = tuple(ledger for ledger in self._ledger_ids if ledger not in listed)
        return self._replace_head(Touched(head), unlisted) if unlisted else self._finish(())

    def _changed(self, head: LogHead) -> tuple[int, ...]:
        del head
        return self._unlisted
