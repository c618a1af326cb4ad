"""Stored forms: golden bytes, round trips, and decoders that accept or refuse any bytes."""

from __future__ import annotations

import zlib
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerlog_spark.errors import LocalProtocolError, MetadataFormatError, WireFormatError
from ledgerlog_spark.protocol.log.state.bytes import ByteReader
from ledgerlog_spark.protocol.log.state.codec import (
    decode_head,
    decode_page,
    decode_producer,
    encode_head,
    encode_page,
    encode_producer,
)
from ledgerlog_spark.protocol.log.state.records import (
    HEAD_SIZE_BYTES_MAX,
    RUNS_REMEMBERED_MAX,
    Item,
    LogContent,
    LogHead,
    LogKind,
    OpenLedger,
    Operation,
    Paged,
    PageRef,
    ProducerRecord,
    SchemaRecord,
    VersionInterval,
)
from ledgerlog_spark.protocol.log.state.rows import HISTORY, ITEMS, REFS, SCHEMAS
from tests.fixtures.examples import examples

i63 = st.integers(0, 2**63 - 1)
small = st.integers(0, 2**40)
tokens = st.binary(min_size=16, max_size=16).map(bytes.hex)
texts = st.text(min_size=1, max_size=20)
items = st.builds(
    lambda ledger, first, more, index, rows, size, offset, schema, statistics, newest: Item(
        ledger, first, first + more, index, rows, size, offset, schema, statistics, newest
    ),
    i63, small, small, st.integers(-1, 2**40), st.integers(1, 2**40), i63, small,
    st.integers(-1, 2**31 - 1), st.binary(max_size=80), i63,
)  # fmt: skip
intervals = st.builds(
    VersionInterval, i63, i63, i63, i63, tokens, st.integers(-1, 2**31 - 1),
    st.sampled_from(Operation),
)  # fmt: skip
schemas = st.builds(SchemaRecord, st.integers(0, 2**31 - 1), st.binary(max_size=200))
refs = st.builds(
    lambda name, number, first, more, count, size: PageRef(
        name, number, first, first + more, count, size
    ),
    tokens, st.integers(0, 2**31 - 1), small, st.integers(1, 2**40), st.integers(1, 2**40), i63,
)  # fmt: skip


def paged(records: Any) -> Any:
    def some(of: Any, count: int) -> Any:
        return st.lists(of, max_size=count).map(tuple)

    return st.builds(Paged, some(refs, 3), some(refs, 5), some(records, 8))


def opened(end_offset: int, more: int, ids: list[int]) -> tuple[OpenLedger, ...]:
    """One open ledger for each id; the first begins where the head ends."""
    return tuple(OpenLedger(i, end_offset + n * more, 7 * n) for n, i in enumerate(ids))


heads = st.builds(
    lambda numbers, kind, more, ids, **fields: LogHead(
        oldest_offset=numbers[0],
        start_offset=numbers[1],
        end_offset=numbers[2],
        kind=kind,
        open_ledgers=opened(numbers[2], more, ids) if kind is LogKind.LEADER else (),
        **fields,
    ),
    st.lists(small, min_size=3, max_size=3).map(sorted),
    st.sampled_from(LogKind),
    small,
    st.lists(i63, max_size=2, unique=True),
    log_id=texts,
    name=texts,
    content=st.sampled_from(LogContent),
    version=i63,
    oldest_version=st.just(0),
    schema_id=st.integers(-1, 2**31),
    commit_time_ms=i63,
    deleted_ms=i63,
    token=tokens,
    items=paged(items),
    history=paged(intervals),
    schemas=paged(schemas),
    properties=st.dictionaries(texts, texts, max_size=5),
    reader_features=st.lists(texts, max_size=3).map(tuple),
    writer_features=st.lists(texts, max_size=3).map(tuple),
)

