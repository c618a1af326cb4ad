"""The limits of this machine, which are measured in the same run as the figures."""

from __future__ import annotations

import os
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path


def median(values: list[float]) -> float:
    """Return the median of several rounds."""
    return statistics.median(values)


def disk_rate(
    directory: Path, *, size_bytes: int, writers: int = 3, seconds: float = 1.5
) -> tuple[float, float]:
    """Return bytes/s of all `writers` together, and the median ms of one write with fdatasync.

    Each writer overwrites a file of its own, whose blocks were all written before the measurement.
    A bookie writes its entry-log files in the same manner.
    """
    latencies: list[float] = []
    written = [0] * writers
    started = threading.Barrier(writers + 1)
    span = max(64 << 20, size_bytes * 8)

    def write(number: int) -> None:
        block = os.urandom(size_bytes)
        descriptor, path = tempfile.mkstemp(dir=directory)
        try:
            os.posix_fallocate(descriptor, 0, span)
            for at in range(0, span, 4 << 20):
                os.pwrite(descriptor, b"\1" * (4 << 20), at)
            os.fdatasync(descriptor)
            started.wait()
            end, at = time.perf_counter() + seconds, 0
            while (now := time.perf_counter()) < end:
                os.pwrite(descriptor, block, at)
                os.fdatasync(descriptor)
                latencies.append((time.perf_counter() - now) * 1e3)
                written[number] += size_bytes
                at = (at + size_bytes) % (span - size_bytes)
        finally:
            os.close(descriptor)
            Path(path).unlink()

    threads = [threading.Thread(target=write, args=(n,)) for n in range(writers)]
    for thread in threads:
        thread.start()
    started.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    return sum(written) / (time.perf_counter() - begun), median(latencies)


def echo_rate(*, size_bytes: int, seconds: float = 1.0, window: int = 16) -> tuple[float, float]:
    """Return messages/s, and ms of a round trip, on a raw loopback socket.

    Each message has `size_bytes`, and each answer has 28 bytes.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = bytearray(1 << 20)
        received, answered = 0, 0
        with peer:
            while count := peer.recv_into(buffer):
                received += count
                due = received // size_bytes - answered
                if due:
                    peer.sendall(b"\0" * (28 * due))
                    answered += due

    threading.Thread(target=serve, daemon=True).start()
    with socket.create_connection(listener.getsockname()) as mine:
        mine.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        message = b"\0" * size_bytes
        trips = []
        for _ in range(200):
            before = time.perf_counter()
            mine.sendall(message)
            _receive(mine, 28)
            trips.append((time.perf_counter() - before) * 1e3)
        done, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            for _ in range(window):
                mine.sendall(message)
            _receive(mine, 28 * window)
            done += window
        rate = done / (time.perf_counter() - begun)
    listener.close()
    return rate, median(trips)


def _receive(peer: socket.socket, count: int) -> None:
    while count:
        count -= len(peer.recv(count))


def device_bytes(pid: int) -> int:
    """Return the kernel's count of the bytes that it sent to storage for a process.

    The kernel counts whole folios. A write to part of a cached folio counts as the whole folio.
    """
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    raise RuntimeError(f"no write_bytes for process {pid}")


def disk_bytes(directory: Path) -> int:
    """Return the bytes written to the block device of a directory, by the device's own counter."""
    device = directory.stat().st_dev
    counters = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text()
    return int(counters.split()[6]) * 512


def anonymous_bytes(pid: int) -> int:
    """Return the anonymous resident memory of a process, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no RssAnon for process {pid}")


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process and of its ended children, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(x) for x in fields[11:15]) / os.sysconf("SC_CLK_TCK")
