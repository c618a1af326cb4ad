from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.log.clients import BlockingLogClient
from tests.fixtures.bookie_process import BookieProcess


class BookieCluster:
    """Bookies on one root, by id."""

    def __init__(self, make: Callable[..., BookieProcess], service_uri: str) -> None:
        self.uri = service_uri
        self.bookies: dict[str, BookieProcess] = {}
        self._make = make

    def start(self, count: int) -> None:
        """So many more, all at once; returns when each of them serves."""
        begun = []
        for _ in range(count):
            name = f"bookie-{len(self.bookies)}"
            self.bookies[name] = self._make(name, service_uri=self.uri, bookie_id=name)
            begun.append(self.bookies[name])
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(BookieProcess.start, begun))

    def connect(self, **settings: Any) -> BlockingLogClient:
        return ll.connect(self.uri, settings=ll.ClientSettings(**settings))


@pytest.fixture
def cluster(make_bookie: Callable[..., BookieProcess], service_uri: str) -> BookieCluster:
    running = BookieCluster(make_bookie, service_uri)
    running.start(3)
    return running