GOLDEN_HEAD = LogHead(
    log_id="5f" * 16,
    name="flights",
    kind=LogKind.TRANSACTIONAL,
    content=LogContent.ROWS,
    version=1,
    start_offset=0,
    end_offset=1000,
    schema_id=0,
    commit_time_ms=1_700_000_000_000,
    token="ab" * 16,
    items=Paged(
        (PageRef("01" * 16, 2, 0, 400, 4, 300),),
        (PageRef("02" * 16, 0, 400, 900, 2, 200),),
        (Item(77, 1, 9, 9, 100, 12_345, 900, 0, b"\x00\x00\xc1\x02\x04"),),
    ),
    history=Paged(
        (), (), (VersionInterval(1, 0, 1000, 1_700_000_000_000, "ab" * 16, 0, Operation.APPEND),)
    ),
    schemas=Paged((), (), (SchemaRecord(0, b"schema"),)),
    properties={"ackQuorum": "1"},
    writer_features=("future",),
)

GOLDEN_HEAD_BODY = (
    "20356635663566356635663566356635663566356635663566356635663566356607666c6967687473020201"
    "00e8070080d095ffbc31abababababababababababababababab000000010961636b51756f72756d01310001"
    "0666757475726501010101010101010101010101010101010000000200000000000000000000000000000190"
    "0000000000000004000000000000012c01020202020202020202020202020202020000000000000000000001"
    "900000000000000384000000000000000200000000000000c801000000000000004d00000000000000010000"
    "0000000000090000000000000009000000000000006400000000000030390000000000000384000000000005"
    "0000c102040000010000000000000001000000000000000000000000000003e80000018bcfe5680000000000"
    "02abababababababababababababababab0000010000000000000006736368656d61"
)
GOLDEN_PRODUCER = ProducerRecord(3, ("run-1", "run-2"), 7, "cd" * 16, 1_700_000_000_000)
GOLDEN_PRODUCER_BYTES = (
    "4c4c4f470601010000000026d1721783789c63e613388b061a2e4cfdbfc79089b5a8344fd7104c1a0100bb591436"
)


def test_head_is_stored_in_the_bytes_of_format_1() -> None:
    data = encode_head(GOLDEN_HEAD)
    body = bytes.fromhex(GOLDEN_HEAD_BODY)
    assert data[:8] == b"LLOG" + bytes([1, 1, 1, 0])
    assert int.from_bytes(data[8:12], "big") == len(body)
    assert int.from_bytes(data[12:16], "big") == zlib.crc32(body)
    assert zlib.decompress(data[16:]) == body


def enveloped(body: bytes) -> bytes:
    """A head with this body, not compressed."""
    sizes = len(body).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big")
    return b"LLOG" + bytes([1, 1, 0, 0]) + sizes + body


def test_time_of_an_item_follows_its_statistics_and_leaves_all_other_bytes_as_they_were() -> None:
    item = Item(77, 1, 9, 9, 100, 12_345, 900, 0, b"\x00\x00\xc1\x02\x04")
    timed = replace(item, newest_ms=1_700_000_000_000)
    before, after = ITEMS.encode([item, item]), ITEMS.encode([item, timed])
    assert after[: -8 - len(item.statistics) * 2 - 2] == before[: -len(item.statistics) * 2 - 2]
    assert after[-8:].hex() == "0000018bcfe56800"
    assert ITEMS.decode(ByteReader(after)) == (item, timed)
    assert ITEMS.size_bytes([item, timed]) == len(after) - 1


def test_item_whose_time_cannot_be_is_refused() -> None:
    stored = ITEMS.encode([Item(77, 1, 9, 9, 100, 12_345, 900, newest_ms=5)])
    with pytest.raises(WireFormatError):
        ITEMS.decode(ByteReader(stored[:-8] + bytes(8)))


POSSIBLE_ITEM = Item(77, 9, 9, -1, 1, 0, 0)


@pytest.mark.parametrize("change", [{"rows": 0}, {"last_entry_id": 8}, {"first_offset": -1}])
def test_item_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    assert ITEMS.decode(ByteReader(ITEMS.encode([POSSIBLE_ITEM]))) == (POSSIBLE_ITEM,)
    stored = ITEMS.encode([replace(POSSIBLE_ITEM, **change)])
    with pytest.raises(WireFormatError, match="impossible item"):
        ITEMS.decode(ByteReader(stored))


