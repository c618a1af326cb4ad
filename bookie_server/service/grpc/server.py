"""Serves a bookie's gRPC port, which offers the bookie's service, health and reflection."""

from __future__ import annotations

from typing import Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from bookie_server.config import BookieSettings
from bookie_server.descriptors import CALLERS_MAX
from bookie_server.service.grpc.calls import CallBounds, FairSlots
from bookie_server.service.grpc.service import BookieServicer
from bookie_server.service.port_claim import port_in_use
from ledgerlog_spark.transport import control_pb2_grpc
from ledgerlog_spark.transport.grpc.append_parts import REQUEST_SIZE_BYTES_MAX

SERVICE_NAME: Final = "ledgerlog.v1.Bookie"
MESSAGE_OVERHEAD_BYTES: Final = 65_536  # size of a reply without its entries or ranges
STREAMS_PER_CONNECTION_MAX: Final = 256
OTHER_CALLS_MAX: Final = 512  # maximum number of calls that are not watches
RECEIVING_CALLS_MAX: Final = 512
"""Maximum number of calls that may still receive a request. A call with a single request counts
only until the request is complete."""
PENDING_CALLS_MAX: Final = 1_024
"""Maximum number of calls that the library has accepted, but not yet passed to the event loop."""

LOOKAHEAD_BYTES: Final = 16_384
"""Maximum number of bytes that a client may send ahead, for each stream and each connection."""
METADATA_SIZE_BYTES_MAX: Final = 16_384
CONNECTION_IDLE_MS_MAX: Final = 300_000
"""Time after which a connection without calls is closed. The client can then open a new
connection."""
HANDSHAKE_MS_MAX: Final = 10_000  # maximum time for the HTTP/2 handshake of a connection
PING_INTERVAL_MS_MIN: Final = 5_000
"""Minimum time between two pings of a client. If a client pings more often, its connection is
closed. Clients with watches ping less often."""


class GrpcServer:
    """The control plane of one bookie."""

    def __init__(
        self,
        settings: BookieSettings,
        servicer: BookieServicer,
        connections_max: int = CALLERS_MAX,
    ) -> None:
        self._settings = settings
        self._servicer = servicer
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self.call_slots = FairSlots(settings.watches_max + OTHER_CALLS_MAX)
        self.receiving_slots = FairSlots(RECEIVING_CALLS_MAX)
        message_size_bytes_max = settings.frame_size_bytes_max + MESSAGE_OVERHEAD_BYTES
        self._server = grpc.aio.server(
            interceptors=(
                CallBounds(self.call_slots, self.receiving_slots, servicer.stuck_calls.end),
            ),
            options=(
                ("grpc.max_receive_message_length", REQUEST_SIZE_BYTES_MAX),
                ("grpc.max_send_message_length", message_size_bytes_max),
                ("grpc.server.max_pending_requests_hard_limit", PENDING_CALLS_MAX),
                ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION_MAX),
                ("grpc.max_metadata_size", METADATA_SIZE_BYTES_MAX),
                ("grpc.max_allowed_incoming_connections", connections_max),
                ("grpc.max_connection_idle_ms", CONNECTION_IDLE_MS_MAX),
                ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS_MAX),
                ("grpc.http2.lookahead_bytes", LOOKAHEAD_BYTES),
                ("grpc.http2.bdp_probe", 0),
                ("grpc.so_reuseport", 0),
                ("grpc.http2.min_ping_interval_without_data_ms", PING_INTERVAL_MS_MIN),
            ),
        )

    async def start(self) -> int:
        """Begin to serve, and return the port."""
        control_pb2_grpc.add_BookieServicer_to_server(self._servicer, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
        address, port = self._settings.bind_address, self._settings.grpc_port
        host = f"[{address}]" if ":" in address else address
        try:
            port = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError:
            raise port_in_use(address, port, "grpc_port") from None
        self._servicer.serve_on(port)
        await self._server.start()
        await self._announce(health_pb2.HealthCheckResponse.SERVING)
        return port

    async def stop(self, drain_timeout_ms: int) -> None:
        """Refuse new calls, wait at most this time for open calls, then cancel these calls."""
        await self._announce(health_pb2.HealthCheckResponse.NOT_SERVING)
        self._servicer.end_streams()
        await self._server.stop(drain_timeout_ms / 1_000)

    async def _announce(self, status: int) -> None:
        for name in ("", SERVICE_NAME):
            await self._health.set(name, status)
