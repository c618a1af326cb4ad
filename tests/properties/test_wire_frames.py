from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerlog_spark.errors import LocalProtocolError, WireFormatError
from ledgerlog_spark.model import Code, DigestType
from ledgerlog_spark.wire import answers, requests
from ledgerlog_spark.wire.entry import EntryCodec, decode_entry_header
from ledgerlog_spark.wire.frames import ChunkPool, FrameSplitter
from ledgerlog_spark.wire.opcodes import Flag, Opcode, packet_header
from tests.fixtures.examples import examples
from tests.fixtures.stored_entries import encode_entry
from tests.unit.wire.golden import records
from tests.unit.wire.streams import fed

KEY = b"k" * 20
GOLDEN_FRAMES = [
    bytes.fromhex(record["frame"])
    for record in records(
        "add", "read_request", "batch_read_request", "add_response", "read_response",
        "batch_read_response",
    )
    if not record["frame"].startswith("sha256:")
]  # fmt: skip

ids = st.integers(0, (1 << 63) - 1)
small_ids = st.integers(0, 1 << 40)
payloads = st.binary(max_size=300)
any_body = st.one_of(
    st.binary(max_size=200),
    # Random bytes rarely begin like a request; these bytes always do.
    st.builds(
        lambda version, opcode, flags, rest: (
            packet_header(opcode, flags, version).to_bytes(4, "big") + rest
        ),
        st.integers(0, 3),
        st.sampled_from([*Opcode, 4, 200]),
        st.integers(0, 7),
        st.binary(max_size=200),
    ),
)


def decode_everything(body: bytes) -> None:
    with suppress(WireFormatError):
        request = requests.decode_request(body)
        if isinstance(request, requests.AddRunRequest):
            assert sum(request.lengths) == len(request.body)
        if isinstance(request, requests.RefusedRequest):
            assert answers.encode_refusal(request)
    with suppress(WireFormatError):
        answers.decode_answer(body)
    with suppress(WireFormatError):
        decode_entry_header(body)
    for digest_type in DigestType:
        with suppress(WireFormatError):
            EntryCodec(digest_type).decode(body, 0, -1)


@given(any_body)
def test_decoders_of_frames_take_any_bytes(body: bytes) -> None:
    decode_everything(body)


