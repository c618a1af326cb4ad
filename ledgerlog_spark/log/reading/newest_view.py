"""The newest view of a log's rows from an offset on, of either kind of log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledgerlog_spark.log.reading.open_ends import open_items, while_ledgers_go
from ledgerlog_spark.protocol.log.read.view import LogView, ViewMachine
from ledgerlog_spark.protocol.log.state.records import LogKind

if TYPE_CHECKING:
    from collections.abc import Collection

    from ledgerlog_spark.log.host import LogHost
    from ledgerlog_spark.log.ports import Ledgers


async def view(
    host: LogHost,
    first_offset: int = 0,
    *,
    seen_offset: int = 0,
    known_version: int | None = None,
    known_schemas: Collection[int] = (),
    is_fresh: bool = True,
) -> LogView:
    """All retained rows from an offset on, for a reader that follows. Errors as of `Log.state`.

    Args:
        first_offset: The first row that may be read.
        seen_offset: The known end of the log, also from another process. A fresh view of an open
            ledger reaches that offset, even if the bookies that answer do not have the newest LAC
            yet. It ends before it only if records are lost.
        known_version: The newest version that the caller has; None for enough versions to find
            when those rows were committed.
        known_schemas: Ids of the schemas that the caller has.
        is_fresh: Whether the view must be current; otherwise it needs one request less, and may
            lack existing rows.
    """

    async def viewed() -> LogView:
        machine = ViewMachine(
            host.name,
            first_offset=first_offset,
            known_version=known_version,
            known_schemas=known_schemas,
            is_fresh=is_fresh,
        )
        found = await host.run(machine)
        if found.kind is not LogKind.LEADER:
            return found
        # A list that may be older than `seen_offset` proves nothing about its open ledgers.
        seen = seen_offset if is_fresh else 0
        return await _with_open_ends(found, host.ledgers, first_offset, seen)

    return await while_ledgers_go(viewed)


async def _with_open_ends(
    view: LogView, ledgers: Ledgers, first_offset: int, seen_offset: int
) -> LogView:
    """Reads the ends of open ledgers from their bookies, which alone have them."""
    end_offset, items = await open_items(
        ledgers,
        view.open_ledgers,
        end_offset=view.end_offset,
        schema_id=view.schema_id,
        log=view.name,
        seen_offset=seen_offset,
    )
    first = max(first_offset, view.start_offset)
    return replace(
        view,
        oldest_offset=view.start_offset,
        end_offset=end_offset,
        first_offset=first,
        items=tuple(item for item in (*view.items, *items) if item.end_offset > first),
    )
