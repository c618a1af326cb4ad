"""Bytes of the bookie's files: fixed examples, round trips, and damage of every byte."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie_server.core.bookie_run import BookieRun, BookieWriteMode, RunJournal
from bookie_server.core.index_format import (
    HEAD_SIZE,
    IndexBlock,
    IndexEncoder,
    LedgerTotal,
    decode_index_head,
    index_head_size,
)
from bookie_server.core.ledger_state import (
    HeldLedger,
    HeldLedgers,
    decode_states,
    encode_states,
)
from bookie_server.core.manifest_codec import (
    FileEntry,
    FileState,
    Manifest,
    decode_manifest,
)
from bookie_server.core.pieces import Piece, Pieces, consecutive
from bookie_server.core.record import FileIdentity, JournalRecord, JournalRecordKind
from bookie_server.core.record_codec import (
    check_chunks,
    decode_header,
    encode_header,
    size_at_most,
)
from bookie_server.core.requests import evenly_spaced
from bookie_server.core.slot_header import (
    HEADER_AREA_SIZE,
    SECTOR_SIZE,
    SlotHeader,
    SlotState,
    decode_slot_header,
    encode_slot_header,
)
from bookie_server.errors import CorruptRecordError, DamagedDirectoryError, FormatVersionError
from tests.crash.machine import encode_manifest

IDENTITY = FileIdentity("slot-00000007", 7, bytes(range(16)))
KEY = bytes(range(20))


def placed(**options: Any) -> JournalRecord:
    record = JournalRecord(JournalRecordKind.RUN, 5, master_key=KEY, **options)
    record.identity, record.offset = IDENTITY, 8192
    record.sequence, record.origin_sequence, record.durable_upto = 12, 11, 9
    return record


# FORMATS.md#records has the same example.
RUN_HEADER = (
    "4c524543" "01" "01" "0000" "04d9240b" "0000006c" "0000000000000007" "000000000000000c"
    "000000000000000b" "0000000000000009" "0000000000000005" "0000000000000003" "00000002"
    "00000001" "00000022" "00000044" "000102030405060708090a0b0c0d0e0f10111213" "00000000"
    "c589ac6c"
)  # fmt: skip


def test_record_header_is_byte_for_byte_as_documented() -> None:
    record = placed(entry_ids=range(3, 5), lengths=(34, 34), body=bytes(34) + bytes(range(34)))
    assert encode_header(record).hex() == RUN_HEADER


@given(
    st.one_of(
        st.builds(
            lambda first, count, step: range(first, first + count * step, step),
            st.integers(0, 1 << 62),
            st.integers(1, 50),
            st.integers(1, 5),
        ),
        st.sets(st.integers(0, 1 << 62), min_size=1, max_size=20).map(lambda s: tuple(sorted(s))),
    ),
    st.data(),
)
def test_record_header_reads_back_what_was_written(ids: Sequence[int], data: st.DataObject) -> None:
    length = st.integers(32, 200)
    lengths = tuple(
        data.draw(st.one_of(length.map(lambda n: [n] * len(ids)), st.lists(
            length, min_size=len(ids), max_size=len(ids))))
    )  # fmt: skip
    body = bytes(sum(lengths))
    record = placed(entry_ids=ids, lengths=lengths, body=body, flags=1)
    header = encode_header(record)
    assert len(header) + len(body) + 511 <= size_at_most(record) + 511
    read = decode_header(header + body, IDENTITY, 8192)
    assert (tuple(read.entry_ids), read.lengths) == (tuple(ids), lengths)
    assert (read.ledger_id, read.flags, read.master_key) == (5, 1, KEY)
    assert (read.sequence, read.origin_sequence, read.durable_upto) == (12, 11, 9)
    check_chunks(read, 0, body)


def test_every_damaged_bit_of_a_record_is_noticed() -> None:
    body = b"entry" * 20_000  # two chunks
    record = placed(entry_ids=(1, 9), lengths=(40_000, 60_000), body=body)
    header = encode_header(record)
    for bit in range(8 * len(header)):
        damaged = bytearray(header)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptRecordError):
            decode_header(bytes(damaged), IDENTITY, 8192)
    for size in range(len(header)):
        with pytest.raises(CorruptRecordError):
            decode_header(header[:size], IDENTITY, 8192)
    for offset in (0, 65_535, 65_536, len(body) - 1):
        damaged = bytearray(body)
        damaged[offset] ^= 1
        with pytest.raises(CorruptRecordError):
            check_chunks(record, 0, damaged)
    check_chunks(record, 1, body[65_536:])


@pytest.mark.parametrize(
    ("identity", "offset"),
    [
        (IDENTITY, 8704),
        (FileIdentity("slot-00000007", 8, IDENTITY.salt), 8192),
        (FileIdentity("slot-00000007", 7, bytes(16)), 8192),
    ],
)
def test_record_of_another_place_or_file_never_passes(identity: FileIdentity, offset: int) -> None:
    record = placed(entry_ids=(1,), lengths=(40,), body=bytes(40))
    with pytest.raises(CorruptRecordError):
        decode_header(encode_header(record), identity, offset)


@given(st.binary(max_size=300))
def test_any_bytes_are_no_record_and_no_slot_header(data: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decode_header(data, IDENTITY, 8192)
    assert decode_slot_header(data.ljust(HEADER_AREA_SIZE, b"\0")) is None


def test_newest_valid_slot_header_counts() -> None:
    older = SlotHeader(SlotState.OPEN, 4, 7, bytes(16), 1 << 16)
    newer = SlotHeader(SlotState.FINISHED, 5, 7, bytes(16), 1 << 16, 9_000, 44)
    area = bytearray(HEADER_AREA_SIZE)
    for header in (newer, older):
        area[header.sector_offset : header.sector_offset + SECTOR_SIZE] = encode_slot_header(header)
    assert decode_slot_header(bytes(area)) == newer
    for offset in range(newer.sector_offset, newer.sector_offset + 68):
        damaged = bytearray(area)
        damaged[offset] ^= 4
        assert decode_slot_header(bytes(damaged)) == older


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12), st.booleans()), max_size=25))
def test_pieces_answer_like_a_dict_whatever_the_order_of_inserts(
    runs: list[tuple[int, int, int]],
) -> None:
    pieces: Pieces[int] = Pieces()
    newest: dict[int, tuple[int, int]] = {}
    order = sorted(range(len(runs)), key=lambda n: (runs[n][2], n))  # some newer ones first
    for origin in order:
        first, count, _ = runs[origin]
        grew = len(pieces)
        change = pieces.insert(range(first, first + count), origin, origin)
        assert len(pieces) == grew + change
        for place in range(count):
            if newest.get(first + place, (-1, 0))[0] < origin:
                newest[first + place] = (origin, place)
    for entry_id in range(45):
        piece = pieces.find(entry_id)
        if entry_id not in newest:
            assert piece is None
        else:
            assert piece is not None
            assert (piece.origin, piece.place + entry_id - piece.first) == newest[entry_id]
    lasts = [piece.last for piece in pieces]
    assert lasts == sorted(set(lasts))


def test_consecutive_stretches_of_ids_carry_their_places() -> None:
    assert list(consecutive(range(3, 9))) == [(3, 8, 0)]
    assert list(consecutive((1, 2, 5, 7, 8))) == [(1, 2, 0), (5, 5, 2), (7, 8, 3)]
    assert list(consecutive(range(0, 6, 2))) == [(0, 0, 0), (2, 2, 1), (4, 4, 2)]


def an_index(count: int) -> bytes:
    encoder = IndexEncoder(IDENTITY)
    for ledger_id in (3, 8):
        for n in range(count):
            encoder.add(ledger_id, Piece(10 * n, 10 * n + 6, n + 1, None, n % 3), 8192 + 512 * n)
        encoder.end_ledger(LedgerTotal(ledger_id, 0, 10 * count - 4, 700, count, count))
    return encoder.finish()


def find(data: bytes, ledger_id: int, entry_id: int) -> Piece[int] | None:
    head = decode_index_head(data, IDENTITY)
    number = head.block_of(ledger_id, entry_id)
    if number is None:
        return None
    start = head.block_offset(number)
    return IndexBlock(data[start : start + 16_384], number, IDENTITY).find(ledger_id, entry_id)


@pytest.mark.parametrize("count", [1, 408, 409, 410, 1_000])
def test_index_finds_every_entry_and_no_other(count: int) -> None:
    data = an_index(count)
    head = decode_index_head(data[: index_head_size(data[:HEAD_SIZE], IDENTITY)], IDENTITY)
    assert head.pieces == 2 * count
    assert len(data) == head.block_offset(len(head.keys))
    for n in {0, count // 2, count - 1}:
        for ledger_id in (3, 8):
            assert find(data, ledger_id, 10 * n + 6) == Piece(
                10 * n, 10 * n + 6, n + 1, 8192 + 512 * n, n % 3
            )
            assert find(data, ledger_id, 10 * n + 7) is None
    assert find(data, 5, 0) is None
    assert find(data, 9, 0) is None


def test_every_damaged_byte_of_an_index_is_noticed() -> None:
    data = an_index(2)
    for offset in range(len(data)):
        damaged = bytearray(data)
        damaged[offset] ^= 1 << offset % 8
        with pytest.raises(CorruptRecordError):
            find(bytes(damaged), 3, 5)


MANIFEST = Manifest(
    generation=3,
    next_file_id=9,
    durable_upto=77,
    state_file="ledgers-0000000003",
    state_bytes=1_024,
    check_epoch=1,
    files=(
        FileEntry(7, "slot-00000007", bytes(range(16)).hex(), FileState.FINISHED, 65_536,
                  1, 60, 20_000, 20_480, 9_000),
        FileEntry(8, "slot-00000008", bytes(16).hex(), FileState.OPEN, 65_536, 61),
    ),
    free_slots=("slot-00000002",),
    run=BookieRun("0123456789abcdef", BookieWriteMode.JOURNAL, False, "/j", journal_files=3),
    directory_id="fedcba9876543210",
    path="/data/b\u00fccher",
    journals=(RunJournal("0123456789abcdef", "/j"), RunJournal("aa" * 8, "/k")),
    highest_dropped_ledger_id=12,
    starts=3,
    changes=14,
    previous_id="0011223344556677",
)  # fmt: skip


def test_manifest_reads_back_and_every_damaged_bit_is_noticed() -> None:
    data = encode_manifest(MANIFEST)
    assert decode_manifest(data) == MANIFEST
    first = Manifest(state_bytes=512)
    assert decode_manifest(encode_manifest(first)) == first
    body = data.partition(b"\n")[2]
    assert json.dumps(json.loads(body), sort_keys=True, separators=(",", ":")).encode() == body
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises((DamagedDirectoryError, FormatVersionError)):
            decode_manifest(bytes(damaged))
    for size in range(len(data)):
        with pytest.raises(DamagedDirectoryError):
            decode_manifest(data[:size])


def test_manifest_of_a_later_version_is_refused_by_name() -> None:
    later = encode_manifest(MANIFEST).replace(b"manifest 4 ", b"manifest 5 ")
    with pytest.raises(FormatVersionError, match="version"):
        decode_manifest(later)


def test_ledger_states_read_back_and_every_damaged_byte_is_noticed() -> None:
    first, second = HeldLedger(1, check_epoch=2), HeldLedger((1 << 63) - 1, directory=3)
    first.master_key, first.is_fenced, first.last_add_confirmed = KEY, True, 44
    second.cleared_epoch, second.explicit_lac = 7, 9
    second.bury(1 << 50, 1_800_000_000)
    second.is_unverified = True
    states = HeldLedgers()
    states[1], states[(1 << 63) - 1] = first, second
    # A later block wins, and a ledger without a state is forgotten.
    states[5] = HeldLedger(5)
    data = encode_states(6, states, [5, 1, (1 << 63) - 1])
    del states[5]
    data += encode_states(7, states, [5])
    first.explicit_lac = 12
    data += encode_states(8, states, [1])
    read = decode_states(data, "ledgers-6")
    assert sorted(read) == sorted(states)
    assert encode_states(6, read, states) == encode_states(6, states, states)
    one, other = read[1], read[(1 << 63) - 1]
    assert (one.master_key, one.is_fenced, one.explicit_lac) == (KEY, True, 12)
    assert (other.master_key, other.tombstone, other.dropped_s) == (None, 1 << 50, 1_800_000_000)
    assert (one.is_unverified, other.is_unverified) == (False, True)
    for offset in range(len(data)):
        damaged = bytearray(data)
        damaged[offset] ^= 1 << offset % 8
        with pytest.raises(DamagedDirectoryError):
            decode_states(bytes(damaged), "ledgers-6")
    blocks = {0, 512, 1024}
    for size in range(len(data)):
        if size not in blocks - {0}:
            with pytest.raises(DamagedDirectoryError):
                decode_states(data[:size], "ledgers-6")


@pytest.mark.parametrize(
    ("ids", "is_even"),
    [
        ((7,), False),
        ((7, 8), True),
        (tuple(range(5, 5 + 4_096)), True),
        (tuple(range(5, 5 + 3 * 4_096, 3)), True),
        ((0, (1 << 31) - 1), True),
        ((0, 1 << 31), False),
        (((1 << 63) - 3, (1 << 63) - 1), True),
        ((0, 1, 3), False),
        ((0, 2, 3, 6), False),
        ((0, 2, 4, 4, 8), False),
        ((3, 2, 1), False),
        ((3, 3), False),
    ],
)
def test_evenly_spaced_ids_become_a_range_and_others_stay_as_they_are(
    ids: tuple[int, ...], is_even: bool
) -> None:
    read = evenly_spaced(ids)
    assert tuple(read) == ids
    assert (type(read) is range) is is_even
    if is_even:
        lengths = (32,) * len(ids)
        header = encode_header(placed(entry_ids=read, lengths=lengths, body=bytes(sum(lengths))))
        assert decode_header(header, IDENTITY, 8192).entry_ids == read
