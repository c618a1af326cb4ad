"""The amount of written data that stays in the page cache."""

from __future__ import annotations

from pathlib import Path

from bookie_server.storage.device.filesystem import OsFileSystem
from bookie_server.storage.device.written_cache import DROPPED_BYTES_MIN, WrittenCache

MIB = 1 << 20


class RecordedFile:
    """Records the ranges that should leave the page cache."""

    def __init__(self) -> None:
        self.dropped: list[tuple[int, int]] = []

    def drop_cached(self, offset: int, size: int) -> None:
        """Keep the range."""
        self.dropped.append((offset, size))


def test_written_cache_beyond_its_bound_gives_back_the_oldest_bytes_of_the_oldest_file() -> None:
    first, second, cache = RecordedFile(), RecordedFile(), WrittenCache(4 * MIB)
    for number in range(4):
        cache.make_room(MIB)
        cache.add(first, number * MIB, MIB)
    assert first.dropped == []
    cache.make_room(2 * MIB)
    cache.add(second, 0, 2 * MIB)
    assert first.dropped == [(0, MIB), (MIB, MIB)]
    assert second.dropped == []


def test_written_cache_of_small_writes_gives_back_adjacent_ones_together() -> None:
    file, cache, size = RecordedFile(), WrittenCache(2 * DROPPED_BYTES_MIN), 64 << 10
    for offset in range(0, 4 * DROPPED_BYTES_MIN, size):
        cache.make_room(size)
        cache.add(file, offset, size)
    assert file.dropped == [(0, DROPPED_BYTES_MIN), (DROPPED_BYTES_MIN, DROPPED_BYTES_MIN)]


async def test_file_system_that_caches_little_reads_all_that_was_written(tmp_path: Path) -> None:
    files = OsFileSystem(tmp_path / "bookie", cached_bytes_max=MIB)
    await files.lock()
    first = await files.open("first", create=True)
    for number in range(8):
        await first.write_synced(number * MIB, (bytes([number]) * MIB,))
    await first.close()
    second = await files.open("second", create=True)
    await second.write_synced(0, (b"x" * 3 * MIB,))
    again = await files.open("first")
    for number in range(8):
        assert await again.read(number * MIB, MIB) == bytes([number]) * MIB
    for file in (second, again):
        await file.close()
    await files.unlock()
