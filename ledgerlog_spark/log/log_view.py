"""The newest view of a log's rows from an offset on, of either kind of log (DESIGN 6.3, 7)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledgerlog_spark.protocol.log_records import LogKind
from ledgerlog_spark.protocol.log_view import LogView, ViewMachine

if TYPE_CHECKING:
    from collections.abc import Collection

    from ledgerlog_spark.log.driver import Driver
    from ledgerlog_spark.log.log import Log


async def read_view(
    log: Log,
    driver: Driver,
    *,
    first_offset: int,
    known_version: int | None,
    known_schemas: Collection[int],
    is_fresh: bool,
) -> LogView:
    """See `Log.view`."""
    view: LogView = await driver.run(
        ViewMachine(
            log.name,
            first_offset=first_offset,
            known_version=known_version,
            known_schemas=known_schemas,
            is_fresh=is_fresh,
        )
    )
    if view.kind is not LogKind.LEADER:
        return view
    # What an open ledger holds is known to its bookies alone: the snapshot asks them.
    snapshot = await log.snapshot()
    interval = snapshot.interval
    first = max(first_offset, interval.start_offset)
    return replace(
        view,
        oldest_offset=interval.start_offset,
        start_offset=interval.start_offset,
        end_offset=interval.end_offset,
        first_offset=first,
        items=tuple(item for item in snapshot.items if item.end_offset > first),
        schemas={**view.schemas, **snapshot.schemas},
        schema_id=interval.schema_id,
    )