POSSIBLE_REF = PageRef("01" * 16, 0, first_key=5, end_key=6, count=1, size_bytes=0)


@pytest.mark.parametrize("change", [{"end_key": 5}, {"end_key": 4}, {"count": 0}, {"number": -1}])
def test_reference_to_a_page_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    assert REFS.decode(ByteReader(REFS.encode([POSSIBLE_REF]))) == (POSSIBLE_REF,)
    stored = REFS.encode([replace(POSSIBLE_REF, **change)])
    with pytest.raises(WireFormatError, match="impossible reference"):
        REFS.decode(ByteReader(stored))


def test_head_stored_by_the_first_version_still_reads() -> None:
    body = bytes.fromhex(GOLDEN_HEAD_BODY)
    sizes = len(body).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big")
    plain = enveloped(body)
    packed = b"LLOG" + bytes([1, 1, 1, 0]) + sizes + zlib.compress(body, 9)
    assert decode_head(plain) == decode_head(packed) == GOLDEN_HEAD


def test_leader_head_stored_by_the_first_version_still_reads_as_one_without_open_ledgers() -> None:
    body = bytearray.fromhex(GOLDEN_HEAD_BODY)
    place = body.index(b"flights") + len(b"flights")
    assert body[place] == LogKind.TRANSACTIONAL
    body[place] = LogKind.LEADER
    assert decode_head(enveloped(bytes(body))) == replace(GOLDEN_HEAD, kind=LogKind.LEADER)


def test_open_ledgers_of_a_leader_log_follow_the_schemas_of_its_head() -> None:
    ledgers = (OpenLedger(77, 1000, 1_700_000_000_000), OpenLedger(79, 1200, 1_700_000_060_000))
    head = replace(GOLDEN_HEAD, kind=LogKind.LEADER, open_ledgers=ledgers)
    body = zlib.decompress(encode_head(head)[16:])
    assert body[len(GOLDEN_HEAD_BODY) // 2 :].hex() == (
        "02000000000000004d00000000000003e80000018bcfe56800"
        "000000000000004f00000000000004b00000018bcfe65260"
    )
    assert decode_head(encode_head(head)) == head


@pytest.mark.parametrize(
    "ledgers",
    [
        (OpenLedger(77, 999, 0),),
        (OpenLedger(77, 1001, 0),),
        (OpenLedger(77, 1000, 0), OpenLedger(79, 999, 0)),
        (OpenLedger(77, 1000, 0), OpenLedger(77, 1001, 0)),
        (OpenLedger(-1, 1000, 0),),
        (OpenLedger(77, 1000, 0), OpenLedger(78, 1000, 0), OpenLedger(79, 1000, 0)),
    ],
    ids=["a row twice", "a gap", "falling", "one ledger twice", "no id", "more than two"],
)
def test_head_with_open_ledgers_that_cannot_be_is_refused(ledgers: tuple[OpenLedger, ...]) -> None:
    head = replace(GOLDEN_HEAD, kind=LogKind.LEADER, open_ledgers=ledgers)
    with pytest.raises(WireFormatError):
        decode_head(encode_head(head))


def test_producer_record_stored_by_the_first_version_still_reads() -> None:
    data = bytes.fromhex(GOLDEN_PRODUCER_BYTES)
    assert decode_producer(data) == GOLDEN_PRODUCER
    assert zlib.decompress(encode_producer(GOLDEN_PRODUCER)[16:]) == zlib.decompress(data[16:])


@given(heads)
@settings(max_examples=examples(30), deadline=None)
def test_head_reads_back_as_it_was_stored(head: LogHead) -> None:
    assert decode_head(encode_head(head)) == head


