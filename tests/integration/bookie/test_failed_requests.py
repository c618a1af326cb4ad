"""The log lines of failed requests: each has the ledger, the entry and the peer."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from ledgerlog_spark.metadata.stores import open_metadata
from ledgerlog_spark.model import Code, Fragment, LedgerMetadata, Quorum
from ledgerlog_spark.transport import control_pb2 as pb
from ledgerlog_spark.transport import control_pb2_grpc
from ledgerlog_spark.wire.requests import encode_read
from tests.fixtures.bookie_process import MEBIBYTE, add_frame
from tests.fixtures.patience import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.bookie_process import BookieProcess

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

LEDGER, DAMAGED = 7, 3
MARK = b"a payload that is in the file once"


def lines_of(bookie: BookieProcess, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in bookie.log().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


async def create_ledger(bookie: BookieProcess) -> None:
    """Create a record with another member, which does not exist.

    The repair of the damaged entry would drop a ledger without a record.
    """
    stores = await open_metadata(bookie.service_uri)
    try:
        ensemble = (f"127.0.0.1:{bookie.port}", "127.0.0.1:1")
        await stores.ledgers.create(
            LEDGER, LedgerMetadata(Quorum(2, 2, 2), (Fragment(0, ensemble),))
        )
    finally:
        await stores.close()


def test_the_lines_of_failed_reads_have_ledger_entry_and_peer(
    make_bookie: Callable[..., BookieProcess],
) -> None:
    bookie = make_bookie(file_size_bytes=8 * MEBIBYTE).start()
    asyncio.run(create_ledger(bookie))
    with bookie.peer() as peer:
        for number in range(5):
            payload = MARK if number == DAMAGED else b"%d" % number
            assert peer.ask(add_frame(LEDGER, number, payload)).code is Code.OK
    assert bookie.stop() == 0
    (slot,) = (path for path in bookie.directory.glob("slot-*") if MARK in path.read_bytes())
    slot.write_bytes(slot.read_bytes().replace(MARK, MARK[::-1]))
    bookie.start()
    with bookie.peer() as peer:
        address = list(peer.socket.getsockname())
        assert peer.ask(encode_read(LEDGER, DAMAGED)).code is Code.IO_ERROR
    until(lambda: lines_of(bookie, "read_failed"))  # no answer waits for its log line
    (line,) = lines_of(bookie, "read_failed")
    ids = {"ledger_id": LEDGER, "entry_id": DAMAGED}
    assert line.items() >= {**ids, "peer": address}.items()
    assert line["reason"]
    with grpc.insecure_channel(f"127.0.0.1:{bookie.grpc_port}") as channel:
        stub = control_pb2_grpc.BookieStub(channel)
        read = pb.ReadRequest(request_id=1, ledger_id=LEDGER, entry_id=DAMAGED)
        (reply,) = stub.Read(iter([read]))
        assert reply.code == pb.CODE_IO_ERROR
        batch = pb.BatchReadRequest(ledger_id=LEDGER, first_entry_id=DAMAGED, count_max=1)
        assert stub.BatchRead(batch).code == pb.CODE_IO_ERROR
    assert bookie.stop() == 0
    _, *by_grpc = lines_of(bookie, "read_failed")
    assert len(by_grpc) == 2
    for line in by_grpc:
        assert line.items() >= ids.items()
        assert line["peer"].startswith("ipv4:127.0.0.1:")
