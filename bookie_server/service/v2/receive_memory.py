"""The memory into which one connection receives. The shares of the connection count it.

A connection receives into one chunk of memory at a time. The bytes of a chunk count in a lane from
the first use of the chunk until another chunk has replaced it and every request in it is answered.
If a lane has plenty of room, a chunk has the size that is fastest to receive into. Otherwise a
chunk has the size of a frame. If a frame is larger than the connection's own reserve, memory for
the whole frame is taken before further bytes of the frame are received. So a connection that waits
for this memory has received only the beginning of the frame.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from bookie_server.config import ADDS_RESERVE_BYTES
from bookie_server.service.limits.budget import Share
from bookie_server.service.limits.lanes import PeerShares
from ledgerlog_spark.wire.frames import ChunkPool, FrameSplitter, ReceiveBuffer, chunk_size_bytes
from ledgerlog_spark.wire.opcodes import Flag, Opcode

OPCODE_OFFSET: Final = 1
_FLAGS_OFFSET: Final = 3
# These are plain numbers, because each operator of an IntFlag takes 1.8 us.
RECOVERY_ADD: Final = int(Flag.RECOVERY_ADD)
HIGH_PRIORITY: Final = int(Flag.HIGH_PRIORITY)
_FENCE_OR_RECOVERY: Final = int(Flag.FENCE | Flag.HIGH_PRIORITY)
ADDS: Final = frozenset((int(Opcode.ADD), int(Opcode.ADD_RUN)))


class ReceiveMemory:
    """The memory that `FrameSplitter` receives into, within the limits of the lanes."""

    __slots__ = ("_adds", "_control", "frames", "wanted")

    def __init__(self, frame_size_bytes_max: int, pool: ChunkPool, shares: PeerShares) -> None:
        self.frames = FrameSplitter(frame_size_bytes_max, pool, self._obtain)
        self.wanted: tuple[Share, int] | None = None  # share and chunk size to wait for
        self._adds = shares.adds
        self._control = shares.control

    @property
    def is_beyond_reserve(self) -> bool:
        """Whether the memory exceeds the connection's reserve, and no request in it is open."""
        buffer = self.frames.buffer
        return len(buffer) > ADDS_RESERVE_BYTES and not buffer.unanswered

    @property
    def missing_bytes(self) -> int:
        """Number of bytes to wait for, less the bytes that the replaced chunk gives back."""
        assert self.wanted is not None, "nothing is missing"
        share, size_bytes = self.wanted
        old = self.frames.buffer
        if old.charge is share and not old.unanswered:
            size_bytes -= len(old)
        return max(1, size_bytes)

    def use(self, share: Share, granted_bytes: int) -> None:
        """Receive into the wanted chunk, for which `granted_bytes` were granted."""
        wanted, self.wanted = self.wanted, None
        if wanted is None or wanted[0] is not share or not self._swap(*wanted, granted_bytes):
            share.give_back(granted_bytes)

    def keep(self, bodies: Iterable[memoryview]) -> None:
        """Keep the memory of frames until `free` is called, because they are handled later."""
        for body in bodies:
            buffer_of(body).unanswered += 1

    def free(self, buffer: ReceiveBuffer) -> bool:
        """Free the memory of an answered request; return whether the connection can reuse it."""
        buffer.unanswered -= 1
        if buffer.unanswered:
            return False
        if buffer is self.frames.buffer:
            return True
        _uncharge(buffer)
        return False

    def shed(self) -> None:
        """Give back the chunk if it is not used."""
        buffer = self.frames.buffer
        is_all = self._adds.held_bytes == len(buffer) and buffer.charge is self._adds
        if is_all and not buffer.unanswered and not self.frames.held_bytes:
            self.frames.close()
            _uncharge(buffer)

    def close(self) -> None:
        """Give back the memory, except the memory of open requests, which `free` gives back."""
        buffer = self.frames.close()
        if not buffer.unanswered:
            _uncharge(buffer)

    def _obtain(self, least: int, best: int) -> bool:
        """Replace the chunk that bytes are received into, and return whether this was possible.

        If the lane is ample (`Budget.is_ample`), the new chunk has the size `best`, otherwise
        `least`. If `least` is 0, the old chunk is large enough. If the old chunk is too small, and
        no lane grants memory, set `wanted`.
        """
        adds = self._adds
        if adds.budget.is_ample and self._swap(adds, chunk_size_bytes(best)):
            return True
        if not least:
            return False
        size_bytes = chunk_size_bytes(least)
        if self._swap(adds, size_bytes):
            return True
        share = self._control if is_control(self.frames.held_head) else adds
        if share is not adds and self._swap(share, size_bytes):
            return True
        self.wanted = share, size_bytes
        return False

    def _swap(self, share: Share, size_bytes: int, granted_bytes: int = 0) -> bool:
        """Replace the chunk, and return whether this was possible.

        The bytes of the old chunk still count in their lane if the chunk has an open request.
        """
        old = self.frames.buffer
        more_bytes = size_bytes - granted_bytes
        is_counted_out = old.charge is share and not old.unanswered
        if is_counted_out:
            more_bytes -= len(old)
        if more_bytes > 0 and not share.take(more_bytes):
            return False
        if more_bytes < 0:
            share.give_back(-more_bytes)
        if is_counted_out:
            old.charge = None
        elif not old.unanswered:
            _uncharge(old)
        self.frames.grow(size_bytes)
        self.frames.buffer.charge = share
        return True


def is_control(body: memoryview) -> bool:
    """Return whether a frame belongs to recovery or fencing, by the flags in its header."""
    if len(body) <= _FLAGS_OFFSET:
        return False
    flags = body[_FLAGS_OFFSET]
    if body[OPCODE_OFFSET] in ADDS:
        return bool(flags & RECOVERY_ADD)
    return bool(flags & _FENCE_OR_RECOVERY)


def buffer_of(body: memoryview) -> ReceiveBuffer:
    """Return the memory that contains a frame."""
    return cast("ReceiveBuffer", body.obj)


def _uncharge(buffer: ReceiveBuffer) -> None:
    share, buffer.charge = cast("Share | None", buffer.charge), None
    if share is not None:
        share.give_back(len(buffer))
