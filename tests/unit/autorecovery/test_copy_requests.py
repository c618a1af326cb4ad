"""The requests of the checks to bookies, with answers that a test sets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ledgerlog_spark.autorecovery.accepted import AcceptedEntries
from ledgerlog_spark.autorecovery.audit.copy_requests import CopyRequests
from ledgerlog_spark.errors import BookieUnavailableError
from ledgerlog_spark.metadata.accepted_losses import AcceptedLosses
from ledgerlog_spark.model import (
    BookieInfo,
    Code,
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    Quorum,
    Version,
)
from ledgerlog_spark.protocol.autorecovery.audit import messages as m
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.testing.memory.tree import MemoryTree
from ledgerlog_spark.transport.port import ReadBatch, ReadEntry
from ledgerlog_spark.wire.entry import EntryCodec

LISTED, UNKNOWN = m.ListOutcome.LISTED, m.ListOutcome.UNKNOWN
UNSUPPORTED = m.ListOutcome.UNSUPPORTED
PASSWORD = b"secret"


class Answers:
    """A transport whose answers are set."""

    def __init__(self, *answer: Any) -> None:
        self.answer = answer
        self.single: tuple[Any, ...] = ()
        self.requests: list[ReadBatch] = []

    def list_entries(
        self, _bookie_id: str, _ledger_id: int, _timeout_ms: int, on_reply: Callable[..., None]
    ) -> None:
        asyncio.get_running_loop().call_soon(on_reply, *self.answer)

    def read(
        self, _bookie_id: str, _request: ReadEntry, _timeout_ms: int, on_reply: Callable[..., None]
    ) -> None:
        asyncio.get_running_loop().call_soon(on_reply, *self.single)

    def read_batch(
        self, _bookie_id: str, request: ReadBatch, _timeout_ms: int, on_reply: Callable[..., None]
    ) -> None:
        self.requests.append(request)
        asyncio.get_running_loop().call_soon(on_reply, *self.answer)


def requests(transport: Answers, *, grpc_port: int | None = 1) -> CopyRequests:
    async def info_of(bookie_id: str) -> BookieInfo:
        if bookie_id == "gone":
            raise BookieUnavailableError("not registered", bookie_id=bookie_id)
        return BookieInfo(bookie_id, "127.0.0.1", 1, grpc_port)

    accepted = AcceptedEntries(AcceptedLosses(MemoryTree(MemoryNodes()), "/ledgers"))
    return CopyRequests(transport, info_of, 1_000, accepted)  # type: ignore[arg-type]


async def performed(made: CopyRequests, effect: Any) -> Any:
    return await made.performs[type(effect)](effect)


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (Code.OK, LISTED),
        (Code.NO_LEDGER, LISTED),
        (Code.BAD_REQUEST, UNSUPPORTED),
        (Code.IO_ERROR, UNKNOWN),
        (Code.TIMEOUT, UNKNOWN),
        (Code.UNAVAILABLE, UNKNOWN),
        (Code.BUSY, UNKNOWN),
    ],
)
async def test_only_an_answer_of_the_bookie_is_a_list(code: Code, outcome: m.ListOutcome) -> None:
    ranges = ((0, 3),) if code is Code.OK else ()
    listed = await performed(requests(Answers(code, ranges)), m.ListCopies(7, "a", 1))
    assert listed == m.CopiesListed(7, outcome, ranges)


async def test_a_bookie_of_another_make_lists_nothing() -> None:
    made = requests(Answers(), grpc_port=None)
    assert (await performed(made, m.ListCopies(1, "a", 1))).outcome is UNSUPPORTED


async def test_the_list_of_a_bookie_without_registration_is_unknown() -> None:
    assert (await performed(requests(Answers()), m.ListCopies(1, "gone", 1))).outcome is UNKNOWN


def record(digest_type: DigestType = DigestType.CRC32C) -> m.LedgerRecord:
    metadata = LedgerMetadata(
        Quorum(3, 3, 2),
        (Fragment(0, ("a", "b", "c")),),
        LedgerState.CLOSED,
        9,
        100,
        digest_type,
        PASSWORD,
    )
    return m.LedgerRecord(1, metadata, Version(1, 0))


def stored(count: int, digest_type: DigestType = DigestType.CRC32C) -> list[bytes]:
    codec = EntryCodec(digest_type, PASSWORD)
    payloads = [b"%d" % number * 10 for number in range(count)]
    encoded = codec.encode_run(
        ledger_id=1, first_entry_id=0, last_add_confirmed=-1, length=0, payloads=payloads
    )
    return [b"".join(one) for one in encoded]


def flipped(entry: bytes) -> bytes:
    return entry[:-1] + bytes([entry[-1] ^ 1])


async def verified(*answer: Any, ids: Sequence[int] = range(4), kind: Any = None) -> Any:
    effect = m.VerifyCopies(5, "a", record(kind or DigestType.CRC32C), tuple(ids))
    return await performed(requests(Answers(*answer)), effect)


@pytest.mark.parametrize("kind", [DigestType.CRC32C, DigestType.CRC32, DigestType.HMAC])
async def test_each_damaged_entry_is_found(kind: DigestType) -> None:
    entries = stored(4, kind)
    size_bytes = sum(map(len, entries))
    found = await verified(Code.OK, entries, kind=kind)
    assert found == m.CopiesVerified(5, 3, (), [], size_bytes=size_bytes)
    for place in (0, 2, 3):
        harmed = [flipped(one) if n == place else one for n, one in enumerate(entries)]
        found = await verified(Code.OK, harmed, kind=kind)
        assert (found.damaged, found.verified) == ([place], 3)
    found = await verified(Code.OK, [flipped(one) for one in entries], kind=kind)
    assert found.damaged == [0, 1, 2, 3]


async def test_an_entry_in_the_place_of_another_is_damaged() -> None:
    first, second, *rest = stored(4)
    found = await verified(Code.OK, [second, first, *rest])
    assert found.damaged == [0, 1]


async def test_a_short_answer_ends_where_it_ends_and_a_long_one_is_cut() -> None:
    assert (await verified(Code.OK, stored(2))).verified == 1
    assert (await verified(Code.OK, stored(4), ids=(0, 1))).verified == 1


@pytest.mark.parametrize("code", [Code.NO_ENTRY, Code.NO_LEDGER])
async def test_a_denied_entry_is_absent(code: Code) -> None:
    assert await verified(code, ()) == m.CopiesVerified(5, 0, absent=(0,))


async def test_other_answers_leave_the_entry_unknown_or_damaged() -> None:
    assert await verified(Code.DIGEST_MISMATCH, ()) == m.CopiesVerified(5, 0, damaged=(0,))
    for code in (Code.IO_ERROR, Code.TIMEOUT, Code.BUSY, Code.UNAVAILABLE):
        assert await verified(code, ()) == m.CopiesVerified(5, -1, is_unknown=True)
    assert await verified(Code.OK, ()) == m.CopiesVerified(5, -1, is_unknown=True)


async def test_a_batch_ends_before_the_first_gap_of_a_stripe() -> None:
    transport = Answers(Code.OK, stored(2))
    effect = m.VerifyCopies(5, "a", record(), (0, 1, 4, 5))
    await performed(requests(transport), effect)
    assert [one.count_max for one in transport.requests] == [2]


@pytest.mark.parametrize("code", [Code.BAD_REQUEST, Code.BAD_VERSION])
async def test_a_bookie_without_batch_reads_is_read_entry_by_entry(code: Code) -> None:
    (entry,) = stored(1)
    transport = Answers(code, ())
    effect = m.VerifyCopies(5, "a", record(), (0, 1, 2))
    found = []
    for answer in ((Code.OK, entry), (Code.OK, flipped(entry)), (Code.NO_ENTRY, None)):
        transport.single = answer
        found.append(await performed(requests(transport), effect))
    assert [(one.verified, one.is_unknown) for one in found] == [(0, False)] * 3
    assert [(tuple(one.absent), tuple(one.damaged)) for one in found] == [
        ((), ()),
        ((), (0,)),
        ((0,), ()),
    ]
    transport.single = (Code.TIMEOUT, None)
    assert await performed(requests(transport), effect) == m.CopiesVerified(5, -1, is_unknown=True)
