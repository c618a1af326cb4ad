"""A bare tail: measures the time in which minimal Python processes deliver a record.

The bare path has as many processes, threads and messages as the real path, and each bookie syncs
several messages together. But the bare path has no ledgers, checksums, ordering, metadata or flow
control. A message of 300 bytes goes from the caller's thread to the writer's loop, and from there
to three processes. Each process writes and syncs the message on a thread of its own, and answers.
After the second answer, the writer notifies one of the three processes. This process sends the
message to the reader's loop, which passes it to a waiting thread.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from queue import SimpleQueue
from typing import ClassVar

from ledgerlog_spark.client.blocking.loop_thread import LoopThread

SIZE_BYTES = 300
BLOCK_SIZE_BYTES = 512
FILE_SIZE_BYTES = 64 << 20
BOOKIES, ACK_QUORUM = 3, 2
ADD, TELL, WATCH = b"A", b"T", b"W"
END = b"end".ljust(20)


def message(kind: bytes, stamp: bytes) -> bytes:
    """Return a message: its kind, 20 bytes with the time at which it was sent, and padding."""
    return (kind + stamp).ljust(SIZE_BYTES)


class Peer(asyncio.Protocol):
    """Splits the received bytes into messages."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= SIZE_BYTES:
            found, self._received = self._received[:SIZE_BYTES], self._received[SIZE_BYTES:]
            self.on_message(found)

    def on_message(self, found: bytes) -> None:
        """Handle a message. Subclasses override this method."""
        raise AssertionError(found)


class BookiePeer(Peer):
    """A bookie. It passes adds to the thread that writes, and other messages to watching peers."""

    to_disk: ClassVar[SimpleQueue[tuple[BookiePeer, bytes]]] = SimpleQueue()
    watching: ClassVar[set[BookiePeer]] = set()

    def on_message(self, found: bytes) -> None:
        if found.startswith(ADD):
            self.to_disk.put((self, found))
            return
        if found.startswith(WATCH):
            self.watching.add(self)
        for peer in self.watching:
            peer.transport.write(found)

    def connection_lost(self, exc: Exception | None) -> None:
        self.watching.discard(self)


class WriterPeer(Peer):
    """The writer. It notifies the first bookie when an ack quorum has answered."""

    peers: ClassVar[list[WriterPeer]] = []
    answers: ClassVar[Counter[bytes]] = Counter()

    def on_message(self, found: bytes) -> None:
        self.answers[found] += 1
        if self.answers[found] == ACK_QUORUM:
            self.peers[0].transport.write(TELL + found[1:])
        elif self.answers[found] == BOOKIES:
            del self.answers[found]


class ReaderPeer(Peer):
    """The reader. It passes each message to the thread that waits."""

    came: ClassVar[SimpleQueue[bytes]] = SimpleQueue()

    def on_message(self, found: bytes) -> None:
        self.came.put(found)


def run_bookie(path: Path) -> None:
    """Print the port, then serve until killed. The file at `path` already has its full size."""
    loop = LoopThread()
    descriptor = os.open(path, os.O_RDWR)

    async def serve() -> int:
        server = await loop.loop.create_server(BookiePeer, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    print(loop.call(serve()), flush=True)
    at = 0
    while True:
        group = [BookiePeer.to_disk.get()]
        while not BookiePeer.to_disk.empty():
            group.append(BookiePeer.to_disk.get())
        data = b"".join(found.ljust(BLOCK_SIZE_BYTES) for _, found in group)
        os.pwrite(descriptor, data, at)
        os.fdatasync(descriptor)
        at = (at + len(data)) % (FILE_SIZE_BYTES // 2)
        loop.loop.call_soon_threadsafe(_answer, group)


def _answer(group: list[tuple[BookiePeer, bytes]]) -> None:
    for peer, found in group:
        peer.transport.write(found)


def run_reader(port: int) -> None:
    """Print `ready` when watching begins, and at the end the latency of each message, in ns."""
    loop = LoopThread()

    async def watch() -> None:
        transport, _ = await loop.loop.create_connection(ReaderPeer, "127.0.0.1", port)
        transport.write(message(WATCH, b""))

    loop.call(watch())
    ReaderPeer.came.get()
    print("ready", flush=True)
    taken = []
    while (stamp := ReaderPeer.came.get()[1:21]) != END:
        taken.append(time.monotonic_ns() - int(stamp))
    print(json.dumps(taken), flush=True)


def latencies_ms(directory: Path, rate: int, seconds: float) -> list[float]:
    """Return the latencies of a round with `rate` messages/s, except the first 10 %, in ms."""
    paths = [directory / f"bare-{number}" for number in range(BOOKIES)]
    for path in paths:
        path.write_bytes(b"\1" * FILE_SIZE_BYTES)
    processes = [_started("bookie", path) for path in paths]
    loop = LoopThread()
    try:
        ports = [int(_line_of(bookie)) for bookie in processes]
        reader = _started("reader", ports[0])
        processes.append(reader)
        assert _line_of(reader) == "ready\n"
        found = _sent(loop, ports, reader, rate, seconds)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        WriterPeer.peers.clear()
        loop.stop()
        for path in paths:
            path.unlink()
    return [taken / 1e6 for taken in found[len(found) // 10 :]]


def _sent(
    loop: LoopThread, ports: list[int], reader: subprocess.Popen[str], rate: int, seconds: float
) -> list[int]:
    async def connect() -> None:
        for port in ports:
            _, peer = await loop.loop.create_connection(WriterPeer, "127.0.0.1", port)
            WriterPeer.peers.append(peer)

    def add(found: bytes) -> None:
        for peer in WriterPeer.peers:
            peer.transport.write(found)

    loop.call(connect())
    begun, sent = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < seconds:
        while sent < passed * rate:
            stamp = b"%020d" % time.monotonic_ns()
            loop.loop.call_soon_threadsafe(add, message(ADD, stamp))
            sent += 1
        time.sleep(max(0.0, sent / rate - (time.perf_counter() - begun)))
    loop.loop.call_soon_threadsafe(add, message(ADD, END))
    return list(json.loads(_line_of(reader)))


def _started(role: str, argument: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.bare_tail", role, str(argument)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


if __name__ == "__main__":
    if sys.argv[1] == "bookie":
        run_bookie(Path(sys.argv[2]))
    else:
        run_reader(int(sys.argv[2]))
