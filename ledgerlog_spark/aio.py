"""The asyncio face: `async with await ll.aio.connect(uri) as client`."""

from __future__ import annotations

from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.connect import open_client

__all__ = ["connect"]


async def connect(
    uri: str | None = None, *, settings: ClientSettings | None = None
) -> LedgerClient:
    """A client on the running event loop; like `ledgerlog_spark.connect`, with `await`.

    Raises:
        ConfigurationError: The URI is wrong, before any I/O.
        MetadataUnavailableError: ZooKeeper did not answer within `connect_timeout_ms`.
    """
    return await open_client(uri, settings)