@given(small_ids, small_ids, st.binary(min_size=20, max_size=20), st.data())
def test_told_lac_reads_back_and_one_bit_more_or_less_never_passes_for_it(
    ledger_id: int, lac: int, key: bytes, data: st.DataObject
) -> None:
    body = requests.encode_tell_lac(ledger_id, lac, key)[4:]
    assert requests.decode_request(body) == requests.TellLacRequest(2, 0, ledger_id, lac, key)
    for size in (*range(len(body)), len(body) + 1):
        with pytest.raises(WireFormatError):
            requests.decode_request((body + b"x")[:size])
    bit = data.draw(st.integers(0, 8 * len(body) - 1))
    flipped = bytearray(body)
    flipped[bit // 8] ^= 1 << bit % 8
    decode_everything(bytes(flipped))
    if bit >= 16:  # after version and operation
        assert requests.decode_request(bytes(flipped)) != requests.decode_request(body)


@given(st.sampled_from(GOLDEN_FRAMES), st.data())
def test_decoders_of_frames_take_golden_frames_cut_or_with_one_bit_flipped(
    frame: bytes, data: st.DataObject
) -> None:
    body = bytearray(frame[4:])
    bit = data.draw(st.integers(0, 8 * len(body) - 1))
    body[bit // 8] ^= 1 << bit % 8
    decode_everything(bytes(body))
    decode_everything(bytes(body[: data.draw(st.integers(0, len(body)))]))


@pytest.mark.parametrize("frame", GOLDEN_FRAMES)
def test_golden_frame_cut_at_any_byte_is_no_request_of_fixed_size(frame: bytes) -> None:
    body = frame[4:]
    is_add = body[1] == Opcode.ADD and len(body) > 24
    for size in range(len(body)):
        decode_everything(body[:size])
        if size < (4 + 20 + 32 if is_add else 20):
            with pytest.raises(WireFormatError):
                requests.decode_request(body[:size])


@given(
    st.sampled_from(list(DigestType)),
    small_ids,
    small_ids,
    st.lists(payloads, min_size=1, max_size=5),
    st.binary(max_size=10),
    st.data(),
)
def test_run_reads_back_and_every_flipped_bit_is_noticed(
    digest_type: DigestType,
    ledger_id: int,
    first_id: int,
    run: list[bytes],
    password: bytes,
    data: st.DataObject,
) -> None:
    codec = EntryCodec(digest_type, password)
    encoded = codec.encode_run(
        ledger_id=ledger_id,
        first_entry_id=first_id,
        last_add_confirmed=first_id - 1,
        length=17,
        payloads=run,
    )
    stored = [b"".join(parts) for parts in encoded]
    decoded = [codec.decode(one, ledger_id, first_id + at) for at, one in enumerate(stored)]
    columns = codec.decode_prefix(stored, ledger_id, first_id)
    assert columns is not None
    assert list(columns.payloads) == [entry.payload for entry in decoded] == run
    assert list(columns.lengths) == [entry.length for entry in decoded]
    assert set(columns.last_adds_confirmed) == {first_id - 1}
    assert decoded[-1].length == 17 + sum(map(len, run))
    assert codec.decode(stored[-1], ledger_id, -1) == decoded[-1]
    assert codec.decode(memoryview(stored[0]), ledger_id, first_id) == decoded[0]

    if digest_type is not DigestType.DUMMY:
        bad = bytearray(stored[0])
        bit = data.draw(st.integers(0, 8 * len(bad) - 1))
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(WireFormatError):
            codec.decode(bytes(bad), ledger_id, first_id)
        with pytest.raises(WireFormatError):
            codec.decode(bytes(bad), ledger_id, -1)


@given(small_ids, small_ids, st.sampled_from(list(DigestType)))
def test_entry_of_another_ledger_or_place_is_refused(
    ledger_id: int, entry_id: int, digest_type: DigestType
) -> None:
    codec = EntryCodec(digest_type)
    stored = b"".join(
        encode_entry(
            codec,
            ledger_id=ledger_id,
            entry_id=entry_id,
            last_add_confirmed=-1,
            length=1,
            payload=b"x",
        )
    )
    for wrong in ((ledger_id + 1, entry_id), (ledger_id, entry_id + 1), (ledger_id + 1, -1)):
        with pytest.raises(WireFormatError):
            codec.decode(stored, *wrong)


@pytest.mark.parametrize(
    ("ledger_id", "entry_id", "confirmed", "length"),
    [(-1, 0, -1, 1), (1, -1, -1, 1), (1, 0, 0, 1), (1, 0, -2, 1), (1, 0, -1, 0),
     (1 << 63, 0, -1, 1)],
)  # fmt: skip
def test_entry_with_impossible_numbers_is_not_encoded(
    ledger_id: int, entry_id: int, confirmed: int, length: int
) -> None:
    with pytest.raises(LocalProtocolError):
        encode_entry(
            EntryCodec(DigestType.CRC32C),
            ledger_id=ledger_id,
            entry_id=entry_id,
            last_add_confirmed=confirmed,
            length=length,
            payload=b"x",
        )


def run_frame(
    ledger_id: int, entry_ids: Sequence[int], run: list[bytes], request_id: int = 9
) -> bytes:
    codec = EntryCodec(DigestType.CRC32C)
    entries = [
        b"".join(
            encode_entry(
                codec,
                ledger_id=ledger_id,
                entry_id=entry_id,
                last_add_confirmed=-1,
                length=len(payload),
                payload=payload,
            )
        )
        for entry_id, payload in zip(entry_ids, run, strict=True)
    ]
    head = requests.encode_add_run_head(
        ledger_id=ledger_id,
        request_id=request_id,
        entry_ids=entry_ids,
        lengths=[len(entry) for entry in entries],
        master_key=KEY,
        flags=Flag.RECOVERY_ADD,
    )
    return head + b"".join(entries)


@given(
    small_ids,
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.lists(payloads, min_size=1, max_size=6),
    small_ids,
    st.one_of(st.integers(1, 1000), st.none()),
    st.data(),
)
def test_add_run_reads_back(
    ledger_id: int,
    request_id: int,
    run: list[bytes],
    first_id: int,
    stride: int | None,
    data: st.DataObject,
) -> None:
    if stride is None:
        gaps = data.draw(st.lists(st.integers(1, 99), min_size=len(run), max_size=len(run)))
        entry_ids: Sequence[int] = tuple(first_id + sum(gaps[:place]) for place in range(len(run)))
    else:
        entry_ids = range(first_id, first_id + stride * len(run), stride)
    frame = run_frame(ledger_id, entry_ids, run, request_id)
    other = run_frame(ledger_id, entry_ids, run, request_id=0)
    assert requests.with_request_id(other, request_id) == frame
    (body,) = fed(FrameSplitter(), frame)
    request = requests.decode_request(body)
    assert isinstance(request, requests.AddRunRequest)
    assert list(request.entry_ids) == list(entry_ids)
    assert request.flags == Flag.RECOVERY_ADD
    assert (request.ledger_id, request.request_id) == (ledger_id, request_id)
    assert request.master_key == KEY
    assert bytes(request.body) == frame[-sum(request.lengths) :]
    entries_size = sum(request.lengths)
    is_listed = stride is None and len(run) > 1
    assert requests.add_run_size_bytes(len(run), entries_size, is_listed=is_listed) == len(frame)


@given(st.lists(payloads, min_size=1, max_size=4), st.data())
def test_add_run_with_one_bit_flipped_before_its_payloads_is_never_another_layout(
    run: list[bytes], data: st.DataObject
) -> None:
    entry_ids = range(5, 5 + len(run))
    frame = run_frame(3, entry_ids, run)
    head_size = len(frame) - sum(36 + len(payload) for payload in run)
    bit = data.draw(st.integers(32, 8 * head_size - 1))
    changed = bytearray(frame)
    changed[bit // 8] ^= 1 << bit % 8
    try:
        request = requests.decode_request(bytes(changed[4:]))
    except WireFormatError:
        return
    if isinstance(request, requests.AddRunRequest):
        assert sum(request.lengths) == len(request.body)
        assert request.ledger_id == 3
        assert request.entry_ids[0] == 5
        assert request.entry_ids[-1] == entry_ids[-1]


@given(st.lists(payloads, min_size=1, max_size=4))
def test_add_run_cut_at_any_byte_is_refused(run: list[bytes]) -> None:
    body = run_frame(3, range(len(run)), run)[4:]
    for size in range(len(body)):
        try:
            request = requests.decode_request(body[:size])
        except WireFormatError:
            continue
        assert isinstance(request, requests.RefusedRequest)
        assert (request.code, request.request_id) == (Code.BAD_REQUEST, 9)


@given(st.sampled_from(list(Code)), ids, ids, st.lists(payloads, max_size=4), ids)
def test_batch_answer_reads_back_with_entries_only_when_ok(
    code: Code, ledger_id: int, first_id: int, entries: list[bytes], request_id: int
) -> None:
    frame = b"".join(
        answers.encode_batch_read_answer(code, ledger_id, first_id, request_id, entries)
    )
    (body,) = fed(FrameSplitter(), frame)
    answer = answers.decode_answer(body)
    assert isinstance(answer, answers.BatchReadAnswer)
    assert answer.request_id == request_id
    assert answer.entries == (tuple(entries) if code is Code.OK else ())


@given(st.lists(st.binary(min_size=4, max_size=2000), max_size=30), st.integers(1, 5000))
@settings(max_examples=examples(50))
def test_splitter_finds_the_frames_however_the_stream_is_cut(
    bodies: list[bytes], piece_size_bytes: int
) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    assert fed(FrameSplitter(), stream, piece_size_bytes) == bodies


@given(st.lists(st.integers(4, 400_000), min_size=1, max_size=6), st.integers(1000, 300_000))
@settings(max_examples=examples(30), deadline=None)
def test_splitter_keeps_bodies_that_are_held_while_it_receives_more(
    sizes: list[int], piece: int
) -> None:
    splitter = FrameSplitter()
    sent = [bytes([place]) * size for place, size in enumerate(sizes)]
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in sent)
    held: list[memoryview] = []
    offset = 0
    while offset < len(stream):
        buffer = splitter.get_buffer()
        size = min(len(buffer), piece, len(stream) - offset)
        buffer[:size] = stream[offset : offset + size]
        offset += size
        held += splitter.received(size)
    assert [bytes(body) for body in held] == sent
    assert splitter.held_bytes == 0


@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_splitter_refuses_a_length_before_it_sets_memory_aside(length: int) -> None:
    splitter = FrameSplitter(frame_size_max=1000)
    stream = length.to_bytes(4, "big", signed=True)
    if 4 <= length <= 996:
        assert fed(splitter, stream) == []
        assert len(splitter.get_buffer()) <= 1 << 20
    else:
        with pytest.raises(WireFormatError):
            fed(splitter, stream)


def test_splitter_receives_into_the_same_memory_once_nobody_holds_it() -> None:
    splitter = FrameSplitter()
    frame = (100).to_bytes(4, "big") + bytes(100)
    fed(splitter, frame)
    first = splitter._chunk
    for _ in range(1000):
        fed(splitter, frame)
    assert splitter._chunk is first


@given(
    st.lists(st.tuples(st.booleans(), st.integers(4_000, 60_000)), min_size=8, max_size=40),
    st.data(),
)
@settings(max_examples=examples(60), deadline=None)
def test_memory_shared_by_splitters_is_used_again_only_when_no_body_in_it_is_held(
    frames: list[tuple[bool, int]], data: st.DataObject
) -> None:
    pool = ChunkPool(size_bytes_max=1 << 18)
    splitters = FrameSplitter(pool=pool), FrameSplitter(pool=pool)
    held: list[tuple[memoryview, bytes]] = []
    for number, (which, size) in enumerate(frames):
        sent = bytes([number]) * size
        stream = size.to_bytes(4, "big") + sent
        splitter, offset = splitters[which], 0
        bodies: list[memoryview] = []
        while offset < len(stream):
            buffer = splitter.get_buffer()
            step = min(len(buffer), 7_000, len(stream) - offset)
            buffer[:step] = stream[offset : offset + step]
            del buffer
            offset += step
            bodies += splitter.received(step)
        (body,) = bodies
        held.append((body, sent))
        del body, bodies
        if data.draw(st.booleans()):
            del held[data.draw(st.integers(0, len(held) - 1))]
        assert all(kept == expected for kept, expected in held)
