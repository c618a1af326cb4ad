"""The composition root.

Only this module combines the hosts of machines with transports and stores.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from random import Random

from ledgerlog_spark.client.arguments import check_optional
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.client.services import Services
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.log.clients import BlockingLogClient, LogClient
from ledgerlog_spark.metadata.registration import Registration
from ledgerlog_spark.metadata.service_uri import parse_service_uri
from ledgerlog_spark.metadata.stores import MetadataStores, open_metadata
from ledgerlog_spark.model import SERVICE_URI_DEFAULT, SERVICE_URI_VARIABLE
from ledgerlog_spark.transport.port import BookieTransport
from ledgerlog_spark.transport.v2.transport import V2Transport


def service_uri(*given: str | None) -> str:
    """Return the first URI in `given`, or else the URI of the environment, or else the default URI.

    Only the environment of this process is read. Spark's Python processes have the environment of
    the JVM, so they do not have a variable that was set after the start of the JVM.
    """
    return next(filter(None, (*given, os.environ.get(SERVICE_URI_VARIABLE), SERVICE_URI_DEFAULT)))


async def _open_stores(uri: str | None, settings: ClientSettings) -> MetadataStores:
    return await open_metadata(
        parse_service_uri(service_uri(uri)),
        session_timeout_ms=settings.session_timeout_ms,
        connect_timeout_ms=settings.connect_timeout_ms,
        request_timeout_ms=settings.metadata_timeout_ms,
    )


def client_on(stores: MetadataStores, transport: BookieTransport) -> LedgerClient:
    """Return a client of ledgers. The client never closes the given stores and transport."""
    return LedgerClient(services_on(stores, transport))


def log_client_on(stores: MetadataStores, transport: BookieTransport) -> LogClient:
    """Return a client of logs. The client never closes the given stores and transport."""
    return LogClient(services_on(stores, transport))


def services_on(stores: MetadataStores, transport: BookieTransport) -> Services:
    """Return services that use open stores and a transport, with the default settings."""
    random = Random()  # noqa: S311 - for placement and jitter, not for secrets
    return Services.on(stores, transport, ClientSettings(), random)


async def open_client(uri: str | None = None, settings: ClientSettings | None = None) -> LogClient:
    """Return a client of the cluster at `uri`. The client uses the running event loop."""
    check_optional("settings", settings, ClientSettings)
    settings = settings or ClientSettings()
    stores = await _open_stores(uri, settings)
    transport = V2Transport(stores.registration.info)

    async def close() -> None:
        try:
            await transport.aclose()
        finally:
            await stores.close()

    random = Random()  # noqa: S311 - for placement and jitter, not for secrets
    services = Services.on(stores, transport, settings, random)
    return LogClient(services, on_close=close)


def connect(uri: str | None = None, *, settings: ClientSettings | None = None) -> BlockingLogClient:
    """Return a blocking client of the cluster at `uri`.

    The caller must close the client, or use it in a `with` statement.

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
    check_optional("settings", settings, ClientSettings)
    # The URI is resolved once, so that a forked child connects to the cluster of its parent.
    resolved = str(parse_service_uri(service_uri(uri)))
    return BlockingLogClient(lambda: open_client(resolved, settings))


@contextlib.asynccontextmanager
async def metadata(uri: str | None = None) -> AsyncIterator[MetadataStores]:
    """Yield the metadata stores of the cluster at `uri`.

    At the end of the `async with` block, the stores are closed.
    """
    stores = await _open_stores(uri, ClientSettings())
    try:
        yield stores
    finally:
        await stores.close()


@contextlib.asynccontextmanager
async def registration(uri: str | None = None) -> AsyncIterator[Registration]:
    """Yield the store of the registrations and cookies of the bookies, for the cluster at `uri`.

    At the end of the `async with` block, the store is closed.
    """
    async with metadata(uri) as stores:
        yield stores.registration
