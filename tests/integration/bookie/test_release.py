"""A bookie gives back the space of a closed ledger whose metadata no longer names it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import grpc
import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.metadata.stores import open_metadata
from ledgerlog_spark.model import LedgerMetadata, Versioned
from ledgerlog_spark.transport import control_pb2 as pb
from ledgerlog_spark.transport import control_pb2_grpc
from ledgerlog_spark.wire.opcodes import Flag
from tests.fixtures.bookie_process import add_frame
from tests.fixtures.patience import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.bookie_process import BookieProcess

pytestmark = [pytest.mark.zookeeper, pytest.mark.processes]

PAYLOADS = [b"%d" % number * 1_000 for number in range(20)]


def held(bookie: BookieProcess, ledger_id: int) -> list[tuple[int, int]]:
    """The ranges of entries that a bookie lists."""
    with grpc.insecure_channel(f"127.0.0.1:{bookie.grpc_port}") as channel:
        stub = control_pb2_grpc.BookieStub(channel)
        reply = stub.ListEntries(pb.ListEntriesRequest(ledger_id=ledger_id))
    assert reply.code in (pb.CODE_OK, pb.CODE_NO_LEDGER), reply
    return [(each.first_entry_id, each.last_entry_id) for each in reply.ranges]


def read_code(bookie: BookieProcess, ledger_id: int, entry_id: int) -> int:
    with grpc.insecure_channel(f"127.0.0.1:{bookie.grpc_port}") as channel:
        stub = control_pb2_grpc.BookieStub(channel)
        request = pb.ReadRequest(request_id=1, ledger_id=ledger_id, entry_id=entry_id)
        (reply,) = list(stub.Read(iter([request])))
    return int(reply.code)


def moved(uri: str, ledger_id: int, old: str, new: str) -> Versioned[LedgerMetadata]:
    """Replace a bookie in the metadata of a ledger, as Apache's worker does after its copies."""

    async def write() -> Versioned[LedgerMetadata]:
        stores = await open_metadata(uri)
        try:
            record = await stores.ledgers.load(ledger_id)
            fragments = tuple(
                replace(
                    fragment,
                    ensemble=tuple(new if one == old else one for one in fragment.ensemble),
                )
                for fragment in record.value.fragments
            )
            metadata = record.value.with_fragments(fragments)
            return await stores.ledgers.write(ledger_id, metadata, record.version)
        finally:
            await stores.close()

    return asyncio.run(write())


def record_of(uri: str, ledger_id: int) -> Versioned[LedgerMetadata]:
    async def read() -> Versioned[LedgerMetadata]:
        stores = await open_metadata(uri)
        try:
            return await stores.ledgers.load(ledger_id)
        finally:
            await stores.close()

    return asyncio.run(read())


def test_a_moved_ledger_is_released_stays_whole_and_may_come_back(
    make_bookie: Callable[..., BookieProcess], service_uri: str
) -> None:
    bookies = {
        name: make_bookie(name, bookie_id=name, release_wait_ms=1).start()
        for name in ("b1", "b2", "b3")
    }
    with ll.connect(service_uri) as client:
        ledger = client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2)
        ledger_id = ledger.id
        for payload in PAYLOADS:
            ledger.append(payload)
        ledger.close()
        ensemble = record_of(service_uri, ledger_id).value.last_fragment.ensemble
        old = bookies[ensemble[0]]
        (name,) = bookies.keys() - set(ensemble)
        new, whole = bookies[name], [(0, len(PAYLOADS) - 1)]

        # While the metadata names the bookie, its entries stay.
        for _ in range(3):
            old.collect()
        assert held(old, ledger_id) == whole

        # The entries are copied as a worker does, and then the metadata is written.
        with new.peer() as peer:
            for entry_id, payload in enumerate(PAYLOADS):
                peer.ask(add_frame(ledger_id, entry_id, payload, flags=Flag.RECOVERY_ADD))
        assert held(new, ledger_id) == whole
        written = moved(service_uri, ledger_id, ensemble[0], name)
        for _ in range(3):
            old.collect()
        assert held(old, ledger_id) == []
        assert read_code(old, ledger_id, 3) == pb.CODE_NO_ENTRY
        assert held(new, ledger_id) == whole
        touched = record_of(service_uri, ledger_id)
        assert touched.value == written.value
        assert touched.version.number == written.version.number + 1
        # No answer waits for a log line.
        until(lambda: '"ledgers_released":1' in old.log().replace(" ", ""))
        assert [each.payload for each in client.open_ledger(ledger_id).read()] == PAYLOADS

        # An add of the old writer is refused after a look at the metadata.
        with old.peer() as peer:
            answer = peer.ask(add_frame(ledger_id, len(PAYLOADS), b"late"))
        assert answer.code.name == "FENCED"

        # The bookie is named again, and takes the copies.
        old.kill()
        old.start()
        assert held(old, ledger_id) == []
        with old.peer() as peer:
            for entry_id, payload in enumerate(PAYLOADS):
                peer.ask(add_frame(ledger_id, entry_id, payload, flags=Flag.RECOVERY_ADD))
        moved(service_uri, ledger_id, name, ensemble[0])
        for _ in range(3):
            new.collect()
            old.collect()
        assert held(old, ledger_id) == whole
        assert held(new, ledger_id) == []
        assert [each.payload for each in client.open_ledger(ledger_id).read()] == PAYLOADS
