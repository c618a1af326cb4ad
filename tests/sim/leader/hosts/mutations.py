"""Mutations of leaders' hosts and readers, and the violation that each must cause."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.log import clock
from ledgerlog_spark.log.leader.host import LeaderHost
from ledgerlog_spark.log.leader.leader import Leader
from ledgerlog_spark.log.leader.ledger_writer import LeaderWriter
from ledgerlog_spark.log.leader.rows import LeaderRows
from ledgerlog_spark.log.reading.record_reader import RecordReader
from ledgerlog_spark.metadata.logs.store import LogStore
from tests.sim.leader.mutations import Mutation

if TYPE_CHECKING:
    from collections.abc import Mapping


def _keep_the_failure(self: LeaderWriter, exception: Any, /) -> None:
    del exception
    self._is_broken = True


async def _never_close(self: LeaderHost, request: Any) -> Any:
    del self, request
    await asyncio.get_running_loop().create_future()


def _fail_all_for_certain(self: Leader, error: Any, _unknown: int, unsent: int) -> Any:
    return _end(self, error, unsent, unsent)


async def _list_as_before(self: RecordReader[Any], cursor: Any) -> Any:
    """Return the first list forever."""
    if self not in _LISTS:
        _LISTS[self] = await _relisted(self, cursor)
    return _LISTS[self]


def _of_any_columns(self: LeaderRows, log: str, schema: Any, _appended: Any) -> None:
    _rows_begin(self, log, schema, None)


_rows_begin = LeaderRows.__init__
_LISTS: dict[RecordReader[Any], Any] = {}
_relisted = RecordReader._relisted
_end = Leader._end

MUTATIONS: Mapping[str, Mutation] = {
    "host_keeps_a_broken_ledger_to_itself": Mutation(
        "", "never end", ((LeaderWriter, "set_exception", _keep_the_failure),)
    ),
    "host_never_answers_a_close": Mutation(
        "", "never end|stands still|did not end", ((LeaderHost, "_close", _never_close),)
    ),
    "host_fails_sent_appends_for_certain": Mutation(
        "J10", "failed for certain|is there", ((Leader, "_end", _fail_all_for_certain),)
    ),
    "reader_never_looks_at_the_list_again": Mutation(
        "", "stands still|never end", ((RecordReader, "_relisted", _list_as_before),)
    ),
    "append_times_of_the_local_clock": Mutation(
        "J10",
        "times fall|ahead|before its append",
        ((LogStore, "clock_ms", lambda _self: clock.now_ms()),),
    ),
    "rows_of_any_columns": Mutation(
        "G6", "of other columns", ((LeaderRows, "__init__", _of_any_columns),)
    ),
}
