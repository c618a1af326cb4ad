"""The slices of an entry: the bytes of its header and of each column (LOGS.md#G14).

Arrow writes the buffers of a record batch column by column. So an entry consists of a header and
one slice for each column, without gaps. The index of a range describes the slices of each entry by
their lengths and CRC32Cs. With this description, a reader requests only the header and some columns
from the bookies. `RequestedSlices` checks the received slices, and builds an entry from them. In
this entry, the other columns have no bytes. The description of one entry consists of these
big-endian numbers:

    { length u32 | CRC32C u32 } for the header and then for each column
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from struct import error, pack, pack_into, unpack

from ledgerlog_spark.arrow.batch_message import BUFFER, Buffer, find_parts
from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import SLICE_RANGES_MAX
from ledgerlog_spark.wire.digests import crc32c
from ledgerlog_spark.wire.frames import ENTRY_SIZE_BYTES_MAX

SLICE_SIZE_BYTES = 8
COLUMNS_MIN = 2
"""Minimum number of columns of an entry for which slices are described.

If an entry has only one column, a reader needs the whole entry.
"""

SLICED_SIZE_BYTES_MIN = 256 << 10
"""Minimum size of a range whose index describes slices. A smaller range is read in one request."""

SLICES_SHARE_MAX = 1 / 64
"""Maximum size of the description of all slices, as a share of the bytes of their range."""

NEEDED_SHARE_MAX = 0.6
"""Maximum share of the bytes of a range that a reader reads as slices.

If it needs a larger share, it reads whole entries.
"""

Slices = tuple[tuple[int, int], ...]
"""Length and CRC32C of each slice of one entry."""


def slices_of(payload: bytes, counts: Sequence[int] | None) -> bytes:
    """Return the description of the slices of an entry.

    The result is empty if the slices cannot be determined. `counts` has the number of buffers of
    each column.
    """
    if counts is None or len(counts) < COLUMNS_MIN:
        return b""
    try:
        parts = find_parts(payload)
    except WireFormatError:
        return b""  # the form of the message is unknown, so readers read the whole entry
    if len(parts.buffers) != sum(counts) or parts.body_start + parts.body_size != len(payload):
        return b""
    firsts = accumulate(counts[:-1], initial=0)
    starts = [0] * len(counts)
    end = parts.body_size
    for place, (first, count) in reversed(list(enumerate(zip(firsts, counts, strict=True)))):
        # If a column has no buffers, its slice has no bytes.
        starts[place] = end = parts.buffers[first][0] if count else end
    edges = [0, *(parts.body_start + start for start in starts), len(payload)]
    if starts[0] != 0 or any(one > after for one, after in pairwise(edges)):
        return b""
    numbers: list[int] = []
    view = memoryview(payload)
    for start, after in pairwise(edges):
        numbers += (after - start, crc32c(view[start:after]))
    return pack(f">{len(numbers)}I", *numbers)


def joined_slices(slices: Sequence[bytes], size_bytes: int) -> bytes:
    """Join the descriptions of the slices of all entries of a range of `size_bytes`.

    The result is empty if the range is small, if an entry has no slices, or if the joined
    descriptions in base64 exceed the share SLICES_SHARE_MAX of the range. The index stores the
    descriptions in base64, which is a third larger than the bytes.
    """
    if size_bytes < SLICED_SIZE_BYTES_MIN or not all(slices):
        return b""
    joined = b"".join(slices)
    return joined if len(joined) * 4 / 3 <= size_bytes * SLICES_SHARE_MAX else b""


def split_slices(joined: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Split joined descriptions into one description for each entry.

    `sizes` are the sizes of the entries. There must be at least one entry.

    Raises:
        WireFormatError: The lengths of an entry's slices do not add up to the size of the entry.
    """
    each, rest = divmod(len(joined), len(sizes) * SLICE_SIZE_BYTES)
    if rest or each < 1 + COLUMNS_MIN:
        raise WireFormatError(f"{len(joined)} bytes are not the slices of {len(sizes)} entries")
    step = each * SLICE_SIZE_BYTES
    slices = [joined[at : at + step] for at in range(0, len(joined), step)]
    for one, size_bytes in zip(slices, sizes, strict=True):
        if sum(unpack(f">{2 * each}I", one)[::2]) != size_bytes:
            raise WireFormatError(f"the slices of an entry of {size_bytes} bytes have another size")
    return slices


