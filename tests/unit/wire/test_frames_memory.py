"""Receive memory is reused only if no view of it is left."""

from __future__ import annotations

from ledgerlog_spark.wire.frames import ChunkPool, FrameSplitter


def _frame(fill: int, size_bytes: int) -> bytes:
    return size_bytes.to_bytes(4, "big") + bytes([fill]) * size_bytes


def _receive(splitter: FrameSplitter, data: bytes) -> list[memoryview]:
    bodies: list[memoryview] = []
    while data:
        buffer = splitter.get_buffer()
        taken = min(len(buffer), len(data))
        buffer[:taken] = data[:taken]
        data = data[taken:]
        bodies += splitter.received(taken)
    return bodies


def test_bodies_that_are_kept_never_change_while_later_frames_arrive() -> None:
    splitter = FrameSplitter(pool=ChunkPool(1 << 20))
    kept: list[tuple[int, memoryview]] = []
    for number in range(600):
        (body,) = _receive(splitter, _frame(number % 251, 5_000 + number))
        kept.append((number % 251, body))
        kept = kept[-40:]
        assert all(bytes(body) == bytes([fill]) * len(body) for fill, body in kept)


def test_memory_comes_back_once_no_view_of_it_is_left() -> None:
    pool = ChunkPool(1 << 20)
    chunk = pool.take(10_000)
    identity = id(chunk.buffer)
    view = memoryview(chunk.buffer)[5:10]
    pool.give_back(chunk)
    del chunk
    other = pool.take(10_000)
    assert id(other.buffer) != identity
    del view
    assert id(pool.take(10_000).buffer) == identity


def test_pool_keeps_no_more_bytes_than_it_may() -> None:
    pool = ChunkPool(1 << 16)
    chunks = [pool.take(1 << 14) for _ in range(8)]
    identities = [id(chunk.buffer) for chunk in chunks]
    for chunk in chunks:
        pool.give_back(chunk)
    del chunk
    taken = [pool.take(1 << 14) for _ in range(4)]
    assert [id(chunk.buffer) for chunk in taken] == identities[4:]


def test_large_frames_of_one_size_are_received_where_they_stay() -> None:
    splitter = FrameSplitter(pool=ChunkPool(1 << 24))
    _receive(splitter, _frame(0, 100_000))
    for number in range(1, 60):
        data, bodies = _frame(number, 100_000), []
        body_address = None
        while data:
            buffer = splitter.get_buffer()
            if body_address is None:
                body_address = id(buffer.obj)
            assert id(buffer.obj) == body_address, "the start of the frame was copied"
            taken = min(len(buffer), len(data), 30_000)
            buffer[:taken] = data[:taken]
            del buffer
            data = data[taken:]
            bodies = splitter.received(taken)
        assert [bytes(body) for body in bodies] == [bytes([number]) * 100_000]
