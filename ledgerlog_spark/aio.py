"""The asyncio API: `async with await ll.aio.connect(uri) as client`."""

from __future__ import annotations

from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.composition import open_client
from ledgerlog_spark.log.clients import LogClient

__all__ = ["connect"]


async def connect(uri: str | None = None, *, settings: ClientSettings | None = None) -> LogClient:
    """A client on the running event loop; like `ledgerlog_spark.connect`, with `await`.

    Raises:
        ConfigurationError: The URI is wrong, before any I/O.
        MetadataUnavailableError: ZooKeeper did not answer within `connect_timeout_ms`.
    """
    return await open_client(uri, settings)
