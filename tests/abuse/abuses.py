"""The abuses of misbehaving peers. Each abuse continues until it is cancelled.

`python -m tests.abuse.abuses NAME PORTS GRPC_PORTS` plays one abuse until standard input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import random
import resource
import select
import socket
import sys
from typing import TYPE_CHECKING

import grpc

from ledgerlog_spark.transport import control_pb2 as pb
from ledgerlog_spark.transport import control_pb2_grpc
from ledgerlog_spark.transport.grpc.append_parts import in_parts
from ledgerlog_spark.wire.requests import encode_batch_read, encode_read
from tests.abuse.peers import Counts, again_and_again, gathered, until_closed
from tests.fixtures.bookie_process import add_frame
from tests.fixtures.raw_http2 import call_of, hello

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MEBIBYTE = 1 << 20
FRAME_BYTES = 5 * MEBIBYTE
LARGE_LEDGER = 1 << 40
"""The id of a ledger with five entries of 1 MiB on each bookie, which `prepare` writes."""

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter
_ledger_ids = itertools.count((1 << 41) + (os.getpid() << 24))


class Targets:
    """The bookies, and the counts of the peers that abuse them."""

    def __init__(self, ports: list[int], grpc_ports: list[int]) -> None:
        self.ports = ports
        self.grpc_ports = grpc_ports
        self.counts = Counts()

    def each(
        self, count: int, play: Callable[[Reader, Writer], Awaitable[None]]
    ) -> list[Awaitable[None]]:
        """Open `count` connections to each bookie."""
        return [
            again_and_again(port, play, self.counts) for port in self.ports for _ in range(count)
        ]


def prepare(ports: list[int]) -> None:
    """Write the ledger that is read by the peers that do not take their answers."""
    for port in ports:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
            for entry_id in range(5):
                peer.sendall(add_frame(LARGE_LEDGER, entry_id, bytes(MEBIBYTE - 1_024)))
                head = peer.recv(28, socket.MSG_WAITALL)
                assert head[8:12] == bytes(4), f"a bookie refused an add: {head.hex()}"


async def nothing(_targets: Targets) -> None:
    """Abuse nothing, to measure how long the client waits without any abuse."""
    await asyncio.sleep(3_600)


async def unread_batches(targets: Targets) -> None:
    """18 peers pipeline four batch reads of 5 MB each, and read nothing."""
    request = encode_batch_read(
        LARGE_LEDGER, 0, request_id=1, count_max=5, size_bytes_max=FRAME_BYTES
    )
    await asyncio.gather(
        *(_unread(port, request * 4, targets.counts) for port in targets.ports for _ in range(18))
    )


async def unread_control_reads(targets: Targets) -> None:
    """40 peers request large entries as a recovery does, and read nothing."""
    request = encode_read(LARGE_LEDGER, 3, flags=4)
    await asyncio.gather(
        *(_unread(port, request * 30, targets.counts) for port in targets.ports for _ in range(40))
    )


async def unread_replies(targets: Targets) -> None:
    """25 peers request two batches of 3 MB each from the control service, and read nothing."""
    request = pb.BatchReadRequest(
        ledger_id=LARGE_LEDGER, first_entry_id=0, count_max=5, size_bytes_max=3 * MEBIBYTE
    ).SerializeToString()
    calls = hello() + b"".join(call_of("BatchRead", request, stream) for stream in (1, 3))
    await asyncio.gather(
        *(_unread(port, calls, targets.counts) for port in targets.grpc_ports for _ in range(25))
    )


async def _unread(port: int, requests: bytes, counts: Counts) -> None:
    """One peer that takes no answers, and connects again after its connection was closed."""
    loop = asyncio.get_running_loop()
    poll = select.poll()
    while True:
        with socket.socket() as peer:
            peer.setblocking(False)
            try:
                await loop.sock_connect(peer, ("127.0.0.1", port))
                counts.connected += 1
                await loop.sock_sendall(peer, requests)
                poll.register(peer, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
                while not poll.poll(0):  # noqa: ASYNC110 -- nothing tells
                    await asyncio.sleep(0.05)
                poll.unregister(peer)
            except OSError:
                pass
            counts.closed += 1
        await asyncio.sleep(0.02)


async def half_frames(targets: Targets) -> None:
    """100 peers to each bookie begin a frame of 5 MB and never finish it; 30 send it in drops."""

    async def half(reader: Reader, writer: Writer) -> None:
        writer.write(FRAME_BYTES.to_bytes(4, "big") + bytes([2, 1, 0, 0]))
        await asyncio.sleep(0.2)
        writer.write(bytes(FRAME_BYTES // 2))
        await until_closed(reader)

    async def drops(reader: Reader, writer: Writer) -> None:
        writer.write(FRAME_BYTES.to_bytes(4, "big") + bytes([2, 1, 0, 0]))
        ended = asyncio.ensure_future(until_closed(reader))
        while not ended.done():
            writer.write(b"x")
            await asyncio.sleep(0.05)

    await gathered(targets.each(100, half) + targets.each(30, drops))


async def silence(targets: Targets) -> None:
    """1,100 peers connect to a bookie and send nothing."""

    async def silent(reader: Reader, _writer: Writer) -> None:
        await until_closed(reader)

    port = targets.ports[0]
    await gathered([again_and_again(port, silent, targets.counts) for _ in range(1_100)])


async def connections(targets: Targets) -> None:
    """1,000 peers of a bookie, each with an add every second."""

    async def small(reader: Reader, writer: Writer) -> None:
        ledger_id = next(_ledger_ids)
        for entry_id in itertools.count():
            writer.write(add_frame(ledger_id, entry_id, b"x" * 100))
            await reader.readexactly(28)
            await asyncio.sleep(1)

    port = targets.ports[0]
    await gathered([again_and_again(port, small, targets.counts) for _ in range(1_000)])


async def churn(targets: Targets) -> None:
    """Peers connect, send one request and leave, as often as they can."""

    async def once(reader: Reader, writer: Writer) -> None:
        writer.write(encode_read(LARGE_LEDGER, 99))
        await reader.readexactly(28)

    await gathered(targets.each(30, once))


async def add_flood(targets: Targets) -> None:
    """16 peers to each bookie send adds of 256 KiB as fast as they are taken."""
    payload = random.Random(1).randbytes(256 * 1_024)

    async def flood(reader: Reader, writer: Writer) -> None:
        ended = asyncio.ensure_future(until_closed(reader))
        ledger_id = next(_ledger_ids)
        frame = add_frame(ledger_id, 0, payload)
        while not ended.done():
            writer.write(frame)
            await writer.drain()

    await gathered(targets.each(16, flood))


async def small_add_flood(targets: Targets) -> None:
    """16 peers to each bookie send small adds in bursts and take no answers for a while."""

    async def flood(reader: Reader, writer: Writer) -> None:
        ledger_id = next(_ledger_ids)
        burst = b"".join(add_frame(ledger_id, entry_id, b"x" * 50) for entry_id in range(2_000))
        while True:
            writer.write(burst)
            await asyncio.sleep(0.3)
            await reader.readexactly(2_000 * 28)

    await gathered(targets.each(16, flood))


async def read_flood(targets: Targets) -> None:
    """24 peers to each bookie read as fast as they can, and take their answers."""
    requests = encode_read(LARGE_LEDGER, 2) + encode_read(LARGE_LEDGER, -1) + encode_read(7, 7)

    async def flood(reader: Reader, writer: Writer) -> None:
        ended = asyncio.ensure_future(until_closed(reader))
        while not ended.done():
            writer.write(requests)
            await asyncio.sleep(0.05)

    await gathered(targets.each(24, flood))


async def garbage(targets: Targets) -> None:
    """Frames of random bytes, unknown operations, and lengths that no frame can have."""
    rng = random.Random(2)

    async def bad(reader: Reader, writer: Writer) -> None:
        for _ in range(20):
            match rng.randrange(4):
                case 0:
                    body = rng.randbytes(rng.randrange(4, 5_000))
                case 1:
                    body = bytes([2, rng.randrange(256), 0, rng.randrange(8)]) + rng.randbytes(60)
                case 2:
                    body = bytes([0x0A, 0x06, 0x08, 0x03, 0x10, 0x02, 0x18, 0x07]) + bytes(40)
                case _:
                    writer.write(rng.randbytes(4))
                    continue
            writer.write(len(body).to_bytes(4, "big") + body)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                await until_closed(reader)

    await gathered(targets.each(30, bad))


async def ledgers(targets: Targets) -> None:
    """50,000 ledgers with an entry each on each bookie, as fast as they are taken."""

    async def many(reader: Reader, writer: Writer) -> None:
        while True:
            frames = [add_frame(next(_ledger_ids), 0, b"x" * 40) for _ in range(100)]
            writer.write(b"".join(frames))
            await reader.readexactly(28 * len(frames))
            made[0] += len(frames)
            if made[0] >= 50_000 * len(targets.ports):
                await asyncio.sleep(3_600)

    made = [0]
    await gathered(targets.each(4, many))


async def watches(targets: Targets) -> None:
    """4,000 watches of each bookie over 16 connections, and calls that never end their request."""

    async def watch(stub: control_pb2_grpc.BookieStub) -> None:
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for _ in stub.WatchLac(pb.WatchLacRequest(ledger_id=7, previous=-1)):
                    pass
            targets.counts.closed += 1
            await asyncio.sleep(0.5)

    async def append(stub: control_pb2_grpc.BookieStub) -> None:
        call = stub.Append()
        with contextlib.suppress(grpc.aio.AioRpcError):
            await call.wait_for_connection()
            await asyncio.sleep(3_600)

    options = (("grpc.use_local_subchannel_pool", 1),)
    plays: list[Awaitable[None]] = []
    for port in targets.grpc_ports:
        for _ in range(16):
            stub = control_pb2_grpc.BookieStub(
                grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)
            )
            plays += [watch(stub) for _ in range(250)]
            plays += [append(stub) for _ in range(50)]
    await asyncio.gather(*plays)


async def large_messages(targets: Targets) -> None:
    """50 calls to a bookie that bring a message of 5 MB, and 50 that bring half of one in parts."""
    whole = pb.AppendRequest(
        ledger_id=next(_ledger_ids), entry_ids=[0], lengths=[FRAME_BYTES], body=bytes(FRAME_BYTES)
    )

    async def large(stub: control_pb2_grpc.BookieStub) -> None:
        while True:
            call = stub.Append()
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await call.write(whole)
                await call.wait_for_connection()
                await call.read()
            targets.counts.closed += 1
            await asyncio.sleep(0.5)

    async def half(stub: control_pb2_grpc.BookieStub) -> None:
        while True:
            call = stub.Append()
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                for part in itertools.islice(in_parts(whole), 50):
                    await call.write(part)
                await call.read()
            targets.counts.closed += 1
            await asyncio.sleep(0.5)

    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1))
    plays: list[Awaitable[None]] = []
    for _ in range(5):
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{targets.grpc_ports[0]}", options=options)
        stub = control_pb2_grpc.BookieStub(channel)
        plays += [play(stub) for play in (large, half) for _ in range(10)]
    await asyncio.gather(*plays)


ABUSES: dict[str, Callable[[Targets], Awaitable[None]]] = {
    play.__name__: play
    for play in (
        nothing,
        unread_batches,
        unread_control_reads,
        unread_replies,
        half_frames,
        silence,
        connections,
        churn,
        add_flood,
        small_add_flood,
        read_flood,
        garbage,
        ledgers,
        watches,
        large_messages,
    )
}


async def _play(name: str, targets: Targets) -> None:
    loop = asyncio.get_running_loop()
    played = asyncio.ensure_future(ABUSES[name](targets))
    ended = loop.run_in_executor(None, sys.stdin.read)
    await asyncio.wait([played, ended], return_when=asyncio.FIRST_COMPLETED)
    if played.done():
        await played
    played.cancel()
    counts = targets.counts
    sys.stdout.write(f"{counts.connected} connections made, {counts.closed} closed\n")
    sys.stdout.flush()


def main() -> None:
    """Run the abuse that the command line names."""
    os.nice(10)  # the abuse must keep the bookies busy, not their CPUs
    logging.disable(logging.CRITICAL)  # of asyncio, about sockets that the bookie closed
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16_384), hard))
    name, ports, grpc_ports = sys.argv[1:]
    targets = Targets([int(p) for p in ports.split(",")], [int(p) for p in grpc_ports.split(",")])
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_play(name, targets))
    os._exit(0)  # sockets by the thousand, and threads that read standard input


if __name__ == "__main__":
    main()
