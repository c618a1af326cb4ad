"""What the v2 connections of one bookie share: storage, bounds, counters, receive memory."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from bookie_server.cpus import LoneStay
from bookie_server.service.logging import get_logger
from ledgerlog_spark.wire.frames import ChunkPool

if TYPE_CHECKING:
    from bookie_server.config import BookieSettings
    from bookie_server.service.in_flight import InFlight
    from bookie_server.service.metrics import ServiceCounters
    from bookie_server.service.storage_port import EntryStorage
    from bookie_server.service.v2_connection import V2Connection

RECEIVE_POOL_BYTES: Final = 96 << 20
BATCH_COUNT_MAX: Final = 65_536

_log = get_logger("v2")


class V2Shared:
    """Made once, on the event loop that serves the connections.

    Attributes:
        connection_bytes_max: Of one connection's requests and answers, before it reads no further.
        connection_bytes_resume: Below which it reads on.
        unsent_bytes_max: Of answers that one peer does not take, before it loses the connection.
    """

    __slots__ = (
        "batch_count_max",
        "batch_size_bytes_max",
        "connection_bytes_max",
        "connection_bytes_resume",
        "counters",
        "cpu",
        "frame_size_bytes_max",
        "in_flight",
        "last",
        "last_but_one",
        "loop",
        "receive_pool",
        "storage",
        "unsent_bytes_max",
    )

    def __init__(
        self,
        settings: BookieSettings,
        storage: EntryStorage,
        in_flight: InFlight,
        counters: ServiceCounters,
    ) -> None:
        self.storage = storage
        self.in_flight = in_flight
        self.counters = counters
        self.loop = asyncio.get_running_loop()
        self.frame_size_bytes_max = settings.frame_size_bytes_max
        self.batch_size_bytes_max = settings.frame_size_bytes_max
        self.batch_count_max = BATCH_COUNT_MAX
        self.connection_bytes_max = settings.in_flight_bytes_per_connection_max
        self.connection_bytes_resume = self.connection_bytes_max - self.connection_bytes_max // 4
        self.unsent_bytes_max = 2 * self.connection_bytes_max
        self.cpu = LoneStay(settings.cpu, partial(_tell_refusal, settings.cpu))
        self.receive_pool = ChunkPool(RECEIVE_POOL_BYTES)
        self.last: V2Connection | None = None
        self.last_but_one: V2Connection | None = None

    def is_alone(self, connection: V2Connection) -> bool:
        """Whether the two receptions before this one were this connection's, too.

        Adds of peers that are busy at the same time are to be synced together. Each of them is
        heard once in a turn of the loop, so one that ends a turn and begins the next is heard
        twice in a row, and not three times.
        """
        before_last, before = self.last_but_one, self.last
        self.last_but_one, self.last = before, connection
        return before is connection and before_last is connection

    def forget(self, connection: V2Connection) -> None:
        """A connection is gone."""
        if connection in (self.last, self.last_but_one):
            self.last = self.last_but_one = None


def _tell_refusal(cpu: int | None, error: OSError) -> None:
    _log.warning("cpu_not_kept", cpu=cpu, reason=str(error))
