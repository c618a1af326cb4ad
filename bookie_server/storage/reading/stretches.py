"""Stretches of entries that are read with one search, for requests that arrive together."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import accumulate

from bookie_server.core.record import JournalRecord
from bookie_server.core.record_codec import CHUNK_SIZE
from bookie_server.errors import StorageError
from bookie_server.storage.files.entry_log_file import Need
from bookie_server.storage.reading.readings import RECORDS_PER_TURN
from bookie_server.storage.reading.reads import Reader

Results = list[bytes | StorageError | None]
"""The result for each entry: the bytes of the entry, None if no file holds the entry, or the error
of its read."""

STRETCH_SIZE_BYTES_MAX = 1 << 20
"""Maximum distance from the first to the last byte of a stretch."""


class Stretch:
    """Entries that were requested together and are close to each other in one record.

    Attributes:
        ledger_id: The ledger of the entries.
        count: Number of entries. It is 1 until the record of the first entry is found.
        size_bytes: Number of bytes that are read; 0 until the record is found.
        is_fixed: Whether `count` no longer changes, because other stretches have the next entries.
    """

    __slots__ = (
        "_ids",
        "_size_bytes_max",
        "_start",
        "count",
        "is_fixed",
        "ledger_id",
        "size_bytes",
    )

    def __init__(
        self,
        ledger_id: int,
        ids: Sequence[int],
        start: int,
        size_bytes_max: int = STRETCH_SIZE_BYTES_MAX,
    ) -> None:
        """Begin with the entry `ids[start]`. The next ids may become a part of the stretch.

        The stretch has at most `size_bytes_max` bytes, unless it has only one entry.
        """
        self.ledger_id = ledger_id
        self.count = 1
        self.is_fixed = False
        self._ids = ids
        self._start = start
        self._size_bytes_max = min(size_bytes_max, STRETCH_SIZE_BYTES_MAX)
        self.size_bytes = 0

    @property
    def first(self) -> int:
        """The id of the first entry."""
        return self._ids[self._start]

    @property
    def following_max(self) -> int:
        """Maximum number of entries after the first entry that can be part of the stretch."""
        return 0 if self.is_fixed else max(0, self._ids[-1] - self.first)

    @property
    def entry_ids(self) -> Sequence[int]:
        """The ids of the entries."""
        return self._ids[self._start : self._start + self.count]

    def extend(self, record: JournalRecord, place: int, following: int) -> list[tuple[int, int]]:
        """Add the next ids if the record has them, and return the places of the entries.

        The first entry has the index `place` in the record, and `following` consecutive entries
        after it have the next indexes. Each place is a start and an end in the body. The stretch
        ends before an id that is not larger than the previous id, and before an entry that is too
        far from the previous entry.
        """
        lengths, first = record.lengths, self.first
        following = min(following, self.following_max)
        ends = list(accumulate(lengths[place : place + following + 1], initial=0))
        base = sum(lengths[:place])
        places = [(base, base + ends[1])]
        self.size_bytes = ends[1]
        last, end = 0, ends[1]
        for entry_id in self._ids[self._start + 1 :]:
            number = entry_id - first
            if not last < number <= following or ends[number] - end > CHUNK_SIZE:
                break
            end = ends[number + 1]
            if end > self._size_bytes_max:
                break
            places.append((base + ends[number], base + end))
            self.size_bytes, last = end, number
        self.count = len(places)
        return places


def read_stretch(reader: Reader, stretch: Stretch) -> Generator[Need | None, bytes, Results]:
    """Read the entries of a stretch.

    When the record of the first entry is found, further entries become a part of the stretch,
    unless `is_fixed` is set.
    """
    try:
        return (yield from _read_at_once(reader, stretch))
    except StorageError:
        # A file was freed, or one entry is damaged. The other entries may still be read.
        results: Results = []
    for number, entry_id in enumerate(stretch.entry_ids):
        if number and number % RECORDS_PER_TURN == 0:
            yield None
        try:
            results.append((yield from reader.read_entry(stretch.ledger_id, entry_id)))
        except StorageError as error:
            results.append(error)
    return results


def _read_at_once(reader: Reader, stretch: Stretch) -> Generator[Need | None, bytes, Results]:
    found = yield from reader.find(stretch.ledger_id, stretch.first, stretch.following_max)
    if found is None:
        return [None]
    places = stretch.extend(found.record, found.place, found.following)
    start = places[0][0]
    data = yield from reader.body_of(found, start, places[-1][1])
    reader.check_head(found, data, stretch.ledger_id, stretch.first)
    return [data[first - start : end - start] for first, end in places]
