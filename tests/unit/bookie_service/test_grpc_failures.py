"""The peer of a gRPC request is in the reports of storage, and in the line of a failed list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from structlog.testing import capture_logs

from bookie_server.errors import unknown_entries
from ledgerlog_spark.transport import control_pb2 as pb
from tests.unit.bookie_service.test_grpc_batches import LEDGER, Call, World

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PEER = "ipv4:127.0.0.1:4711"


async def test_each_request_names_its_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    peers: list[object] = []
    for name in ("add", "read", "read_batch"):
        monkeypatch.setattr(
            world.storage, name, lambda request, _on_done: peers.append(request.peer)
        )
    stream: Any = object()
    taken: Any = None
    world.servicer._streams[stream] = PEER
    world.servicer._append(stream, pb.AppendRequest(ledger_id=LEDGER, entry_ids=[0]), taken)
    world.servicer._read(stream, pb.ReadRequest(ledger_id=LEDGER), taken)
    batch = world.batch(Call())
    await world.until(lambda: len(peers) == 3)
    batch.cancel()
    assert peers == [PEER] * 3


async def test_a_failed_list_is_logged_with_ledger_and_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)

    async def failing(ledger_id: int, _count_max: int) -> Any:
        raise unknown_entries(ledger_id)

    monkeypatch.setattr(world.storage, "entries_held", failing)
    with capture_logs() as lines:
        reply = await world.list(Call())
    assert reply.code == pb.CODE_IO_ERROR
    (line,) = lines
    assert line.items() >= {"event": "list_failed", "ledger_id": LEDGER, "peer": PEER}.items()
    assert "unknown" in line["reason"]
