"""One bookie as a process, and raw connections that add and read single entries."""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Self

from benchmarks.machine import anonymous_bytes
from ledgerlog_spark.model import DigestType
from ledgerlog_spark.wire.digests import master_key
from ledgerlog_spark.wire.entry import EntryCodec
from ledgerlog_spark.wire.requests import encode_add_head, encode_read

KEY = master_key(b"")
CODEC = EntryCodec(DigestType.CRC32C)
START_SECONDS_MAX = 120
BURST_ADDS = 200


class SingleBookie:
    """A bookie with the given settings, which runs as a process."""

    def __init__(self, directory: Path, service_uri: str, settings: Sequence[str]) -> None:
        self.directory = directory
        self._command = [
            *(sys.executable, "-m", "bookie_server"),
            *("--directory", str(directory), "--port", "0"),
            *("--bookie-id", directory.name, "--disk-usage-max", "1"),
            *("--metadata-service-uri", service_uri, *settings),
        ]
        self._process: subprocess.Popen[str] | None = None
        self.port = self.grpc_port = 0

    def start(self) -> float:
        """Start the process, and wait until it serves.

        Return the time that this took, in seconds.
        """
        began = time.perf_counter()
        with self.directory.with_suffix(".log").open("a") as log:
            process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], START_SECONDS_MAX)
        line = process.stdout.readline() if readable else ""
        seconds = time.perf_counter() - began
        self._process = process
        if not line:
            self.kill()
            raise RuntimeError(f"the bookie did not start; its log is {self.directory}.log")
        ready = json.loads(line)
        self.port, self.grpc_port = int(ready["port"]), int(ready["grpc_port"])
        return seconds

    def stop(self) -> None:
        """End the process with SIGTERM, as an operator does."""
        self._end("terminate")

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self._end("kill")

    def _end(self, way: str) -> None:
        process, self._process = self._process, None
        if process is not None:
            getattr(process, way)()
            process.wait(START_SECONDS_MAX)
            assert process.stdout is not None
            process.stdout.close()

    def anonymous_mib(self) -> float:
        """Return the anonymous resident memory of the process, in MiB."""
        assert self._process is not None
        return anonymous_bytes(self._process.pid) / (1 << 20)


def add_frame(ledger_id: int, entry_id: int, payload: bytes) -> bytes:
    """Return a frame that adds one entry."""
    (entry,) = CODEC.encode_run(
        ledger_id=ledger_id,
        first_entry_id=entry_id,
        last_add_confirmed=entry_id - 1,
        length=entry_id * len(payload),
        payloads=[payload],
    )
    stored = b"".join(entry)
    return encode_add_head(KEY, len(stored)) + stored


class RawConnection:
    """A connection that waits for the answers of its requests."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=START_SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received: BinaryIO = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._received.close()
        self._socket.close()

    def add(self, ledger_id: int, entry_id: int, payload: bytes) -> None:
        """Add one entry, and wait for the answer."""
        self._socket.sendall(add_frame(ledger_id, entry_id, payload))
        self._expect()

    def read(self, ledger_id: int, entry_id: int) -> None:
        """Read one entry, and wait for the answer."""
        self._socket.sendall(encode_read(ledger_id, entry_id))
        self._expect()

    def add_all(self, entries: Iterable[tuple[int, int]], payload: bytes) -> None:
        """Add an entry for each pair of ledger and entry id, many at a time."""
        for burst in _bursts(entries):
            self._socket.sendall(b"".join(add_frame(*ids, payload) for ids in burst))
            for _ in burst:
                self._expect()

    def _expect(self) -> None:
        size_bytes = int.from_bytes(self._received.read(4), "big")
        body = self._received.read(size_bytes)
        if body[4:8] != bytes(4):
            raise RuntimeError(f"the bookie refused a request: {body[:32].hex()}")


def _bursts(entries: Iterable[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    burst: list[tuple[int, int]] = []
    for each in entries:
        burst.append(each)
        if len(burst) == BURST_ADDS:
            yield burst
            burst = []
    if burst:
        yield burst
