"""An HTTP server with few threads for metrics, administrators and the status page.

At most CONNECTIONS_MAX connections are open. A connection may send one request of at most
REQUEST_BYTES_MAX, and is closed CONNECTION_SECONDS_MAX seconds after its start. A connection that
exceeds one of these limits is closed.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.client import LineTooLong
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, BinaryIO, Final, cast
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import WSGIApplication

from bookie_server.service.port_claim import not_available, port_in_use

CONNECTIONS_MAX: Final = 8
REQUEST_BYTES_MAX: Final = 16_384
CONNECTION_SECONDS_MAX: Final = 5.0
LOOK_SECONDS: Final = 0.2


class AdminServer:
    """The metrics port of one bookie. Each request runs `application` in a thread of its own."""

    def __init__(
        self,
        address: str,
        port: int,
        application: WSGIApplication,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to serve.

        Raises:
            PortInUseError: Another process uses the port.
            StartupError: The port cannot be bound for another reason.
        """
        try:
            self._server = _BoundedServer(address, port, clock)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise port_in_use(address, port, "metrics_port") from None
            raise not_available(address, port, "metrics_port", error) from None
        self._server.set_app(application)
        self.port = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(LOOK_SECONDS,), name="admin", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving, and close open connections."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _BoundedServer(ThreadingMixIn, WSGIServer):
    """Runs a thread for each connection, at most CONNECTIONS_MAX at a time."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: str, port: int, clock: Callable[[], float]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._clock = clock
        self._lock = threading.Lock()
        self._until: dict[socket.socket, float] = {}
        super().__init__((address, port), _Handler)

    def server_bind(self) -> None:
        """Bind, and use the address as the server's name, to avoid the lookup of a host name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether a new connection is allowed. If not, the base class closes it."""
        del client_address
        with self._lock:
            if len(self._until) >= CONNECTIONS_MAX:
                return False
            self._until[request] = self._clock() + CONNECTION_SECONDS_MAX
            return True

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._until.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Close overdue connections. The server calls this at least every LOOK_SECONDS."""
        self._end(self._clock())

    def server_close(self) -> None:
        super().server_close()
        self._end(float("inf"))

    def _end(self, now: float) -> None:
        with self._lock:
            for request, until in self._until.items():
                if now >= until:
                    with contextlib.suppress(OSError):  # the connection may be closed already
                        request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing, because a peer may disconnect at any time."""


class _Handler(WSGIRequestHandler):
    """Reads one request of one connection, up to REQUEST_BYTES_MAX.

    If the bytes of a request end early, Python's server treats them as a whole head. This class
    drops a request with an incomplete head, because the missing part may change the meaning of the
    request.
    """

    def setup(self) -> None:
        super().setup()
        self.rfile = cast("BinaryIO", _FirstBytes(self.rfile))  # type: ignore[assignment]

    def handle(self) -> None:
        try:
            super().handle()
        except LineTooLong:
            self.requestline = self.request_version = self.command = ""
            self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base's name
        """Log nothing."""


class _FirstBytes:
    """The first REQUEST_BYTES_MAX bytes of a file. Reading a line that is cut off is an error."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._left_bytes = REQUEST_BYTES_MAX

    def readline(self, size_bytes: int) -> bytes:
        line: bytes = self._file.readline(min(size_bytes, self._left_bytes))
        self._left_bytes -= len(line)
        if not line.endswith(b"\n"):
            if not self._left_bytes:
                raise LineTooLong("head of the request")
            raise ConnectionAbortedError("the peer has closed the connection within the head")
        return line

    def read(self, size_bytes: int) -> bytes:
        data: bytes = self._file.read(min(size_bytes, self._left_bytes))
        self._left_bytes -= len(data)
        return data

    def close(self) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)
