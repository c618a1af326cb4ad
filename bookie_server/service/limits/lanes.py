"""The memory that a bookie holds for its peers, divided into lanes. Each lane has a limit.

    adds      received bytes: incomplete frames, and requests without an answer
    writes    the part of `adds` that storage is writing; its limit bounds the queue of the disk
    reads     answers to reads, until the peer has taken them
    control   received bytes and answers of recovery and fencing

A full lane does not stop the other lanes. Adds wait only for the disk, not for peers that do not
take their answers. Recovery and fencing do not wait for adds or reads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from bookie_server.config import (
    ADDS_RESERVE_BYTES,
    ANSWERS_RESERVE_BYTES,
    CONNECTION_RESERVE_BYTES,
    BookieSettings,
)
from bookie_server.service.limits.budget import Budget

REQUEST_OVERHEAD_BYTES: Final = 1_024  # memory of an accepted request in addition to its data
WRITE_COST_BYTES: Final = 4_096
"""Fixed cost of an add in storage, as additional bytes of the lane `writes`."""

QUANTUM_BYTES: Final = 1 << 20
"""Total cost of the requests that a connection handles before another connection continues."""

REQUEST_COST_BYTES: Final = 16_384  # minimum cost of a request, in bytes of `QUANTUM_BYTES`


class Lanes:
    """The budgets of one bookie. The v2 server and the gRPC server share them."""

    def __init__(self, connections_max: int, in_flight_bytes_max: int) -> None:
        shared_bytes = in_flight_bytes_max - connections_max * CONNECTION_RESERVE_BYTES
        self.adds = Budget("adds", shared_bytes // 2)
        self.reads = Budget("reads", 3 * shared_bytes // 8)
        self.control = Budget("control", shared_bytes // 8)
        self.writes = Budget("writes", 3 * shared_bytes // 32, is_draining=True)
        # The lanes whose bytes may be given back only after an action of a peer.
        self.held = (self.adds, self.reads, self.control)
        self.all = (*self.held, self.writes)

    @classmethod
    def of(cls, settings: BookieSettings) -> Lanes:
        """Return the lanes of a bookie with these settings."""
        return cls(settings.connections_max, settings.in_flight_bytes_max)

    @property
    def held_bytes(self) -> int:
        """Number of bytes that are held for peers now."""
        return sum(lane.held_bytes for lane in self.held)


class PeerShares:
    """The shares of one connection in all lanes. `held` has the order of `Lanes.held`."""

    __slots__ = ("adds", "control", "held", "reads", "writes")

    def __init__(self, lanes: Lanes, host: str) -> None:
        self.adds = lanes.adds.share(host, ADDS_RESERVE_BYTES)
        self.writes = lanes.writes.share(host)
        self.reads = lanes.reads.share(host, ANSWERS_RESERVE_BYTES)
        self.control = lanes.control.share(host, ANSWERS_RESERVE_BYTES)
        self.held = (self.adds, self.reads, self.control)

    @property
    def is_waiting(self) -> bool:
        """Whether any share of the connection waits for a grant."""
        return self.writes.is_waiting or any(share.is_waiting for share in self.held)

    def stop_waiting(self) -> None:
        """End the waits of all shares of the connection."""
        self.writes.stop_waiting()
        for share in self.held:
            share.stop_waiting()

    def trust(self, frame_size_bytes: int) -> None:
        """Record that a frame of this size was completed."""
        self.adds.trust(frame_size_bytes)
        self.control.trust(frame_size_bytes)


class ReadReserve:
    """The bytes that a read takes from the lane before the size of its answer is known.

    This reserve follows the largest recent answer to one peer. It grows immediately after a larger
    answer, and shrinks by at most 1/8 after a smaller answer.
    """

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = ANSWERS_RESERVE_BYTES

    def learn(self, answer_size_bytes: int) -> None:
        """Record that an answer of this size was sent."""
        fading = self.size_bytes - (self.size_bytes >> 3)
        self.size_bytes = max(answer_size_bytes + REQUEST_OVERHEAD_BYTES, fading)


def lane_gauges(lanes: Lanes) -> dict[str, Callable[[], float]]:
    """Return the gauges of each lane, by name."""
    gauges: dict[str, Callable[[], float]] = {"in_flight_bytes": lambda: lanes.held_bytes}
    for lane in lanes.all:
        name = f"in_flight_{lane.name}"
        gauges[f"{name}_bytes"] = partial(getattr, lane, "held_bytes")
        gauges[f"{name}_bytes_max"] = partial(getattr, lane, "size_bytes_max")
        gauges[f"{name}_waiting"] = partial(getattr, lane, "waiting_count")
        gauges[f"{name}_waits"] = partial(getattr, lane, "waits")
        gauges[f"{name}_refused"] = partial(getattr, lane, "refusals")
    return gauges
