"""Changes the list in the head of a leader log (LOGS.md#J1-J5).

The list consists of items (closed ledgers), followed by at most two open ledgers. A change turns
the oldest open ledgers into items after they have been closed. It may also add one new open ledger.
Some changes only add a ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

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
"""Maps closed ledgers to their contents, in the order of the list. The list still names these
ledgers as open ledgers."""


def list_change(
    head: LogHead, closed: Closed, added: int | None, now_ms: int
) -> HeadChange[LogHead]:
    """Return the change that turns the `closed` ledgers into items, and adds the ledger `added`.

    `closed` contains the oldest open ledgers of the list. The added ledger follows the other open
    ledgers. If `added` is None, no ledger is added. Closed ledgers without entries are removed from
    the list. Raises DataLossError if a closed ledger does not begin at the end of the previous
    ledger (LOGS.md#J6).
    """
    assert open_ids(head)[: len(closed)] == tuple(closed)
    schema_id = head.schema_id if head.content is LogContent.ROWS else NO_SCHEMA
    filled = {ledger_id: end for ledger_id, end in closed.items() if not end.is_empty}
    items = tuple(end.item(ledger_id, schema_id) for ledger_id, end in filled.items())
    end_offset = _checked_end(head, items)
    opened = head.open_ledgers[len(closed) :]
    if added is not None:
        opened = (*opened, OpenLedger(added, end_offset, now_ms))
    assert len(opened) <= OPEN_LEDGERS_MAX, opened

    def build(token: str, loaded: Loaded) -> tuple[LogHead, tuple[bytes, ...]]:
        writer = PageWriter(token)
        new = replace(
            head,
            token=token,
            end_offset=end_offset,
            commit_time_ms=max((head.commit_time_ms, *(item.newest_ms for item in items))),
            items=append(ITEMS, head.items, items, writer, loaded),
            open_ledgers=tuple(
                # The oldest open ledger gets its exact first offset (LOGS.md#G9).
                replace(o, first_offset=max(o.first_offset, end_offset) if place else end_offset)
                for place, o in enumerate(opened)
            ),
        )
        return new, tuple(writer.pages)

    return HeadChange(
        build,
        lambda new: new,
        wanted=tuple(pages_to_merge(ITEMS, head.items, items)),
        unlisted=tuple(ledger_id for ledger_id in closed if ledger_id not in filled),
        listed=() if added is None else (added,),
    )


def _checked_end(head: LogHead, items: tuple[Item, ...]) -> int:
    """Return the end offset of the list with these new items. Raise an error if it has a gap."""
    offset = head.end_offset
    for item in items:
        if item.first_offset != offset:
            raise DataLossError(
                f"ledger {item.ledger_id} of log {head.name!r} begins at offset "
                f"{item.first_offset} instead of {offset}: entries before this ledger are lost, "
                "so an operator must inspect the ledgers of the log",
                log=head.name,
                ledger_id=item.ledger_id,
                expected_offset=offset,
                first_offset=item.first_offset,
            )
        offset = item.end_offset
    return offset


def open_ids(head: LogHead) -> tuple[int, ...]:
    """Return the ids of the open ledgers of a leader log, oldest first."""
    return tuple(ledger.ledger_id for ledger in head.open_ledgers)


class ListChange(HeadTransaction[LogHead]):
    """Makes one change of the list for the current leader; ends with `Finished(LogHead)`.

    After a lost reply, the plan compares the open ledgers in the head with the open ledgers before
    and after the change. The comparison shows whether the change was made, because only this leader
    lists its ledgers, and another leader removes them only when it takes over (LOGS.md#J2,
    LOGS.md#J4).

    Fails with `LeaderDeposedError` when the head contains another leader's list, so that no attempt
    can succeed any more. Fails with `LedgerNotFoundError` when the ledger to add was deleted. In
    this case, another ledger is needed. Other failures are `LogNotFoundError` and the store's
    errors.
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
        """`mine` contains the leader's open ledgers before the change, oldest first.

        `closed` contains the first ledgers of `mine`. `added` is the ledger to list, or None.
        """
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
        return list_change(head, self._closed, self._added, self._now_ms)
