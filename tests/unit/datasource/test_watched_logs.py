"""Logs that come and go while a stream reads (watched_logs, ledger_stream)."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.datasource import watched_logs
from ledgerlog_spark.datasource.ledger_stream import LedgerStream
from ledgerlog_spark.datasource.options import SourceOptions
from ledgerlog_spark.datasource.stream_offsets import LogOffset
from ledgerlog_spark.datasource.watched_logs import WatchedLogs
from ledgerlog_spark.errors import LogNotFoundError
from ledgerlog_spark.protocol.log_records import LogKind
from ledgerlog_spark.protocol.log_view import LogView

if TYPE_CHECKING:
    from collections.abc import Callable


class Cluster:
    """Stands where the client and the logs of a cluster are.

    Attributes:
        ids: Of the logs that there are, by name.
        ends: Of logs by id, as bookies tell at each look; the last stays.
        watched: Ids of logs that are watched.
    """

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}
        self.ends: dict[str, list[int]] = {}
        self.watched: list[str] = []
        self.on_names: Callable[[], None] = lambda: None

    def run(self, _work: object) -> None:
        """Nothing is to be synchronised."""

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
    def __init__(self, cluster: Cluster, name: str, log_id: str) -> None:
        self.name = name
        self.log_id = log_id
        self._cluster = cluster

    def watch_end(self, _on_change: object) -> Callable[[], None]:
        self._cluster.watched.append(self.log_id)
        return lambda: self._cluster.watched.remove(self.log_id)

    def view(self, _first_offset: int, **_known: object) -> LogView:
        ends = self._cluster.ends[self.log_id]
        end = ends.pop(0) if len(ends) > 1 else ends[0]
        open_ledger: Any = object()
        return LogView(
            self.log_id,
            self.name,
            0,
            0,
            end,
            0,
            (),
            (),
            {},
            0,
            kind=LogKind.LEADER,
            open_ledgers=(open_ledger,),
        )


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(watched_logs, "client_of", lambda _uri: made)
    monkeypatch.setattr(watched_logs, "logs_at", lambda _uri: made)
    return made


class All:
    """A selection of every log."""

    pattern = ".*"
    names = ()

    @staticmethod
    def among(names: list[str]) -> list[str]:
        return names


def test_logs_that_are_gone_are_watched_no_more(cluster: Cluster) -> None:
    selection: Any = All()
    logs = WatchedLogs("uri", selection)
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


SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}],
    }
)


@pytest.fixture
def stream(cluster: Cluster) -> LedgerStream:
    return LedgerStream("uri", SourceOptions.parse({"log": "a"}).for_stream(), SCHEMA)


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
