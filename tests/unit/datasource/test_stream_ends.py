"""The ends of its logs that a stream has (ledgerlog_spark.datasource.stream.watched_logs)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.datasource.stream import source as ledger_stream
from ledgerlog_spark.datasource.stream.position import LogOffset
from ledgerlog_spark.datasource.stream.source import LedgerStream
from ledgerlog_spark.datasource.stream.watched_logs import WatchedLog
from ledgerlog_spark.errors import DataLossError
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.log.read.view import LogView
from ledgerlog_spark.protocol.log.state.records import (
    Item,
    LogContent,
    LogKind,
    OpenLedger,
    Operation,
    VersionInterval,
)
from tests.unit.datasource.test_options import stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RECORDS_JSON = (
    '{"type":"struct","fields":[{"name":"value","type":"binary","nullable":true,"metadata":{}}]}'
)
TOLD, ACKNOWLEDGED = 100, 150


class GrowingLog:
    """A leader log of 150 records. The answering bookies have a LAC for 100 of them."""

    name, log_id = "orders", "id"

    def __init__(self, *, end: int = ACKNOWLEDGED) -> None:
        self.asked: list[tuple[bool, int]] = []
        self.changed: Callable[[], None] = lambda: None
        self._end = end

    def watch_end(self, on_change: Callable[[], None]) -> Callable[[], None]:
        self.changed = on_change
        return lambda: None

    def view(
        self, first_offset: int = 0, *, seen_offset: int = 0, is_fresh: bool = True, **_: Any
    ) -> LogView:
        self.asked.append((is_fresh, seen_offset))
        end = max(TOLD, min(seen_offset, self._end)) if is_fresh else TOLD
        return LogView(
            self.log_id, self.name, 0, 0, end, first_offset,
            (Item(7, 0, end - 1, NO_ENTRY, end, end, 0),),
            (VersionInterval(0, 0, 0, 0, "0" * 32, 0, Operation.CREATE),), {}, 0,
            kind=LogKind.LEADER, content=LogContent.RECORDS,
            open_ledgers=(OpenLedger(7, 0, 0),),
        )  # fmt: skip


class OneLog:
    """Replaces `WatchedLogs`."""

    def __init__(self, log: GrowingLog) -> None:
        self._log = WatchedLog(log)  # type: ignore[arg-type]

    def current(self) -> dict[str, WatchedLog]:
        return {self._log.name: self._log}

    def by_id(self, *_: str) -> WatchedLog:
        return self._log

    def close(self) -> None:
        self._log.close()


def restarted(monkeypatch: pytest.MonkeyPatch, log: GrowingLog) -> LedgerStream:
    """A stream in a process that has not read the log yet."""
    monkeypatch.setattr(ledger_stream, "WatchedLogs", lambda *_: OneLog(log))
    monkeypatch.setattr(ledger_stream, "tasks_from", planned)
    client: Any = SimpleNamespace(logs=None)
    return LedgerStream(client, stream(path="orders"), RECORDS_JSON)


def planned(_logs: Any, _scans: list[Any], options: Any, **_: Any) -> list[Any]:
    return [options.starting_offsets, options.ending_offsets]


def at(offset: int) -> Mapping[str, LogOffset]:
    return {"orders": LogOffset("id", offset)}


def test_a_batch_of_an_earlier_process_is_read_again_though_bookies_that_lag_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = GrowingLog()
    source = restarted(monkeypatch, log)
    planned: list[Any] = source.tasks(at(TOLD), at(ACKNOWLEDGED))
    assert planned == [{"orders": 100}, {"orders": 150}]
    assert log.asked == [(True, ACKNOWLEDGED)]


def test_a_checkpoint_behind_what_bookies_that_lag_were_told_is_no_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = GrowingLog()
    source = restarted(monkeypatch, log)
    assert source.latest(at(ACKNOWLEDGED), None) == at(ACKNOWLEDGED)
    log.changed()
    assert source.latest(at(ACKNOWLEDGED), None) == at(ACKNOWLEDGED)


def test_records_that_no_bookie_has_any_more_are_a_loss_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = GrowingLog(end=120)
    source = restarted(monkeypatch, log)
    with pytest.raises(DataLossError, match="ends at 120"):
        source.tasks(at(TOLD), at(ACKNOWLEDGED))
    with pytest.raises(DataLossError, match="ends at 120"):
        source.latest(at(ACKNOWLEDGED), None)
    assert len(log.asked) == 2


def test_a_view_is_kept_until_a_change_and_never_becomes_shorter() -> None:
    log = GrowingLog()
    watched = WatchedLog(log)  # type: ignore[arg-type]
    assert watched.view(0, seen_offset=ACKNOWLEDGED).end_offset == ACKNOWLEDGED
    assert watched.view(0).end_offset == ACKNOWLEDGED
    assert len(log.asked) == 1
    log.changed()
    assert watched.view(0).end_offset == ACKNOWLEDGED
    assert watched.view(0, is_fresh=True).end_offset == ACKNOWLEDGED
    assert log.asked[1:] == [(False, ACKNOWLEDGED), (True, ACKNOWLEDGED)]
