"""Checks that a peer makes progress: it takes waiting answers, and sends the rest of its frames.

A `PeerWatch` periodically compares the totals of a connection with the previous totals. It reads no
clock: the time is an argument of each call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

MOVED_BYTES_MIN: Final = 16_384
"""Minimum number of bytes that count as progress. If fewer bytes are left to send or to take, the
transfer of all of them counts as progress."""

FRAME_STALLS_MAX: Final = 10
"""Time limit for one frame that arrives steadily, as a multiple of the stall timeout."""


@dataclass(slots=True, eq=False)
class PeerWatch:
    """The observed progress of one peer."""

    opened_at: float  # time of the opening; all times are in seconds of the loop's clock
    received_at: float = field(init=False)  # time of the last call of `look` with new bytes
    # last time at which the peer took answers, or at which no answers waited
    took_at: float = field(init=False)
    # last time at which bytes of a frame arrived, or at which no frame was incomplete
    sent_at: float = field(init=False)
    frame_began_at: float | None = field(default=None, init=False)  # start of an incomplete frame
    _received_bytes: int = field(default=0, init=False)
    _received_bytes_moved: int = field(default=0, init=False)
    _taken_bytes: int | None = field(default=None, init=False)
    _frames_received: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.received_at = self.took_at = self.sent_at = self.opened_at

    def look(
        self,
        now: float,
        *,
        received_bytes: int,
        frames_received: int,
        is_incomplete: bool,
        taken_bytes: int | None,
    ) -> None:
        """Compare new totals with previous totals. `taken_bytes` is None if no answer waits."""
        if received_bytes != self._received_bytes:
            self.received_at = now
            self._received_bytes = received_bytes
        before = self._taken_bytes
        if taken_bytes is None or before is None or taken_bytes >= before + MOVED_BYTES_MIN:
            self.took_at = now
            self._taken_bytes = taken_bytes
        if not is_incomplete:
            self.frame_began_at = None
        elif self.frame_began_at is None or frames_received != self._frames_received:
            self.frame_began_at = now
        moved_bytes = received_bytes - self._received_bytes_moved
        is_new_frame = frames_received != self._frames_received
        if not is_incomplete or is_new_frame or moved_bytes >= MOVED_BYTES_MIN:
            self.sent_at = now
            self._received_bytes_moved = received_bytes
        self._frames_received = frames_received

    def overdue(self, now: float, stall_seconds: float) -> str | None:
        """Return why the connection must be closed, or None if the peer makes progress."""
        if now - self.took_at >= stall_seconds:
            return "takes none of its answers"
        if now - self.sent_at >= stall_seconds:
            return "does not complete a frame"
        began_at = self.frame_began_at
        if began_at is not None and now - began_at >= FRAME_STALLS_MAX * stall_seconds:
            return "sends a frame too slowly"
        return None

    def is_stalled(self, now: float, grace_seconds: float) -> bool:
        """Return whether the peer made no progress for this time although progress was due."""
        return min(self.took_at, self.sent_at) + grace_seconds <= now
