"""Creates a ledger, writes and reads its entries, and deletes it, to test whether a cluster works.

A probe changes no other ledger. Also after a failure, a probe tries to delete its ledger.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.client.handles.creation import LedgerSpec
from ledgerlog_spark.client.handles.writer import WriteHandle
from ledgerlog_spark.errors import (
    BookieUnavailableError,
    LedgerLogError,
    NotEnoughBookiesError,
    RemoteProtocolError,
)
from ledgerlog_spark.metadata.registration import Registration
from ledgerlog_spark.model import DigestType, Fragment, LedgerMetadata, Quorum, Versioned
from ledgerlog_spark.waits import Deadline

APPLICATION = {"application": b"ledgerlog-probe"}
"""Custom metadata of the ledgers of probes, by which an operator can recognise these ledgers."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of a probe that succeeded.

    Attributes:
        ledger_id: Id of the ledger, which the probe has deleted.
        bookies: The ensemble of the ledger at the end of the probe.
        entries: Number of entries.
        append_s: Total time of all appends, in seconds.
        read_s: Total time of all reads, in seconds.
    """

    ledger_id: int
    bookies: tuple[str, ...]
    entries: int
    append_s: float
    read_s: float


async def probe_bookie(
    client: LedgerClient, bookie_id: str, *, entries: int, timeout_s: float
) -> Probe:
    """Write and read a ledger that is only on one bookie.

    Raises:
        BookieUnavailableError: The bookie does not run, is read-only, or did not answer in time.
            The error is not retriable if no bookie of the cluster ever had this id.
        LedgerLogError: An append or a read failed.
    """
    services = client.services

    def late() -> BookieUnavailableError:
        return BookieUnavailableError(
            f"bookie {bookie_id} did not store and return {entries} entries within "
            f"{timeout_s:g} s: read its log, and its metrics for the time of its syncs",
            bookie_id=bookie_id,
        )

    async def create(ledger_id: int, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        only_here = metadata.with_fragments((Fragment(0, (bookie_id,)),))
        return await services.ledgers.create(ledger_id, only_here)

    if bookie_id not in await services.registration.writable():
        raise await _not_writable(services.registration, bookie_id)
    spec = LedgerSpec(Quorum(1, 1, 1), DigestType.CRC32C, b"", APPLICATION, False, False)
    payloads = [b"sanity %d" % number for number in range(entries)]
    async with Deadline(timeout_s, late):
        writer = await client.create_registered_ledger(create, spec)
    return await _probe(client, writer, payloads, timeout_s, late)


async def _not_writable(registration: Registration, bookie_id: str) -> LedgerLogError:
    """Return the error for a bookie that accepts no new ledger. Nothing has been written yet."""
    see = "`ledgerlog bookies list` shows the states of all bookies"
    if bookie_id in await registration.read_only():
        what = f"bookie {bookie_id} is read-only, so it accepts no new ledger; {see}"
    elif bookie_id in await registration.known():
        what = f"bookie {bookie_id} is not registered: it is down, or it cannot reach ZooKeeper"
    else:
        return BookieUnavailableError(
            f"bookie {bookie_id} has never joined the cluster; {see}",
            bookie_id=bookie_id,
            definite=True,
            retriable=False,
        )
    return BookieUnavailableError(what, bookie_id=bookie_id, definite=True)


async def probe_cluster(
    client: LedgerClient, quorum: Quorum, *, entries: int, size_bytes: int, timeout_s: float
) -> Probe:
    """Write and read a ledger on an ensemble that the client chooses.

    Raises:
        NotEnoughBookiesError: There are too few writable bookies, or they did not answer in time.
        LedgerLogError: An append or a read failed.
    """

    def late() -> NotEnoughBookiesError:
        return NotEnoughBookiesError(
            f"the cluster did not store and return {entries} entries within {timeout_s:g} s: "
            "`ledgerlog bookies sanity` tests one bookie",
            wanted=quorum.ensemble_size,
            definite=False,
        )

    payloads = [(b"%d " % number).ljust(size_bytes, b".")[:size_bytes] for number in range(entries)]
    async with Deadline(timeout_s, late):
        writer = await client.create_ledger(
            ensemble_size=quorum.ensemble_size,
            write_quorum=quorum.write_quorum,
            ack_quorum=quorum.ack_quorum,
            custom_metadata=APPLICATION,
        )
    return await _probe(client, writer, payloads, timeout_s, late)


async def _probe(
    client: LedgerClient,
    writer: WriteHandle,
    payloads: list[bytes],
    timeout_s: float,
    late: Callable[[], LedgerLogError],
) -> Probe:
    try:
        async with Deadline(timeout_s, late):
            begun = time.perf_counter()
            await writer.append_batch(payloads)
            appended = time.perf_counter()
            metadata = await writer.close()
            closed = time.perf_counter()
            await _compare(client, writer.id, payloads)
            read = time.perf_counter()
    finally:
        writer.abandon()
        with contextlib.suppress(LedgerLogError):
            await client.delete_ledger(writer.id)
    return Probe(
        ledger_id=writer.id,
        bookies=metadata.last_fragment.ensemble,
        entries=len(payloads),
        append_s=appended - begun,
        read_s=read - closed,
    )


async def _compare(client: LedgerClient, ledger_id: int, payloads: list[bytes]) -> None:
    """Read the closed ledger. Raise RemoteProtocolError if its payloads differ from `payloads`."""
    reader = await client.open_ledger(ledger_id)
    try:
        found = [bytes(entry.payload) async for entry in reader.read()]
    finally:
        await reader.aclose()
    if found != payloads:
        raise RemoteProtocolError(
            f"ledger {ledger_id} returned other entries than the probe wrote: report this, with "
            "the logs of its bookies",
            ledger_id=ledger_id,
        )
