"""Reads of parts of entries: only the chunks with these parts are read and verified."""

from __future__ import annotations

import contextlib
import random
from itertools import pairwise
from typing import Any

import pytest

from bookie_server.core.record_codec import CHUNK_SIZE
from bookie_server.core.requests import StoredSliceRead
from bookie_server.errors import freed
from bookie_server.storage.files.entry_log_file import Need
from bookie_server.storage.reading import reads
from bookie_server.storage.reading.entry_spans import HEAD_SIZE_BYTES, chunks_of, near_spans
from ledgerlog_spark.model import Code
from tests.crash.machine import Machine, entry

LARGE = random.Random(3).randbytes(5 * CHUNK_SIZE)
RANGES = [(30, 10), (CHUNK_SIZE - 5, 10), (4 * CHUNK_SIZE, 700)]


def started() -> Machine:
    machine = Machine()
    machine.start()
    return machine


def cut(stored: bytes, ranges: list[tuple[int, int]]) -> bytes:
    return b"".join(stored[at : at + size] for at, size in ranges)


@pytest.mark.parametrize("is_started_again", [False, True])
def test_slices_are_those_of_the_stored_entries(*, is_started_again: bool) -> None:
    machine = started()
    for entry_id in (0, 1, 2, 4):
        assert machine.add(7, (entry_id,), LARGE) is Code.OK
    if is_started_again:
        machine.stop()
        machine.start()
    wanted = [(entry_id, RANGES) for entry_id in (0, 2, 4)]
    right = [cut(entry(7, entry_id, LARGE), RANGES) for entry_id in (0, 2, 4)]
    assert machine.read_slices(7, wanted) == (Code.OK, right)
    each = 4 + len(right[0])
    assert machine.read_slices(7, wanted, 36 + 2 * each) == (Code.OK, right[:2])
    assert machine.read_slices(7, wanted, 36 + 2 * each - 1) == (Code.OK, right[:1])
    assert machine.read_slices(7, wanted, 1) == (Code.OK, right[:1])
    assert machine.read_slices(7, [(2, RANGES), (3, RANGES), (4, RANGES)]) == (Code.OK, [right[1]])


def test_a_missing_first_entry_is_denied_as_a_whole_one_is() -> None:
    machine = started()
    machine.add(7, (0,), LARGE)
    assert machine.read_slices(7, [(1, RANGES)]) == (Code.NO_ENTRY, ())
    assert machine.read_slices(8, [(0, RANGES)]) == (Code.NO_LEDGER, ())
    assert machine.read_slices(-1, [(0, RANGES)]) == (Code.BAD_REQUEST, ())
    assert machine.read_slices(7, [(-1, RANGES)]) == (Code.BAD_REQUEST, ())
    assert machine.read_slices(7, [(0, RANGES), (1 << 63, RANGES)]) == (Code.BAD_REQUEST, ())


def test_slices_of_a_fenced_ledger_are_read_and_a_read_fences_nothing() -> None:
    machine = started()
    machine.add(7, (0,), LARGE)
    assert machine.read_slices(7, [(0, RANGES)])[0] is Code.OK
    assert machine.add(7, (1,)) is Code.OK
    machine.fence(7)
    assert machine.read_slices(7, [(0, RANGES)])[0] is Code.OK


def test_bytes_behind_the_end_of_an_entry_are_left_out() -> None:
    machine = started()
    machine.add(7, (0, 1), b"payload")
    stored = entry(7, 0, b"payload")
    beyond = [(0, 3), (len(stored) - 2, 9), (len(stored) + 10, 4)]
    right = stored[:3] + stored[-2:]
    for _ in range(2):
        assert machine.read_slices(7, [(0, beyond)]) == (Code.OK, [right])
        assert machine.read_slices(7, [(1, beyond)])[0] is Code.OK
        machine.stop()
        machine.start()


def test_damage_elsewhere_in_an_entry_does_not_matter_and_damage_of_a_slice_does() -> None:
    machine = started()
    for entry_id in (0, 1):
        assert machine.add(7, (entry_id,), LARGE) is Code.OK
    machine.stop()
    stored = entry(7, 1, LARGE)
    (slot, at) = next(
        (name, bytes(file.durable).index(stored))
        for name, file in machine.disk.durable_names.items()
        if stored in bytes(file.durable)
    )
    machine.disk.flip_bit(slot, at + 2 * CHUNK_SIZE + 9, 1)
    machine.start()
    assert machine.read(7, 1)[0] is Code.IO_ERROR
    right = [cut(entry(7, entry_id, LARGE), RANGES) for entry_id in (0, 1)]
    assert machine.read_slices(7, [(0, RANGES), (1, RANGES)]) == (Code.OK, right)
    damaged = [(2 * CHUNK_SIZE, 100)]
    code, found = machine.read_slices(7, [(0, damaged), (1, damaged)])
    assert (code, found) == (Code.OK, [cut(entry(7, 0, LARGE), damaged)])
    assert machine.read_slices(7, [(1, damaged)])[0] is Code.IO_ERROR


