"""Keeps one client for each cluster in a process, for later tasks of the same Python worker.

When Spark calls a reader, a writer or a task, it gets the client from this module once, and passes
the client to the functions that it calls.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Sequence

from ledgerlog_spark.client.client import LOADS_AT_ONCE, LedgerClient
from ledgerlog_spark.client.password_file import password_from_file
from ledgerlog_spark.errors import ConfigurationError, LedgerNotFoundError
from ledgerlog_spark.log.clients import BlockingLogClient
from ledgerlog_spark.model import LedgerMetadata

_clients: dict[str, BlockingLogClient] = {}
_lock = threading.Lock()


def client_of(uri: str) -> BlockingLogClient:
    """Return this process's client of the cluster at `uri`. The first call connects the client."""
    from ledgerlog_spark.composition import connect

    with _lock:
        client = _clients.get(uri)
        if client is not None and (client.is_closed or client.is_orphaned()):
            # A notebook can start several clusters, one after another, at the same address. So the
            # client of an earlier cluster is replaced.
            client.close()
            client = None
        if client is None:
            client = _clients[uri] = connect(uri)
            # Spark collects garbage after every task. The modules that are imported up to now never
            # become garbage, so `freeze` excludes them from these collections.
            gc.freeze()
        return client


async def metadata_of(
    client: LedgerClient, ledger_ids: Sequence[int]
) -> list[LedgerMetadata | None]:
    """Return the current metadata of each ledger, with None for a ledger that does not exist.

    Raises:
        MetadataUnavailableError: The metadata of a ledger could not be read.
    """

    async def load(ledger_id: int) -> LedgerMetadata | None:
        try:
            return await client.ledger_metadata(ledger_id)
        except LedgerNotFoundError:
            return None

    loaded: list[LedgerMetadata | None] = []
    for start in range(0, len(ledger_ids), LOADS_AT_ONCE):
        loaded += await asyncio.gather(*map(load, ledger_ids[start : start + LOADS_AT_ONCE]))
    return loaded


def password_in(file: str | None) -> bytes:
    """Return the password in the file that the option `passwordFile` names.

    If this option is not set, the result is empty bytes.
    """
    return password_from_file(
        file,
        lambda finding: ConfigurationError(
            f'option "passwordFile" names {file!r} on the driver, which {finding}',
            option="passwordFile",
        ),
    )
