"""Logs that are created and deleted while a stream reads (stream.watched_logs, stream.source)."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.stream.position import LogOffset
from ledgerlog_spark.datasource.stream.source import LedgerStream
from ledgerlog_spark.datasource.stream.watched_logs import WatchedLog, WatchedLogs
from ledgerlog_spark.errors import (
    DataLossError,
    LogNotFoundError,
    MetadataError,
    MetadataUnavailableError,
)
from ledgerlog_spark.protocol.log.read.view import LogView
from ledgerlog_spark.protocol.log.state.records import LogKind

if TYPE_CHECKING:
    from collections.abc import Callable


class Cluster:
    """Replaces the client and the logs of a cluster.

    Attributes:
        ids: The ids of the existing logs, by name.
        ends: The ends of logs by id, one for each look at the bookies. The last one stays.
        watched: The ids of watched logs.
    """

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}
        self.ends: dict[str, list[int]] = {}
        self.watched: list[str] = []
        self.on_names: Callable[[], None] = lambda: None
        self.on_end: dict[str, Callable[[], None]] = {}
        self.logs = self

    def run(self, _work: object) -> None:
        """Run a call. Nothing needs to be synchronised."""

    def names(self) -> list[str]:
        return sorted(self.ids)

    def watch_names(self, on_change: Callable[[], None]) -> Callable[[], None]:
        self.on_names = on_change
        return lambda: None

    def open(self, name: str) -> Log:
        if name not in self.ids:
            raise LogNotFoundError("gone", log=name)
        return Log(self, name, self.ids[name])

    def open_by_id(self, name: str, log_id: str) -> Log:
        return Log(self, name, log_id)

    def become(self, **ids: str) -> None:
        self.ids = ids
        self.on_names()


class Log:
    def __init__(self, cluster: Any, name: str, log_id: str) -> None:
        self.name = name
        self.log_id = log_id
        self._cluster = cluster

    def watch_end(self, on_change: Callable[[], None]) -> Callable[[], None]:
        self._cluster.watched.append(self.log_id)
        self._cluster.on_end[self.log_id] = on_change
        return lambda: self._cluster.watched.remove(self.log_id)

    def view(self, _first_offset: int, **_known: object) -> LogView:
        ends = self._cluster.ends[self.log_id]
        return view_of(self.name, self.log_id, ends.pop(0) if len(ends) > 1 else ends[0])


def view_of(name: str, log_id: str, end: int) -> LogView:
    """The view of a leader log with one open ledger."""
    open_ledger: Any = object()
    return LogView(
        log_id, name, 0, 0, end, 0, (), (), {}, 0, kind=LogKind.LEADER, open_ledgers=(open_ledger,)
    )


@pytest.fixture
def cluster() -> Any:
    return Cluster()


class All:
    """A selection of every log."""

    pattern = ".*"
    names = ()

    @staticmethod
    def among(names: list[str]) -> list[str]:
        return names


def test_logs_that_are_gone_are_watched_no_more(cluster: Any) -> None:
    selection: Any = All()
    logs = WatchedLogs(cluster, selection)
    for number in range(50):
        cluster.become(a="1", **{f"log-{number}": f"id-{number}"})
        assert set(logs.current()) == {"a", f"log-{number}"}
        logs.by_id("other", f"batch of {number}")
    assert sorted(cluster.watched) == ["1", "batch of 49", "id-49"]
    kept = logs.by_id("a", "1")
    cluster.become(a="1")
    assert logs.current() == {"a": kept}
    assert cluster.watched == ["1"]
    logs.close()
    assert cluster.watched == []


class Looks:
    """A log. Each look at it has a given result, or calls a given function."""

    name, log_id = "a", "1"

    def __init__(self, *looks: int | Callable[[], int]) -> None:
        self._looks = list(looks)
        self.change: Callable[[], None] = lambda: None

    def watch_end(self, on_change: Callable[[], None]) -> Callable[[], None]:
        self.change = on_change
        return lambda: None

    def view(self, _first_offset: int, **_known: object) -> LogView:
        look = self._looks.pop(0)
        return view_of(self.name, self.log_id, look() if callable(look) else look)


def watched(looks: Any) -> WatchedLog:
    return WatchedLog(looks)


def test_a_replica_that_is_behind_takes_nothing_back() -> None:
    looks = Looks(10, 7, 12)
    log = watched(looks)
    assert log.view(0).end_offset == log.view(0).end_offset == 10
    for end in (10, 12):
        looks.change()
        assert log.view(0).end_offset == end


def test_what_changes_during_a_look_is_looked_at_again() -> None:
    def grown() -> int:
        looks.change()
        return 11

    looks = Looks(10, grown, 12)
    log = watched(looks)
    assert log.view(0).end_offset == 10
    looks.change()
    assert [log.view(0).end_offset for _ in range(3)] == [11, 12, 12]


def test_while_the_store_is_away_the_log_stays_as_it_was_and_is_looked_at_again() -> None:
    def away() -> int:
        raise MetadataUnavailableError("away")

    looks = Looks(10, away, away, 12)
    log = watched(looks)
    assert log.view(0).end_offset == 10
    looks.change()
    assert [log.view(0).end_offset for _ in range(3)] == [10, 10, 12]


def test_a_listing_that_failed_is_done_again(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    selection: Any = All()
    logs = WatchedLogs(cluster, selection)
    cluster.become(a="1")

    def refused() -> list[str]:
        raise MetadataError("refused")

    with monkeypatch.context() as patched:
        patched.setattr(cluster, "names", refused)
        for _ in range(2):
            with pytest.raises(MetadataError, match="refused"):
                logs.current()
    assert set(logs.current()) == {"a"}


SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}],
    }
)


@pytest.fixture
def stream(cluster: Any) -> LedgerStream:
    return LedgerStream(cluster, SourceOptions.parse({"log": "a"}).for_stream(), SCHEMA)


def test_a_log_that_was_made_again_is_no_continuation(cluster: Any, stream: LedgerStream) -> None:
    cluster.become(a="2")
    cluster.ends = {"2": [10]}
    with pytest.raises(DataLossError, match="was deleted and created again"):
        stream.latest({"a": LogOffset("1", 4)}, None)
    given = SourceOptions.parse({"log": "a", "failOnDataLoss": "false"}).for_stream()
    careless = LedgerStream(cluster, given, SCHEMA)
    first = {"a": LogOffset("2", 0)}
    assert careless.latest({"a": LogOffset("1", 4)}, None) == first
    assert careless.latest(first, None) == {"a": LogOffset("2", 10)}
    assert careless.tasks({"a": LogOffset("1", 4)}, {"a": LogOffset("2", 7)}) == []


def test_a_stream_that_ends_reads_up_to_where_the_log_ended_when_it_began(
    cluster: Any, stream: LedgerStream
) -> None:
    cluster.become(a="1")
    cluster.ends = {"1": [10, 25]}
    stream.fix_ends()
    cluster.on_end["1"]()
    assert stream.latest({"a": LogOffset("1", 3)}, None) == {"a": LogOffset("1", 10)}
    assert stream.report()["a"]["offset"] == 25


def test_what_was_seen_of_logs_that_are_gone_is_forgotten(stream: LedgerStream) -> None:
    current: Any = {"a": SimpleNamespace(log_id="1")}
    ends = {"b": LogOffset("2", 7)}
    for number in range(100):
        name, log_id = f"log-{number}", f"id-{number}"
        stream._accepted[log_id] = 3
        stream._seen_ends[name] = LogOffset(log_id, 3)
        stream._passed_over.add(name)
        stream._schemas._checked[log_id] = 0
        stream._schemas._known[log_id] = {"n"}
        stream._schemas._new[name] = ("n",)
    for name, log_id in (("a", "1"), ("b", "2")):
        stream._accepted[log_id] = 1
        stream._seen_ends[name] = LogOffset(log_id, 1)
        stream._schemas._known[log_id] = {"n"}
        stream._schemas._new[name] = ("n",)
    stream._passed_over.add("b")
    stream._forget_gone(current, ends)
    assert stream._accepted == {"1": 1, "2": 1}
    assert set(stream._seen_ends) == {"a", "b"}
    assert stream._passed_over == {"b"}
    assert not stream._schemas._checked
    assert set(stream._schemas._known) == {"1", "2"}
    assert set(stream._schemas._new) == {"a", "b"}
