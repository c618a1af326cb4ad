"""How a leader changes the list in the head of its log (LOGS.md#J1-J5).

The list has the items, which are closed ledgers. At most two open ledgers follow. A change makes
items of the oldest open ledgers after they are closed, or adds one new open ledger, or both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ledgerlog_spark.errors import DataLossError, LeaderDeposedError
from ledgerlog_spark.protocol.leader.messages import LedgerEnd
from ledgerlog_spark.protocol.log.messages import Finished
from ledgerlog_spark.protocol.log.state.pages import Loaded, PageWriter, append, pages_to_merge
from ledgerlog_spark.protocol.log.state.records import (
    NO_SCHEMA,
    OPEN_LEDGERS_MAX,
    Item,
    LogContent,
    LogHead,
    LogKind,
    OpenLedger,
)
from ledgerlog_spark.protocol.log.state.rows import ITEMS
from ledgerlog_spark.protocol.log.transaction import HeadChange, HeadTransaction, Plan
from ledgerlog_spark.protocol.request_numbers import RequestNumbers

Closed = Mapping[int, LedgerEnd]
"""Closed ledgers and their contents, in the order of the list, which still shows them as open."""


@dataclass(frozen=True, slots=True)
class ListEdit:
    """One change of the list, which gets a token and pages when an attempt begins.

    Raises:
        DataLossError: A closed ledger begins later than the previous ledger ends (LOGS.md#J6).
    """

    head: LogHead
    closed: Closed
    """The oldest open ledgers."""
    added: int | None
    """The ledger that is added after the other open ledgers; None adds no ledger."""
    now_ms: int

    def __post_init__(self) -> None:
        assert open_ids(self.head)[: len(self.closed)] == tuple(self.closed)
        offset = self.head.end_offset
        for item in self._items:
            if item.first_offset != offset:
                raise DataLossError(
                    f"ledger {item.ledger_id} of log {self.head.name!r} begins at offset "
                    f"{item.first_offset} instead of {offset}: entries before it are "
                    "lost, so an operator must inspect its ledgers",
                    log=self.head.name,
                    ledger_id=item.ledger_id,
                    expected_offset=offset,
                    first_offset=item.first_offset,
                )
            offset = item.end_offset

    def change(self) -> HeadChange[LogHead]:
        """The change for a `HeadTransaction`. Closed ledgers without entries leave the list."""
        return HeadChange(
            self.build,
            lambda head: head,
            wanted=tuple(pages_to_merge(ITEMS, self.head.items, self._items)),
            unlisted=tuple(ledger_id for ledger_id, end in self.closed.items() if end.is_empty),
            listed=() if self.added is None else (self.added,),
        )

    def build(self, token: str, loaded: Loaded) -> tuple[LogHead, tuple[bytes, ...]]:
        """The new head, and the pages to write under `token` before the head is written."""
        writer = PageWriter(token)
        new = self._items
        end_offset = new[-1].end_offset if new else self.head.end_offset
        newest_ms = max((item.newest_ms for item in new), default=0)
        head = replace(
            self.head,
            token=token,
            end_offset=end_offset,
            commit_time_ms=max(self.head.commit_time_ms, newest_ms),
            items=append(ITEMS, self.head.items, new, writer, loaded),
            open_ledgers=self._open_ledgers(end_offset),
        )
        return head, tuple(writer.pages)

    @property
    def _items(self) -> tuple[Item, ...]:
        schema_id = self.head.schema_id if self.head.content is LogContent.ROWS else NO_SCHEMA
        filled = ((ledger_id, end) for ledger_id, end in self.closed.items() if not end.is_empty)
        return tuple(end.item(ledger_id, schema_id) for ledger_id, end in filled)

    def _open_ledgers(self, end_offset: int) -> tuple[OpenLedger, ...]:
        """The ledgers that stay open. The oldest gets its exact first offset (LOGS.md#G9)."""
        kept = self.head.open_ledgers[len(self.closed) :]
        if self.added is not None:
            kept = (*kept, OpenLedger(self.added, end_offset, self.now_ms))
        assert len(kept) <= OPEN_LEDGERS_MAX, kept
        return tuple(
            replace(
                ledger, first_offset=max(ledger.first_offset, end_offset) if place else end_offset
            )
            for place, ledger in enumerate(kept)
        )


def open_ids(head: LogHead) -> tuple[int, ...]:
    """The ids of the open ledgers of a leader log, oldest first."""
    return tuple(ledger.ledger_id for ledger in head.open_ledgers)


class ListChange(HeadTransaction[LogHead]):
    """One change of the list by the current leader; ends with `Finished(LogHead)`.

    After a lost reply, the plan compares the open ledgers in the head with the open ledgers before
    and after the change. The result shows whether the change was made. Only this leader lists its
    ledgers, and another leader removes them only when it takes over (LOGS.md#J2, LOGS.md#J4).

    Fails with `LeaderDeposedError` when the head has another leader's list, so that no attempt can
    succeed any more. Fails with `LedgerNotFoundError` when the ledger to add was deleted, so that
    another ledger is needed. Other failures are `LogNotFoundError` and the store's errors.
    """

    def __init__(
        self,
        log: str,
        *,
        mine: Sequence[int],
        closed: Closed,
        added: int | None,
        token: str,
        numbers: RequestNumbers,
    ) -> None:
        """`mine` has all ledgers that were open, oldest first. `closed` are its first ones."""
        super().__init__(log, token=token, numbers=numbers)
        self._mine = tuple(mine)
        self._closed = closed
        self._added = added

    def _plan(self, head: LogHead) -> Plan[LogHead]:
        yield from ()
        self._head_of(head, writes=LogKind.LEADER)
        added = () if self._added is None else (self._added,)
        wanted = (*self._mine[len(self._closed) :], *added)
        if open_ids(head) == wanted:
            return Finished(head)
        if open_ids(head) != self._mine:
            raise LeaderDeposedError(
                f"log {self.log!r} has another leader", log=self.log, ledger_ids=open_ids(head)
            )
        return ListEdit(head, self._closed, self._added, self._now_ms).change()
