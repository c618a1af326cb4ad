"""A network link of limited speed between the bookies of a local cluster and their clients.

The bookies register a loopback address that differs from the address on which they listen. A
process listens on the registered address and forwards each connection to the bookie. All bookies
together send at most `rate` bytes per second. Requests to the bookies are not limited.
"""

from __future__ import annotations

import multiprocessing
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

ADDRESS = "127.0.0.2"
"""The registered address of the bookies."""

_BOOKIE_ADDRESS = "127.0.0.1"
_PIECE_SIZE_BYTES = 64 << 10


class Link:
    """Delays its callers like a link that carries `rate` bytes per second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._free_at = 0.0

    def carry(self, size_bytes: int) -> None:
        """Wait until the link has carried `size_bytes` more bytes."""
        with self._lock:
            now = time.monotonic()
            self._free_at = max(now, self._free_at) + size_bytes / self._rate
            delay = self._free_at - now
        time.sleep(delay)


@contextmanager
def metered_link(ports: Sequence[int], rate: float) -> Iterator[None]:
    """Forward connections to these ports of the bookies during the block."""
    context = multiprocessing.get_context("spawn")
    is_ready = context.Event()
    process = context.Process(target=_serve, args=(list(ports), rate, is_ready), daemon=True)
    process.start()
    try:
        if not is_ready.wait(30):
            raise TimeoutError("the metered link did not start in 30 s")
        yield
    finally:
        process.terminate()
        process.join()


def _serve(ports: list[int], rate: float, is_ready: threading.Event) -> None:
    link = Link(rate)
    servers = [socket.create_server((ADDRESS, port)) for port in ports]
    threads = [
        threading.Thread(target=_accept, args=(server, port, link))
        for server, port in zip(servers, ports, strict=True)
    ]
    for thread in threads:
        thread.start()
    is_ready.set()
    for thread in threads:
        thread.join()


def _accept(server: socket.socket, port: int, link: Link) -> None:
    while True:
        client, _ = server.accept()
        bookie = socket.create_connection((_BOOKIE_ADDRESS, port))
        for one in (client, bookie):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, target, meter in ((client, bookie, None), (bookie, client, link)):
            threading.Thread(target=_forward, args=(source, target, meter), daemon=True).start()


def _forward(source: socket.socket, target: socket.socket, link: Link | None) -> None:
    with suppress(OSError):
        while piece := source.recv(_PIECE_SIZE_BYTES):
            if link is not None:
                link.carry(len(piece))
            target.sendall(piece)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
