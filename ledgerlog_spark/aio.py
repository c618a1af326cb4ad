"""The asyncio API: `async with await ll.aio.connect(uri) as client`."""

from __future__ import annotations

from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.composition import open_client
from ledgerlog_spark.log.clients import LogClient

__all__ = ["connect"]


async def connect(uri: str | None = None, *, settings: ClientSettings | None = None) -> LogClient:
    """Return a client of the cluster at `uri`. The client uses the running event loop.

    The caller must close the client, or use it in an `async with` statement.

    Args:
        uri: For example `zk://127.0.0.1:2181/ledgers`. The default is the value of the environment
            variable `LEDGERLOG_METADATA_SERVICE_URI`. If this variable is not set, the default is
            `zk://localhost:2181/ledgers`.
        settings: Time-outs and limits of the client. If it is None, the defaults are used.

    Raises:
        ConfigurationError: The URI is wrong. No request was sent.
        LocalProtocolError: `settings` has another type. No request was sent.
        MetadataUnavailableError: ZooKeeper did not answer within `connect_timeout_ms`.
    """
    return await open_client(uri, settings)
