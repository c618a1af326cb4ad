"""Fakes for tests of programs that use ledgerlog: a cluster inside one event loop.

    from ledgerlog_spark.testing import MemoryCluster

    async with MemoryCluster() as cluster:
        client = cluster.client()
        async with await client.open_log("orders", lead=True) as leader: ...

    with connect_in_memory() as client:  # the blocking calls, on a cluster of its own
        ledger = client.create_ledger()

There are no ports, processes or files, and nothing is kept. Protocols, stores and handles are those
of a real cluster; bookies and ZooKeeper are fakes that pass the same contract tests.

- `cluster`: bookies and metadata together, and clients of them.
- `bookie`: what a bookie stores. `in_process`: the transport to it. `memory`: the metadata.
"""

from ledgerlog_spark.testing.bookie import MemoryStorage
from ledgerlog_spark.testing.cluster import MemoryCluster, connect_in_memory, memory_metadata

__all__ = ["MemoryCluster", "MemoryStorage", "connect_in_memory", "memory_metadata"]
