"""A process may outlive several clusters at one address, like the kernel of a notebook."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.datasource.cluster import client_of
from ledgerlog_spark.local.zookeeper import ZooKeeperProcess
from ledgerlog_spark.metadata.service_uri import parse_service_uri
from ledgerlog_spark.metadata.stores import open_metadata

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

TRANSACTIONS_AHEAD = 40
"""It is much larger than the number of transactions of the second ZooKeeper at the request."""


async def initialize(uri: str, *, session_count: int = 1) -> None:
    for _ in range(session_count):
        stores = await open_metadata(parse_service_uri(uri))
        await stores.initialize()
        await stores.close()


def test_client_kept_by_a_process_is_replaced_when_another_cluster_has_its_address(
    tmp_path: Path,
) -> None:
    with ZooKeeperProcess(tmp_path / "first") as first:
        uri = first.service_uri
        asyncio.run(initialize(uri, session_count=TRANSACTIONS_AHEAD))
        kept = client_of(uri)
        assert client_of(uri) is kept
    with ZooKeeperProcess(tmp_path / "second", port=first.port) as second:
        assert second.service_uri == uri
        asyncio.run(initialize(uri))
        later = client_of(uri)
        assert later is not kept
        assert list(later.list_ledgers()) == []
        assert client_of(uri) is later
        later.close()
        # The clusters of two tests of one process may have the same address, too.
        again = client_of(uri)
        assert again is not later
        assert list(again.list_ledgers()) == []
        again.close()