def test_slices_of_another_entry_than_the_wanted_one_are_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = started()
    for entry_id in (0, 1):
        assert machine.add(7, (entry_id,), LARGE) is Code.OK
    machine.stop()
    machine.start()
    find = reads.Reader.find
    monkeypatch.setattr(reads.Reader, "find", lambda self, ledger, *_: find(self, ledger, 0))
    assert machine.read_slices(7, [(1, RANGES)])[0] is Code.IO_ERROR


def test_slices_of_a_file_that_is_freed_during_the_read_are_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By then, the entry is in another file."""
    machine = started()
    for entry_id in (0, 1):
        assert machine.add(7, (entry_id,), LARGE) is Code.OK
    wanted = [(entry_id, RANGES) for entry_id in (0, 1)]
    right = [cut(entry(7, entry_id, LARGE), RANGES) for entry_id in (0, 1)]
    find, failures = reads.Reader.find, [reads.LOOKS_MAX - 1]

    def freed_before(self: reads.Reader, *arguments: int) -> Any:
        if failures and failures[0] and arguments[1] == 0:
            failures[0] -= 1
            raise freed("slot")
        return find(self, *arguments)

    monkeypatch.setattr(reads.Reader, "find", freed_before)
    assert machine.read_slices(7, wanted) == (Code.OK, right)
    failures[0] = reads.LOOKS_MAX
    assert machine.read_slices(7, wanted)[0] is Code.IO_ERROR


def test_ranges_that_are_near_each_other_are_read_together() -> None:
    end = 10 * CHUNK_SIZE
    assert near_spans([(40, 10)], end) == [(0, 50)]
    assert near_spans([(CHUNK_SIZE // 2, 10)], end) == [(0, CHUNK_SIZE // 2 + 10)]
    far = HEAD_SIZE_BYTES + CHUNK_SIZE
    assert near_spans([(far, 10), (far + 20, 5)], end) == [(0, HEAD_SIZE_BYTES), (far, far + 25)]
    assert near_spans([(end - 1, 10), (end + 5, 1)], end) == [(0, 24), (end - 1, end)]
    assert near_spans([(0, 4)], 24) == [(0, 24)]


def test_few_bytes_of_many_large_entries_do_not_read_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = started()
    for entry_id in range(30):
        assert machine.add(7, (entry_id,), LARGE) is Code.OK
    far = [(30, 1), (CHUNK_SIZE * 2, 1), (CHUNK_SIZE * 4, 1)]
    wanted = [(entry_id, far) for entry_id in range(30)]
    right = [cut(entry(7, entry_id, LARGE), far) for entry_id in range(30)]
    monkeypatch.setattr(reads, "SLICES_READ_SIZE_BYTES_MAX", 10 * CHUNK_SIZE)
    assert machine.read_slices(7, wanted) == (Code.OK, right[:3])
    monkeypatch.setattr(reads, "SLICES_READ_SIZE_BYTES_MAX", 1)
    assert machine.read_slices(7, wanted) == (Code.OK, right[:1])
    request = StoredSliceRead(7, wanted, 1 << 20)
    monkeypatch.setattr(reads, "SLICES_READ_SIZE_BYTES_MAX", 1 << 30)
    monkeypatch.setattr(reads, "PORTION_SIZE_BYTES", 6 * CHUNK_SIZE)
    assert pauses_of(machine, request) == 30 // 2 - 1


def test_slices_of_many_entries_are_read_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "RECORDS_PER_PORTION", 4)
    machine = started()
    for entry_id in range(30):
        assert machine.add(7, (entry_id,)) is Code.OK
    wanted = StoredSliceRead(7, [(entry_id, [(0, 40)]) for entry_id in range(30)], 1 << 20)
    assert pauses_of(machine, wanted) == 29 // 4
    assert machine.read_slices(7, wanted.entries) == (
        Code.OK,
        [entry(7, entry_id, b"payload")[:40] for entry_id in range(30)],
    )


def test_a_large_span_is_read_chunk_by_chunk() -> None:
    """Otherwise all bytes between two small ranges, up to a whole entry, would be in memory."""
    machine = started()
    for entry_id, payload in enumerate((b"x" * (CHUNK_SIZE - 110), LARGE, LARGE)):
        assert machine.add(7, (entry_id,), payload) is Code.OK
    machine.stop()
    machine.start()
    near = [(40, 10), *((at, 9) for at in range(CHUNK_SIZE // 2, 4 * CHUNK_SIZE, CHUNK_SIZE))]
    for ranges in (near, [(0, 4 * CHUNK_SIZE + 7)], [(30, 5 * CHUNK_SIZE)]):
        wanted = [(entry_id, ranges) for entry_id in (1, 2)]
        right = [cut(entry(7, entry_id, LARGE), ranges) for entry_id in (1, 2)]
        assert machine.read_slices(7, wanted) == (Code.OK, right)
        needs = needs_of(machine, StoredSliceRead(7, wanted, 1 << 24))
        sizes = [need.size for need in needs if need is not None]
        assert max(sizes) == CHUNK_SIZE
        assert sum(sizes) <= 2 * 7 * CHUNK_SIZE


def test_random_ranges_are_those_of_the_stored_entries() -> None:
    machine = started()
    chosen = random.Random(6)
    payloads = [chosen.randbytes(chosen.randrange(5 * CHUNK_SIZE)) for _ in range(8)]
    for entry_id, payload in enumerate(payloads):
        assert machine.add(7, (entry_id,), payload) is Code.OK
    machine.stop()
    machine.start()
    for _ in range(150):
        entry_id = chosen.randrange(8)
        near = chosen.random() < 0.5
        edges = sorted(
            {chosen.randrange(5 * CHUNK_SIZE) for _ in range(2 * chosen.randrange(1, 9))}
        )
        pairs = list(zip(edges[::2], edges[1::2], strict=False))
        ranges = [(at, min(end - at, 300) if near else end - at) for at, end in pairs]
        right = cut(entry(7, entry_id, payloads[entry_id]), ranges)
        if ranges:
            assert machine.read_slices(7, [(entry_id, ranges)]) == (Code.OK, [right])


def test_whole_chunks_are_read_one_after_the_other() -> None:
    edges = [0, CHUNK_SIZE, 2 * CHUNK_SIZE, 2 * CHUNK_SIZE + 500]
    assert list(chunks_of([(0, 24)], 0, edges[3])) == [(0, edges[1])]
    assert list(chunks_of([(0, edges[3])], 0, edges[3])) == list(pairwise(edges))
    far = [(0, 24), (CHUNK_SIZE + 30, CHUNK_SIZE + 31)]
    for start, count in ((1, 2), (edges[1] - 24, 2), (edges[1] - 23, 3), (edges[1], 2)):
        found = list(chunks_of(far, start, edges[3]))
        assert len(found) == count
        assert found[0][0] <= start < found[0][1]
        assert found[-1][0] <= start + CHUNK_SIZE + 30 < found[-1][1]


def test_the_head_of_an_entry_may_be_in_two_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    find = reads.Reader.find
    for start in range(CHUNK_SIZE - 30, CHUNK_SIZE + 3, 3):
        machine = started()
        both = [b"x" * (start - len(entry(7, 0, b""))), LARGE[:500]]
        assert machine.add(7, (0, 1), both) is Code.OK
        machine.stop()
        machine.start()
        right = [entry(7, 1, both[1])[100:110]]
        assert machine.read_slices(7, [(1, [(100, 10)])]) == (Code.OK, right)
        with monkeypatch.context() as patch:
            patch.setattr(reads.Reader, "find", lambda self, ledger, *_: find(self, ledger, 1))
            assert machine.read_slices(7, [(0, [(100, 10)])])[0] is Code.IO_ERROR


def pauses_of(machine: Machine, request: StoredSliceRead) -> int:
    """The number of times that a read lets other tasks run."""
    return needs_of(machine, request).count(None)


def needs_of(machine: Machine, request: StoredSliceRead) -> list[Need | None]:
    """The needs that a read yields."""
    reading = machine.serving._reader.read_slices(request)
    needs = [next(reading)]
    with contextlib.suppress(StopIteration):
        while True:
            need = needs[-1]
            data = b""
            if need is not None:
                name = getattr(need.handle, "name")  # noqa: B009 - of a pooled file
                stored = bytes(machine.disk.durable_names[name].durable)
                data = stored[need.offset : need.offset + need.size]
            needs.append(reading.send(data))
    return needs
