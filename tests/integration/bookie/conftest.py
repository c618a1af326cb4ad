"""Bookie processes for tests; all of them end with the test or the module that started them."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.bookie_process import BookieProcess, Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ledgerlog_spark.local.zookeeper import ZooKeeperProcess

_ledger_ids = itertools.count(1)
_roots = itertools.count(1)


@pytest.fixture(scope="module")
def bookie(
    zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BookieProcess]:
    """A bookie that the tests of a module share and leave serving."""
    uri = f"zk://{zookeeper.connect_string}/b-{os.getpid()}-{next(_roots)}/ledgers"
    process = BookieProcess(tmp_path_factory.mktemp("bookie") / "data", uri).start()
    yield process
    process.kill()


@pytest.fixture
def make_bookie(tmp_path: Path, service_uri: str) -> Iterator[Callable[..., BookieProcess]]:
    """Makes bookies of one cluster that no other test uses, not started yet."""
    made: list[BookieProcess] = []

    def make(name: str = "b1", **settings: object) -> BookieProcess:
        uri = str(settings.pop("service_uri", service_uri))
        port = settings.pop("port", None)
        assert port is None or isinstance(port, int)
        made.append(BookieProcess(tmp_path / name, uri, port, **settings))
        return made[-1]

    yield make
    for process in made:
        process.kill()


@pytest.fixture
def peer(bookie: BookieProcess) -> Iterator[Peer]:
    with bookie.peer() as connected:
        yield connected


@pytest.fixture
def ledger_id() -> int:
    """A ledger that no other test uses."""
    return next(_ledger_ids)
