"""Requests the copy of every bookie of an entry's write set: for checks, not for reading."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ledgerlog_spark.model import Code
from ledgerlog_spark.protocol.ledger.quorum import write_set
from ledgerlog_spark.transport.port import ReadEntry
from ledgerlog_spark.waits import forever

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledgerlog_spark.client.services import Services
    from ledgerlog_spark.model import LedgerMetadata


async def entry_copies(
    services: Services, ledger_id: int, metadata: LedgerMetadata, entry_id: int
) -> Mapping[str, Code]:
    """The answer of each bookie of the write set: OK, or why it has no copy.

    The digest is not verified; a bookie verifies its own checksums before it answers OK.
    """
    ensemble = metadata.fragment_of(entry_id).ensemble
    bookies = [ensemble[index] for index in write_set(metadata.quorum, entry_id)]
    codes = await asyncio.gather(*(_code_of(services, b, ledger_id, entry_id) for b in bookies))
    return dict(zip(bookies, codes, strict=True))


async def _code_of(services: Services, bookie_id: str, ledger_id: int, entry_id: int) -> Code:
    done: asyncio.Future[Code] = asyncio.get_running_loop().create_future()

    def on_reply(code: Code, _entry: bytes | None) -> None:
        if not done.done():
            done.set_result(code)

    services.transport.read(
        bookie_id, ReadEntry(ledger_id, entry_id), services.settings.read_timeout_ms, on_reply
    )
    return await forever(done, "the transport answers each request by its deadline")
