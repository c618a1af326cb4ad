"""Fakes for tests of programs that use ledgerlog. They form a cluster inside one event loop.

    from ledgerlog_spark.testing import MemoryCluster, connect_in_memory

    async with MemoryCluster() as cluster:
        client = cluster.client()
        leader = await client.open_log("orders", lead=True)

    with connect_in_memory() as client:  # the blocking calls, on a cluster of its own
        ledger = client.create_ledger()

The cluster uses no ports, processes or files, and its data is lost when it ends. Protocols, stores
and handles are the same as in a real cluster. Bookies and ZooKeeper are fakes, which pass the same
contract tests as the real servers.

- `cluster`: bookies and metadata together, and clients of the cluster.
- `bookie`: the storage of a bookie. `in_process`: the transport to bookies. `memory`: the metadata
  store.
"""

from ledgerlog_spark.testing.bookie import MemoryStorage
from ledgerlog_spark.testing.cluster import MemoryCluster, connect_in_memory

__all__ = ["MemoryCluster", "MemoryStorage", "connect_in_memory"]
