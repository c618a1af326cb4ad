"""The storage requests of an append of the control service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from bookie_server.config import BookieSettings
from bookie_server.service.grpc.service import BookieServicer
from bookie_server.service.limits.lanes import Lanes
from bookie_server.service.metrics.counters import ServiceCounters
from ledgerlog_spark.model import Code
from ledgerlog_spark.testing.bookie import MemoryStorage
from ledgerlog_spark.transport import control_pb2 as pb
from ledgerlog_spark.wire.opcodes import number_of
from tests.fixtures.bookie_process import KEY, stored_entry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bookie_server.core.requests import EntryIds, StoredAdd

LEDGER = 7


class Storage(MemoryStorage):
    """Records the ids of each request."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[EntryIds] = []

    def add(self, request: StoredAdd, on_done: Callable[[Code], None]) -> None:
        self.asked.append(request.entry_ids)
        super().add(request, on_done)


class Answers:
    """The part of a stream that an append uses."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def answer(self, reply: Any, _taken: object) -> None:
        self.codes.append(reply.code)


@pytest.mark.parametrize(
    ("ids", "asked"),
    [
        ([0, 1, 2, 3], range(4)),
        ([10, 13, 16], range(10, 19, 3)),
        ([5], (5,)),
        ([0, 1, 3], (0, 1, 3)),
    ],
)
def test_ids_that_are_evenly_spaced_come_as_a_range(
    tmp_path: Path, ids: list[int], asked: EntryIds
) -> None:
    """A list of ids would stay in memory, and count as this many pieces."""
    storage, answers = Storage(), Answers()
    lanes = Lanes.of(BookieSettings(directories=(tmp_path,), port=0, bookie_id="b"))
    servicer = BookieServicer(
        "b",
        cast("Any", storage),
        cast("Any", None),
        cast("Any", None),
        lanes,
        ServiceCounters(),
        lambda: 0,
        10,
    )
    entries = [stored_entry(LEDGER, entry_id, b"grpc") for entry_id in ids]
    request = pb.AppendRequest(
        request_id=1,
        ledger_id=LEDGER,
        entry_ids=ids,
        lengths=[len(entry) for entry in entries],
        body=b"".join(entries),
        master_key=KEY,
    )
    servicer._append(cast("Any", answers), request, cast("Any", None))
    assert answers.codes == [number_of(Code.OK)]
    assert storage.asked == [asked]
