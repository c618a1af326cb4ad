"""Requests for slices: any bytes are a request, a refusal or an error, and answers stay bounded."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerlog_spark.errors import LocalProtocolError, WireFormatError
from ledgerlog_spark.model import SLICE_RANGES_MAX, SLICED_ENTRIES_MAX, Code
from ledgerlog_spark.wire.answers import decode_answer, encode_refusal
from ledgerlog_spark.wire.opcodes import Opcode, packet_header
from ledgerlog_spark.wire.requests import RefusedRequest, decode_request
from ledgerlog_spark.wire.slice_requests import SliceReadRequest, encode_read_slices
from tests.fixtures.slice_frames import FIELDS_SIZE_BYTES, MALFORMED, WHOLE

steps = st.lists(st.integers(1, 1_000), min_size=2, max_size=8)


def ranges_of(edges: list[int]) -> list[tuple[int, int]]:
    """Rising ranges, of which some are adjacent."""
    places = list(accumulate(edges))
    return [(one, after - one) for one, after in pairwise(places)]


ranges = st.builds(ranges_of, steps)
entries = st.lists(st.tuples(st.integers(1, 1 << 40), ranges), min_size=1, max_size=5).map(
    lambda found: [
        (entry_id, of_entry)
        for entry_id, (_, of_entry) in zip(
            accumulate(step for step, _ in found), found, strict=True
        )
    ]
)


@given(st.integers(0, 1 << 62), entries, st.integers(0, 1 << 62), st.integers(-5, 1 << 40))
def test_a_request_reads_back(
    ledger_id: int, wanted: list[Any], request_id: int, size_bytes_max: int
) -> None:
    frame = encode_read_slices(
        ledger_id, wanted, request_id=request_id, size_bytes_max=size_bytes_max
    )
    request = decode_request(frame[4:])
    assert request == SliceReadRequest(
        2,
        0,
        ledger_id,
        request_id,
        size_bytes_max,
        tuple((entry_id, tuple(of_entry)) for entry_id, of_entry in wanted),
    )
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    fencing = frame[4:7] + b"\1" + frame[8:]
    refused = decode_request(fencing)
    assert isinstance(refused, RefusedRequest)
    answer = decode_answer(encode_refusal(refused)[4:])
    assert answer == (Code.BAD_REQUEST, ledger_id, wanted[0][0], request_id, ())


@given(entries, st.data())
def test_damaged_requests_stay_within_the_bounds(wanted: list[Any], data: st.DataObject) -> None:
    body = bytearray(encode_read_slices(7, wanted, request_id=1, size_bytes_max=0)[4:])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(4, len(body) - 1))] = data.draw(st.integers(0, 255))
    check(bytes(body[: data.draw(st.integers(4, len(body)))]))


@given(st.binary(max_size=200))
def test_any_bytes_stay_within_the_bounds(data: bytes) -> None:
    check(packet_header(Opcode.READ_SLICES).to_bytes(4, "big") + data)


def check(body: bytes) -> None:
    try:
        request = decode_request(body)
    except WireFormatError:
        return
    if isinstance(request, RefusedRequest):
        assert request.code is Code.BAD_REQUEST
        return
    assert isinstance(request, SliceReadRequest)
    assert 1 <= len(request.entries) <= SLICED_ENTRIES_MAX
    last = -1
    for entry_id, of_entry in request.entries:
        assert entry_id > last
        last, end = entry_id, 0
        for offset, length in of_entry:
            assert offset >= end
            assert length >= 1
            end = offset + length


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_list_is_refused_with_the_ids_of_its_request(kind: str) -> None:
    refused = decode_request(MALFORMED[kind])
    assert isinstance(refused, RefusedRequest)
    assert (refused.ledger_id, refused.request_id) == (500, 6)
    assert isinstance(decode_request(WHOLE), SliceReadRequest)


@pytest.mark.parametrize("size", range(4, FIELDS_SIZE_BYTES))
def test_a_frame_without_its_fields_is_no_request(size: int) -> None:
    with pytest.raises(WireFormatError):
        decode_request(WHOLE[:size])


@pytest.mark.parametrize(
    "wanted",
    [
        [],
        [(0, [])],
        [(-1, [(0, 1)])],
        [(1, [(0, 1)]), (1, [(0, 1)])],
        [(0, [(0, 0)])],
        [(0, [(-1, 3)])],
        [(0, [(0, 3), (2, 2)])],
        [(0, [(1 << 31, 1)])],
        [(entry_id, [(0, 1)]) for entry_id in range(SLICED_ENTRIES_MAX + 1)],
        [(0, [(2 * at, 1) for at in range(SLICE_RANGES_MAX + 1)])],
    ],
)
def test_a_request_that_a_bookie_refuses_is_not_encoded(wanted: list[Any]) -> None:
    with pytest.raises(LocalProtocolError):
        encode_read_slices(7, wanted, request_id=1, size_bytes_max=0)
