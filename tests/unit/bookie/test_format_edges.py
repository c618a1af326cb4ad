"""Bytes with valid checksums whose fields contradict each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookie_server.core.index_format import BLOCK_SIZE, IndexBlock, IndexEncoder, decode_index_head
from bookie_server.core.manifest_codec import FileEntry, FileState, decode_manifest
from bookie_server.core.pieces import Piece
from bookie_server.core.record import FileIdentity, JournalRecord, JournalRecordKind
from bookie_server.core.record_codec import aligned, decode_header, encode_header, size_at_most
from bookie_server.errors import CorruptRecordError, DamagedDirectoryError
from tests.crash.machine import Machine, add_request, encode_manifest

IDENTITY = FileIdentity("slot-00000001", 1, bytes(16))


def test_a_file_of_copies_holds_what_is_before_its_end() -> None:
    entry = FileEntry(1, "slot-00000001", "00" * 16, FileState.FINISHED, 1 << 16, data_end=9_216)
    assert entry.is_copies
    assert entry.holds(99, 8_704)
    assert not entry.holds(1, 9_216)
    written = replace(entry, first_sequence=5, last_sequence=7)
    assert not written.is_copies
    assert written.holds(7, 9_216)
    assert not written.holds(8, 8_704)


def test_a_manifest_whose_states_do_not_fit_its_version_is_damaged() -> None:
    machine = Machine()
    machine.start()
    manifest = machine.manifest()
    assert decode_manifest(encode_manifest(manifest)) == manifest
    with pytest.raises(DamagedDirectoryError, match="state_bytes do not fit"):
        decode_manifest(encode_manifest(replace(manifest, state_bytes=0)))


def run(lengths: tuple[int, ...], body_size: int) -> JournalRecord:
    ids = tuple(range(0, 3 * len(lengths), 3))
    record = JournalRecord(JournalRecordKind.RUN, 1, entry_ids=ids, lengths=lengths)
    record.identity, record.offset, record.body_size = IDENTITY, 8_192, body_size
    record.chunk_checksums = (0,) * -(-body_size // 65_536)
    return record


def test_a_record_whose_lengths_do_not_fill_its_body_is_damaged() -> None:
    right = encode_header(run((40, 50), 90))
    assert decode_header(right, IDENTITY, 8_192).lengths == (40, 50)
    wrong = encode_header(run((40, 50), 91))
    with pytest.raises(CorruptRecordError, match="sum of the lengths"):
        decode_header(wrong, IDENTITY, 8_192)


@pytest.mark.parametrize("count", [1, 2, 300])
@pytest.mark.parametrize("size", [32, 70_000])
def test_a_record_takes_no_more_than_the_room_that_is_kept_for_it(count: int, size: int) -> None:
    record = run(tuple(size + number for number in range(count)), 0)
    record.body_size = sum(record.lengths)
    record.chunk_checksums = (0,) * -(-record.body_size // 65_536)
    taken = aligned(len(encode_header(record)) + record.body_size)
    assert taken <= size_at_most(record) < taken + 1_024 + 12 * count


def test_a_block_of_an_index_is_accepted_only_in_its_place() -> None:
    encoder = IndexEncoder(IDENTITY)
    for number in range(600):
        encoder.add(1, Piece(2 * number, 2 * number, 1, None, 0), 8_192)
    body = encoder.finish()
    start = decode_index_head(body, IDENTITY).blocks_start
    blocks = [body[at : at + BLOCK_SIZE] for at in (start, start + BLOCK_SIZE)]
    for number in (0, 1):
        assert len(IndexBlock(blocks[number], number, IDENTITY)) > 0
        with pytest.raises(CorruptRecordError, match="is damaged"):
            IndexBlock(blocks[1 - number], number, IDENTITY)


def test_a_manifest_vouches_only_for_what_is_synced() -> None:
    machine = Machine()
    machine.start()
    keeper, sequences = machine.serving._keeper, machine.serving._shared.sequences
    before = sequences.next_sequence
    machine.serving.add(add_request(1, (0,)), lambda _code: None)
    machine.scheduler.run_until(lambda: sequences.next_sequence > before)
    assert sequences.durable_sequence < sequences.next_sequence - 1
    manifest = keeper._compose(None, [], keep_open=True)
    assert manifest.durable_upto == sequences.durable_sequence


def test_a_file_that_is_written_is_a_file_of_the_directory() -> None:
    machine = Machine()
    machine.start()
    keeper = machine.serving._keeper
    assert keeper.has_file(keeper.active.entry.file_id)
    assert not keeper.has_file(99)
