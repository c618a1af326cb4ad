"""The newest view of a log's rows from an offset on, of either kind of log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledgerlog_spark.log.reading.open_ends import open_items, while_ledgers_go
from ledgerlog_spark.protocol.log.read.view import LogView, ViewMachine
from ledgerlog_spark.protocol.log.state.records import LogKind

if TYPE_CHECKING:
    from collections.abc import Collection

    from ledgerlog_spark.log.driver import Driver
    from ledgerlog_spark.log.ports import Ledgers


async def read_view(
    log: str,
    driver: Driver,
    ledgers: Ledgers,
    *,
    first_offset: int,
    seen_offset: int = 0,
    known_version: int | None,
    known_schemas: Collection[int],
    is_fresh: bool,
) -> LogView:
    """Implements `Log.view`."""

    async def viewed() -> LogView:
        machine = ViewMachine(
            log,
            first_offset=first_offset,
            known_version=known_version,
            known_schemas=known_schemas,
            is_fresh=is_fresh,
        )
        view = await driver.run(machine)
        is_leader_log = view.kind is LogKind.LEADER
        # A list that may be older than `seen_offset` proves nothing about its open ledgers.
        seen = seen_offset if is_fresh else 0
        return await _with_open_ends(view, ledgers, first_offset, seen) if is_leader_log else view

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
