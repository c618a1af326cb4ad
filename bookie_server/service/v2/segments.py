"""Finds the requests that are handled together, in the frames that arrive together.

A segment consists of consecutive plain adds: frames of ADD without flags. In a segment, adds of one
ledger and key with rising entry ids form a run. A frame that is not a plain add ends the segment.
So no add overtakes a fence, a read or a recovery add of the same connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple

from bookie_server.core.requests import EntryIds, StoredAdd, evenly_spaced
from bookie_server.service.limits.lanes import WRITE_COST_BYTES
from ledgerlog_spark.model import ENTRY_HEADER_SIZE_BYTES, MASTER_KEY_SIZE_BYTES
from ledgerlog_spark.wire.opcodes import VERSION, VERSION_MIN, Opcode, packet_header

FRAMES_PER_TURN: Final = 512
"""Maximum number of frames that a connection handles in one turn."""
TOGETHER_FRAMES_MIN: Final = 2
SEGMENT_BYTES_MAX: Final = 1 << 20
"""Maximum number of bytes of all frames in a segment, and so also in a run."""
COPIED_ENTRY_BYTES_MAX: Final = 16_384
"""An add above this size is stored alone, without a copy, because a copy would cost more than a run
saves."""
ENTRY_COST_BYTES: Final = 128
"""Memory of an entry of a run in addition to its frame: its id, its length and its answer."""

_ENTRY_OFFSET: Final = 4 + MASTER_KEY_SIZE_BYTES
_ADD_SIZE_BYTES_MIN: Final = _ENTRY_OFFSET + ENTRY_HEADER_SIZE_BYTES
_HEAD: Final = Struct(">32sqq")
"""Three values: packet header, master key and ledger id together; entry id; last add confirmed."""
_PLAIN_ADDS: Final = frozenset(
    packet_header(Opcode.ADD, 0, version).to_bytes(4, "big")
    for version in range(VERSION_MIN, VERSION + 1)
)
_READ_HEAD: Final = Struct(">12sq")
"""Two values: packet header and ledger id together; entry id."""
_PLAIN_READS: Final = frozenset(
    packet_header(Opcode.READ, 0, version).to_bytes(4, "big")
    for version in range(VERSION_MIN, VERSION + 1)
)


class Together(NamedTuple):
    """The result for several frames that were handled together."""

    cost_bytes: int  # cost of the frames, in bytes of `QUANTUM_BYTES`
    frames: int  # number of frames that were handled
    end: int  # index after the last of the frames
    left: Sequence[memoryview]  # frames before `end` that must be handled alone, in order


def ids_read(
    bodies: Sequence[memoryview], start: int, count_max: int
) -> tuple[int, int, list[int]]:
    """Return version, ledger and entry ids of the plain reads of one ledger from `start` on.

    A read of the last entry is not a plain read.
    """
    first, ids = b"", []
    for body in islice(bodies, start, start + count_max):
        if len(body) != _READ_HEAD.size:
            break
        head, entry_id = _READ_HEAD.unpack_from(body)
        if entry_id < 0:
            break
        if head != first:
            if first or head[:4] not in _PLAIN_READS or head[4] & 0x80:
                break
            first = head
        ids.append(entry_id)
    return (first[0], int.from_bytes(first[4:], "big"), ids) if ids else (0, 0, ids)


class SegmentRun:
    """A run of adds, in order of their entry ids.

    Attributes:
        head: Packet header, master key and ledger id, which all frames of the run share.
        frames: The bodies of the frames.
        entry_ids: The rising ids of the entries.
        last_lac: The last add confirmed of the last entry. No entry of the run may have a larger
            value, because the storage reads this value only from the first and the last entry.
    """

    __slots__ = ("entry_ids", "frames", "head", "last_lac")

    def __init__(self, head: bytes) -> None:
        self.head = head
        self.frames: list[memoryview] = []
        self.entry_ids: list[int] = []
        self.last_lac = -(1 << 63)

    @property
    def version(self) -> int:
        """The version of the protocol in all frames."""
        return self.head[0]

    @property
    def ledger_id(self) -> int:
        """The id of the ledger of all entries."""
        return int.from_bytes(self.head[_ENTRY_OFFSET:], "big")

    @property
    def cost_bytes(self) -> int:
        """Memory of the run in bytes. The answers to its adds need fewer bytes."""
        return sum(map(len, self.frames)) + ENTRY_COST_BYTES * len(self.frames)

    def to_add(self, peer: object) -> StoredAdd:
        """Return the request of a peer to store the run. The request has a copy of the entries."""
        entries = [frame[_ENTRY_OFFSET:] for frame in self.frames]
        first, last = self.entry_ids[0], self.entry_ids[-1]
        ids: EntryIds
        if last - first == len(self.entry_ids) - 1:
            ids = range(first, last + 1)
        else:
            ids = evenly_spaced(tuple(self.entry_ids))
        return StoredAdd(
            self.ledger_id,
            ids,
            tuple(map(len, entries)),
            b"".join(entries),
            self.head[4:_ENTRY_OFFSET],
            peer=peer,
        )


class Segment:
    """The runs at the beginning of a list of frames.

    Attributes:
        runs: The runs in the order in which they are stored. Runs of one ledger are in the order of
            their frames.
        count: Number of frames in all runs.
        refused: Ids of the ledgers with a run that the storage did not accept. Later runs of these
            ledgers must wait for the adds of the refused run.
    """

    __slots__ = ("count", "refused", "runs")

    def __init__(
        self, bodies: Sequence[memoryview], start: int, count_max: int, room_bytes: int
    ) -> None:
        """Find the runs from the frame `start` on.

        The runs have at most `count_max` frames, and take at most `room_bytes` of the lane
        `writes`.
        """
        self.runs: list[SegmentRun] = []
        self.count = 0
        self.refused: set[int] = set()
        newest: dict[bytes, SegmentRun] = {}  # by ledger id
        run: SegmentRun | None = None
        last_id = last_lac = -1
        left_bytes, unpack = min(room_bytes, SEGMENT_BYTES_MAX), _HEAD.unpack_from
        for body in islice(bodies, start, start + count_max):
            size_bytes = len(body)
            left_bytes -= size_bytes + ENTRY_COST_BYTES
            if not _ADD_SIZE_BYTES_MIN <= size_bytes <= COPIED_ENTRY_BYTES_MAX or left_bytes < 0:
                break
            head, entry_id, lac = unpack(body)
            if run is None or head != run.head:
                if head[:4] not in _PLAIN_ADDS or head[_ENTRY_OFFSET] & 0x80:
                    break
                if run is not None:
                    run.last_lac = last_lac
                run = newest.get(head[_ENTRY_OFFSET:])
                if run is not None:
                    last_id, last_lac = run.entry_ids[-1], run.last_lac
            if entry_id < 0:
                break
            if run is None or head != run.head or entry_id <= last_id or lac < last_lac:
                # A repeated or smaller id, a smaller LAC, or another key begins a new run.
                left_bytes -= WRITE_COST_BYTES
                if left_bytes < 0:
                    break
                run = newest[head[_ENTRY_OFFSET:]] = SegmentRun(head)
                self.runs.append(run)
            run.frames.append(body)
            run.entry_ids.append(entry_id)
            last_id, last_lac = entry_id, lac
            self.count += 1

    def frames_of(
        self, runs: Sequence[SegmentRun], bodies: Sequence[memoryview], start: int
    ) -> list[memoryview]:
        """Return the frames of some runs, in the order in which they arrived."""
        if not runs:
            return []
        wanted = {id(frame) for run in runs for frame in run.frames}
        return [body for body in bodies[start : start + self.count] if id(body) in wanted]
