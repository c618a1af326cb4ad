"""Everything that a bookie holds for its peers, as lanes with a bound each.

    adds      bytes received: frames that are not whole yet, requests that are not answered
    writes    of these, adds that were handed to storage: how far the disk may be behind
    reads     answers to reads: being made, or not taken by the peer
    control   all of this of recovery and fencing

A lane that is full stops nothing in the others: adds wait for the disk only, never for a peer that
does not take its answers, and recovery and fencing wait for neither.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from bookie_server.config import (
    ADDS_RESERVE_BYTES,
    ANSWERS_RESERVE_BYTES,
    CONNECTION_RESERVE_BYTES,
)
from bookie_server.service.limits.budget import Budget

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie_server.config import BookieSettings

REQUEST_OVERHEAD_BYTES: Final = 1_024
"""What an accepted request costs in memory beside its bytes."""

WRITE_COST_BYTES: Final = 4_096
"""What an add counts in `writes` beside its bytes: the time that storage needs for it."""

QUANTUM_BYTES: Final = 1 << 20
"""Of requests that one connection gets handled before others have their turn of the loop."""

REQUEST_COST_BYTES: Final = 16_384
"""What a request counts of a quantum at least: its time, as bytes."""


class Lanes:
    """The three budgets of one bookie, for the v2 and the gRPC server together.

    Args:
        connections_max: Each has reserves.
        in_flight_bytes_max: Of all lanes and reserves; `writes` is a part of `adds`.

    Attributes:
        held: The lanes whose bytes depend on peers to come back.
    """

    def __init__(self, connections_max: int, in_flight_bytes_max: int) -> None:
        shared_bytes = shared_bytes_of(connections_max, in_flight_bytes_max)
        self.adds = Budget("adds", shared_bytes // 2)
        self.reads = Budget("reads", 3 * shared_bytes // 8)
        self.control = Budget("control", shared_bytes // 8)
        self.writes = Budget("writes", 3 * shared_bytes // 32, is_draining=True)
        self.held = (self.adds, self.reads, self.control)
        self.all = (*self.held, self.writes)

    @classmethod
    def of(cls, settings: BookieSettings) -> Lanes:
        """As a bookie's settings have them."""
        return cls(settings.connections_max, settings.in_flight_bytes_max)

    @property
    def held_bytes(self) -> int:
        """What is held for peers now."""
        return sum(lane.held_bytes for lane in self.held)


class PeerShares:
    """What one connection holds of the lanes.

    Attributes:
        adds: See the module, as for the others.
        held: Those that depend on its peer, in the order of `Lanes.held`.
    """

    __slots__ = ("adds", "control", "held", "reads", "writes")

    def __init__(self, lanes: Lanes, host: str) -> None:
        self.adds = lanes.adds.share(host, ADDS_RESERVE_BYTES)
        self.writes = lanes.writes.share(host)
        self.reads = lanes.reads.share(host, ANSWERS_RESERVE_BYTES)
        self.control = lanes.control.share(host, ANSWERS_RESERVE_BYTES)
        self.held = (self.adds, self.reads, self.control)

    @property
    def is_waiting(self) -> bool:
        """Whether any of them waits for a grant."""
        return self.writes.is_waiting or any(share.is_waiting for share in self.held)

    def stop_waiting(self) -> None:
        """None of them waits any longer."""
        self.writes.stop_waiting()
        for share in self.held:
            share.stop_waiting()

    def trust(self, frame_size_bytes: int) -> None:
        """A frame of this size was completed."""
        self.adds.trust(frame_size_bytes)
        self.control.trust(frame_size_bytes)


def shared_bytes_of(connections_max: int, in_flight_bytes_max: int) -> int:
    """What the lanes share out beyond the connections' reserves."""
    return in_flight_bytes_max - connections_max * CONNECTION_RESERVE_BYTES


class ReadReserve:
    """How many bytes a read is counted in with before its answer is known.

    It follows the largest recent answer of one peer: fast up, an eighth a read down.
    """

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = ANSWERS_RESERVE_BYTES

    def learn(self, answer_size_bytes: int) -> None:
        """An answer of this size was sent."""
        fading = self.size_bytes - (self.size_bytes >> 3)
        self.size_bytes = max(answer_size_bytes + REQUEST_OVERHEAD_BYTES, fading)


def lane_gauges(lanes: Lanes) -> dict[str, Callable[[], float]]:
    """What the metrics show of each lane, by name."""
    gauges: dict[str, Callable[[], float]] = {"in_flight_bytes": lambda: lanes.held_bytes}
    for lane in lanes.all:
        name = f"in_flight_{lane.name}"
        gauges[f"{name}_bytes"] = partial(getattr, lane, "held_bytes")
        gauges[f"{name}_bytes_max"] = partial(getattr, lane, "size_bytes_max")
        gauges[f"{name}_waiting"] = partial(getattr, lane, "waiting_count")
        gauges[f"{name}_waits"] = partial(getattr, lane, "waits")
        gauges[f"{name}_refused"] = partial(getattr, lane, "refusals")
    return gauges