@pytest.mark.parametrize(
    ("kind", "records"),
    [(ITEMS, items), (HISTORY, intervals), (SCHEMAS, schemas), (REFS, refs)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_page_reads_back_as_it_was_stored(kind: Any, records: Any) -> None:
    @given(st.lists(records, max_size=40))
    @settings(max_examples=examples(50), deadline=None)
    def check(page: list[Any]) -> None:
        assert decode_page(kind, encode_page(kind, page)) == tuple(page)
        assert len(kind.encode(page)) - kind.size_bytes(page) <= 5

    check()


@given(st.builds(ProducerRecord, i63, st.lists(texts, max_size=9).map(tuple),
                 st.integers(-1, 2**62), st.one_of(st.just(""), tokens), i63))  # fmt: skip
@settings(max_examples=examples(60), deadline=None)
def test_producer_record_reads_back_as_it_was_stored(record: ProducerRecord) -> None:
    assert decode_producer(encode_producer(record)) == record


def test_producer_record_keeps_its_last_runs() -> None:
    runs = tuple(f"00000000-0000-0000-0000-{number:012}" for number in range(5_000))
    data = encode_producer(ProducerRecord(epoch=5_000, runs=runs))
    assert decode_producer(data).runs == runs[-RUNS_REMEMBERED_MAX:]
    assert len(data) < 256 * 1024


@given(st.binary(max_size=400))
@settings(max_examples=examples(150), deadline=None)
def test_any_bytes_are_refused_with_a_format_error(data: bytes) -> None:
    for decode in (decode_head, decode_producer, lambda d: decode_page(ITEMS, d)):
        with pytest.raises((WireFormatError, MetadataFormatError)):
            decode(data)


@given(st.binary(min_size=1, max_size=300), st.sampled_from([ITEMS, HISTORY, SCHEMAS, REFS]))
@settings(max_examples=examples(150), deadline=None)
def test_any_body_behind_a_true_checksum_is_a_page_or_a_format_error(
    body: bytes, kind: Any
) -> None:
    header = b"LLOG" + bytes([kind.page_kind, 1, 0, 0])
    sizes = len(body).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big")
    try:
        decode_page(kind, header + sizes + body)
    except WireFormatError:
        return


@given(st.binary(max_size=200))
@settings(max_examples=examples(150), deadline=None)
def test_any_head_body_behind_a_true_checksum_is_a_head_or_a_format_error(body: bytes) -> None:
    whole = zlib.decompress(encode_head(GOLDEN_HEAD)[16:])
    for damaged in (body, whole[: len(body)] + body, whole + body):
        sizes = len(damaged).to_bytes(4, "big") + zlib.crc32(damaged).to_bytes(4, "big")
        try:
            decode_head(b"LLOG\x01\x01\x00\x00" + sizes + damaged)
        except WireFormatError:
            continue


def test_one_flipped_bit_is_noticed_or_changes_nothing() -> None:
    data = encode_head(GOLDEN_HEAD)
    noticed = 0
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert decode_head(bytes(flipped)) == GOLDEN_HEAD
        except (WireFormatError, MetadataFormatError):
            noticed += 1
    assert noticed > 8 * len(data) - 30


def test_head_of_a_later_format_is_left_alone() -> None:
    data = bytearray(encode_head(GOLDEN_HEAD))
    data[5] = 2
    with pytest.raises(MetadataFormatError):
        decode_head(bytes(data))


def test_compressed_record_that_unpacks_to_more_than_it_claims_is_refused() -> None:
    body = bytes(1 << 20)
    header = b"LLOG\x02\x01\x01\x00" + (100).to_bytes(4, "big") + bytes(4)
    with pytest.raises(WireFormatError):
        decode_page(ITEMS, header + zlib.compress(body))


def test_head_that_is_too_large_is_refused_before_it_is_stored() -> None:
    schema = Random(1).randbytes(20_000)
    large = replace(GOLDEN_HEAD, schemas=Paged((), (), (SchemaRecord(0, schema),)))
    with pytest.raises(LocalProtocolError):
        encode_head(large)
    assert len(encode_head(GOLDEN_HEAD)) < HEAD_SIZE_BYTES_MAX
