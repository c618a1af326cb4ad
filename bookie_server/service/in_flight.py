"""How many bytes of requests and answers a bookie holds, bounded over all connections.

Soft bound: ordinary requests wait in their sockets. Hard bound: recovery and fencing, which pass
the soft bound so that they never wait behind megabytes of adds, are answered BUSY.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST_OVERHEAD_BYTES: Final = 512
"""What an accepted request costs in memory beside its bytes."""

READ_RESERVE_BYTES_FIRST: Final = 1 << 20


class InFlight:
    """Bytes in flight of the whole process, and who waits for them to become fewer.

    Attributes:
        size_bytes: In flight now.
        size_bytes_max: From here on ordinary requests wait.
        hard_size_bytes_max: From here on nothing at all is accepted.
        resume_size_bytes: At this and below those who wait go on.

    Invariant: `size_bytes` is the sum of what was taken and not given back.
    """

    __slots__ = (
        "_waiting",
        "hard_size_bytes_max",
        "resume_size_bytes",
        "size_bytes",
        "size_bytes_max",
    )

    def __init__(self, size_bytes_max: int) -> None:
        self.size_bytes = 0
        self.size_bytes_max = size_bytes_max
        self.hard_size_bytes_max = size_bytes_max + size_bytes_max // 4
        self.resume_size_bytes = size_bytes_max - size_bytes_max // 4
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self, size_bytes: int) -> None:
        """Count bytes in; the caller looked at the bounds before."""
        self.size_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Count bytes out; those who wait go on, in the order in which they came."""
        self.size_bytes -= size_bytes
        assert self.size_bytes >= 0, "more bytes were given back than taken"
        if self._waiting and self.size_bytes <= self.resume_size_bytes:
            self._resume_waiting()

    @property
    def has_room(self) -> bool:
        """Whether ordinary requests may be accepted."""
        return self.size_bytes < self.size_bytes_max

    def wait(self, resume: Callable[[], None]) -> None:
        """Call `resume` once, when the bytes fell well below the soft bound."""
        self._waiting.append(resume)

    def forget(self, resume: Callable[[], None]) -> None:
        """Stop waiting; fine when not waiting."""
        if resume in self._waiting:
            self._waiting.remove(resume)

    def _resume_waiting(self) -> None:
        for _ in range(len(self._waiting)):
            if self.size_bytes > self.size_bytes_max or not self._waiting:
                return
            self._waiting.popleft()()


class ReadReserve:
    """How many bytes a read is counted in with before its answer is known.

    It follows the largest recent answer of one peer: fast up, an eighth a read down.
    """

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = READ_RESERVE_BYTES_FIRST

    def learn(self, answer_size_bytes: int) -> None:
        """An answer of this size was sent."""
        fading = self.size_bytes - (self.size_bytes >> 3)
        self.size_bytes = max(answer_size_bytes + REQUEST_OVERHEAD_BYTES, fading)