class RequestedSlices:
    """Selects the slices of some columns in the entries of a range, and checks received slices.

    Entry ids are the ids in the ledger of the range. Only one thread may use an instance.

    Attributes:
        given_up: Number of requests for slices that the reader gave up, because no bookie answered.
            After such a request, the reader requests whole entries, sometimes up to the end of the
            range.
    """

    def __init__(
        self,
        first_entry_id: int,
        slices: Sequence[bytes],
        places: Sequence[int],
        counts: Sequence[int],
    ) -> None:
        """Select the columns at `places` in the schema.

        `slices` has the description of the slices of each entry.

        `counts` has the number of buffers of each column of the schema.
        """
        self.given_up = 0
        self._first_entry_id = first_entry_id
        self._slices = slices
        self._counts = counts
        # Slice 0 is the header, and slice 1 is column 0.
        self._wanted = (0, *(place + 1 for place in sorted(places)))

    def is_worthwhile(self, first_entry_id: int, last_entry_id: int) -> bool:
        """Whether a read of slices is faster than a read of whole entries. Both ids are inclusive.

        The result is False if the slices of an entry are missing, do not match the schema, or are
        too many for one request.
        """
        first, last = first_entry_id - self._first_entry_id, last_entry_id - self._first_entry_id
        if not 0 <= first <= last < len(self._slices):
            return False
        # There is one slice for the header, and one slice for each column of the schema.
        is_known = len(self._slices[0]) == (1 + len(self._counts)) * SLICE_SIZE_BYTES
        if not is_known or len(self._wanted) > SLICE_RANGES_MAX:
            return False
        needed = total = 0
        for entry in self._slices[first : last + 1]:
            lengths = unpack(f">{len(entry) // 4}I", entry)[::2]
            size_bytes = sum(lengths)
            if not lengths[0] or size_bytes > ENTRY_SIZE_BYTES_MAX:
                return False
            needed += sum(lengths[place] for place in self._wanted)
            total += size_bytes
        return needed < total * NEEDED_SHARE_MAX

    def ranges_of(self, entry_id: int) -> list[tuple[int, int]]:
        """Return the ranges of bytes to request from an entry's payload, as offsets and lengths.

        No range is empty.
        """
        slices = self._slices_of(entry_id)
        starts = list(accumulate((length for length, _ in slices), initial=0))
        ranges: list[tuple[int, int]] = []
        for place in self._wanted:
            start, length = starts[place], slices[place][0]
            if ranges and sum(ranges[-1]) == start:
                ranges[-1] = ranges[-1][0], ranges[-1][1] + length
            elif length:
                ranges.append((start, length))
        return ranges

    def payload_of(self, entry_id: int, data: Buffer) -> bytes | None:
        """Return an entry with only the requested columns.

        `data` has the bytes of the ranges that `ranges_of` returned, in this order. The result is
        None if the bytes do not match the checksums of the slices.
        """
        slices = self._slices_of(entry_id)
        view = memoryview(data)
        at = 0
        for place in self._wanted:
            length, checksum = slices[place]
            if crc32c(view[at : at + length]) != checksum:
                return None
            at += length
        if at != len(view):
            return None
        starts = list(accumulate((length for length, _ in slices[1:]), initial=0))
        try:
            header = self._shortened(view[: slices[0][0]], starts)
        except (WireFormatError, error):
            return None  # the index does not match the entry, so the reader requests whole entries
        return b"".join((header, view[slices[0][0] :]))

    def note_given_up(self, count: int) -> None:
        """Add `count` to `given_up`."""
        self.given_up += count

    def _shortened(self, header: memoryview, starts: Sequence[int]) -> bytearray:
        """Return the header of a message that has only the requested columns in its body.

        `starts` contains the offset of each column in the body, and then the end of the body.
        """
        parts = find_parts(header)
        if len(parts.buffers) != sum(self._counts):
            raise WireFormatError(f"the entry has {len(parts.buffers)} buffers")
        kept = {place - 1 for place in self._wanted[1:]}
        shortened = bytearray(header)
        number = body_size = 0
        for column, count in enumerate(self._counts):
            start, end = starts[column], starts[column + 1]
            for offset, length in parts.buffers[number : number + count]:
                moved = (0, 0)
                if column in kept and length > 0:
                    if not start <= offset <= offset + length <= end:
                        raise WireFormatError(f"a buffer of column {column} is outside its slice")
                    moved = (body_size + offset - start, length)
                BUFFER.pack_into(shortened, parts.buffers_place + number * BUFFER.size, *moved)
                number += 1
            if column in kept:
                body_size += end - start
        pack_into("<q", shortened, parts.body_size_place, body_size)
        return shortened

    def _slices_of(self, entry_id: int) -> Slices:
        entry = self._slices[entry_id - self._first_entry_id]
        numbers = unpack(f">{len(entry) // 4}I", entry)
        return tuple(zip(numbers[::2], numbers[1::2], strict=True))
