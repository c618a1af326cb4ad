"""The peers: good peers and bad peers."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from bookie_server.service.v2.sweeper import WAIT_SECONDS_MAX
from ledgerlog_spark.model import Code
from ledgerlog_spark.testing.bookie import MemoryLedger
from ledgerlog_spark.wire.requests import encode_batch_read, encode_read, encode_tell_lac
from ledgerlog_spark.wire.slice_requests import encode_read_slices
from tests.fixtures.bookie_process import KEY, add_frame, add_run_frame, stored_entry
from tests.fixtures.kinds import now
from tests.sim.service.pipe import Pipe

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.sim.service.world import ServiceWorld

RECOVERY = 6
HIGH_PRIORITY = 4
SIZES = (10, 200, 3_000, 20_000, 60_000)
ANSWERED_SECONDS = 20.0
"""Time limit of the answer to a request that only waits for the disk. The disk stalls for less."""
QUICK_SECONDS = 4.0
"""Time limit of the answers to reads and recovery, which do not wait for adds."""


def payload_of(ledger_id: int, entry_id: int, size: int) -> bytes:
    return (b"%d.%d." % (ledger_id, entry_id) * (size // 4 + 1))[:size]


class Request:
    """A request without an answer.

    Attributes:
        frame: The bytes of the request.
        key: The key by which its answer is found.
        check: Returns whether an answer is right.
        end: Number of bytes sent on its connection up to the end of its frame.
    """

    def __init__(self, frame: bytes, key: tuple[Any, ...], check: Callable[[Any], bool]) -> None:
        self.frame = frame
        self.key = key
        self.check = check
        self.sent_at = 0.0
        self.end = 0


class GoodPeer:
    """A peer that sends whole frames, takes its answers, and repeats requests that get BUSY.

    Attributes:
        lane: The lane of its requests: "adds", "reads" or "control".
    """

    def __init__(self, world: ServiceWorld, number: int) -> None:
        self.world = world
        self.number = number
        self.lane = world.random.choice(("adds", "reads", "control"))
        self.host = f"10.0.0.{number % 3}"
        self.ledger_id = 100 + number
        self.window = world.random.choice((1, 4, 30))
        self.left = world.random.choice((3, 20, 60))
        self.size = world.random.choice(SIZES)
        self.is_over = False
        self.out: dict[tuple[Any, ...], Request] = {}
        self.pipe: Pipe | None = None
        self._next = 0
        self._refused_at: float | None = None

    async def run(self) -> None:
        """Send all requests, with one connection after the other."""
        world = self.world
        if self.lane != "adds":
            self._store_what_is_read()
        while not (self.is_over or world.is_stopping):
            self.pipe = Pipe(world, self.host)
            self._refused_at = None
            await self._use(self.pipe)
            await asyncio.sleep(0.02)
        self.is_over = True

    def _store_what_is_read(self) -> None:
        ledger = MemoryLedger(KEY)
        self.world.storage.inner.ledgers[self.ledger_id] = ledger
        for entry_id in range(70):
            payload = payload_of(self.ledger_id, entry_id, self.size)
            ledger.entries[entry_id] = stored_entry(self.ledger_id, entry_id, payload)

    async def _use(self, pipe: Pipe) -> None:
        world = self.world
        while not pipe.is_lost:
            self._take_answers(pipe)
            if not self.left and not self.out:
                self.is_over = True
                pipe.leave()
                return
            while self.left and len(self.out) < self.window and not world.is_stopping:
                self._send(pipe)
                if self.lane == "adds" and world.random.random() < 0.1:
                    pipe.send(encode_tell_lac(self.ledger_id, self._next, KEY))
            self._check_times()
            self.world.check_lines()
            await asyncio.sleep(world.random.choice((0.001, 0.004)))
            if world.random.random() < 0.01 and not self.out:
                pipe.leave()
        await asyncio.sleep(0.1)  # bytes in the buffers of the kernels still arrive
        self._take_answers(pipe)
        # An incomplete frame does not protect a connection from being replaced. Otherwise a peer
        # that never completes a frame would keep its place.
        whole = [one.key for one in self.out.values() if one.end <= pipe.delivered_bytes]
        is_fair = not whole or world.is_stopping or not pipe.closed_by_bookie
        world.require(is_fair, f"{self} was closed with requests out: {whole}")
        self.left += len(self.out)
        self.out.clear()

    def _check_times(self) -> None:
        now = self.world.loop.time()
        limit = ANSWERED_SECONDS if self.lane == "adds" else QUICK_SECONDS
        for request in self.out.values():
            waited = now - request.sent_at
            self.world.require(waited < limit, f"{self} waits for {request.key} for {waited:.1f} s")

    def _send(self, pipe: Pipe) -> None:
        request = {"adds": self._add, "reads": self._read, "control": self._recover}[self.lane]()
        request.sent_at = self.world.loop.time()
        request.end = pipe.sent_bytes + len(request.frame)
        self.left -= 1
        self.out[request.key] = request
        pipe.send(request.frame)

    def _take_answers(self, pipe: Pipe) -> None:
        answers, pipe.answers = pipe.answers, []
        for answer in answers:
            key = key_of(answer)
            request = self.out.pop(key, None)
            self.world.require(request is not None, f"{self} did not ask for {answer.code} {key}")
            assert request is not None
            self.world.answers += 1
            if answer.code is Code.BUSY:
                self.world.refused += 1
                self.left += 1
                self._check_refusal(request)
            else:
                self.world.require(request.check(answer), f"{self} gets {answer} for {key}")

    def _check_refusal(self, request: Request) -> None:
        """Check that a read that is retried on the same connection is not refused again.

        It waits in line, because all entries of a peer have the same size.
        """
        if self.lane != "reads" or request.key[0] != "ReadAnswer":
            return
        if self._refused_at is None:
            self._refused_at = self.world.loop.time()
        is_first = request.sent_at <= self._refused_at
        self.world.require(is_first, f"{self} is refused {request.key} again")

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _add(self, flags: int = 0) -> Request:
        number, ledger_id = self._number(), self.ledger_id
        payload = payload_of(ledger_id, number, self.size)
        if self.world.random.random() < 0.5:
            frame = add_frame(ledger_id, number, payload, flags=flags)
            return Request(frame, ("AddAnswer", ledger_id, number), _is_ok)
        ids = range(number, number + (1 if self.size > 10_000 else 4))
        frame = add_run_frame(ledger_id, ids, payload, request_id=number, flags=flags)
        return Request(frame, ("AddRunAnswer", ledger_id, ids[0], number), _is_ok)

    def _read(self, flags: int = 0, fence_key: bytes | None = None) -> Request:
        number, ledger_id, entry_id = self._number(), self.ledger_id, self._next % 70
        if self.world.random.random() < 0.5:
            frame = encode_read(ledger_id, entry_id, fence_key=fence_key, flags=flags)
            key: tuple[Any, ...] = ("ReadAnswer", ledger_id, entry_id)
            if key not in self.out:
                return Request(frame, key, partial(self._is_entry, entry_id))
        size_max = self.world.random.choice((1, 5_000, 60_000))
        if fence_key is None and self.world.random.random() < 0.3:
            return self._read_slices(number, entry_id, size_max, flags)
        frame = encode_batch_read(
            ledger_id,
            entry_id,
            request_id=number,
            count_max=10,
            size_bytes_max=size_max,
            fence_key=fence_key,
            flags=flags,
        )
        key = ("BatchReadAnswer", ledger_id, entry_id, number)
        return Request(frame, key, partial(self._are_entries, entry_id))

    def _read_slices(self, number: int, entry_id: int, size_max: int, flags: int) -> Request:
        wanted = [
            (one, [(0, 33), (36 + self.size // 2, 1 + self.size // 3)])
            for one in range(entry_id, min(entry_id + 6, 70), 2)
        ]
        frame = encode_read_slices(
            self.ledger_id, wanted, request_id=number, size_bytes_max=size_max, flags=flags
        )
        key = ("SliceReadAnswer", self.ledger_id, entry_id, number)
        return Request(frame, key, partial(self._are_slices, wanted))

    def _recover(self) -> Request:
        if self.world.random.random() < 0.5:
            self._next += 100  # after all entries that are read
            return self._add(RECOVERY)
        return self._read(HIGH_PRIORITY)

    def _entry(self, entry_id: int) -> bytes:
        return stored_entry(
            self.ledger_id, entry_id, payload_of(self.ledger_id, entry_id, self.size)
        )

    def _is_entry(self, entry_id: int, answer: Any) -> bool:
        return answer.code is Code.OK and answer.entry == self._entry(entry_id)

    def _are_entries(self, entry_id: int, answer: Any) -> bool:
        entries = [bytes(entry) for entry in answer.entries]
        right = [self._entry(entry_id + place) for place in range(len(entries))]
        return answer.code is Code.OK and bool(entries) and entries == right

    def _are_slices(self, wanted: list[tuple[int, list[tuple[int, int]]]], answer: Any) -> bool:
        right = [
            b"".join(self._entry(entry_id)[at : at + size] for at, size in ranges)
            for entry_id, ranges in wanted
        ]
        slices = [bytes(one) for one in answer.slices]
        return answer.code is Code.OK and bool(slices) and slices == right[: len(slices)]

    def __repr__(self) -> str:
        return f"peer {self.number} ({self.lane})"


def _is_ok(answer: Any) -> bool:
    return answer.code is Code.OK


def key_of(answer: Any) -> tuple[Any, ...]:
    """Return the key that identifies the request of an answer."""
    name = type(answer).__name__
    if name in ("AddRunAnswer", "BatchReadAnswer", "SliceReadAnswer"):
        return (name, answer.ledger_id, answer.first_entry_id, answer.request_id)
    return (name, answer.ledger_id, answer.entry_id)


CUT_CODES = {Code.OK, Code.NO_ENTRY, Code.BAD_REQUEST, Code.BUSY}
CUT_SECONDS = 30.0
"""Time limit of the largest requests for slices. They wait until a lane is empty, and up to 40 of
them wait for each other."""
SLICES_SIZE_BYTES_MAX = 65_000
"""Maximum size of a frame, which must be within the limit of the bookie."""


def cutting_frame(random: Random, ledger_id: int) -> bytes:
    """Return a request for few bytes in many ranges. Every second request is malformed."""
    count = random.choice((1, 30, 1_000))
    ranges = max(1, (random.choice((900, 20_000, SLICES_SIZE_BYTES_MAX)) - 44 - 12 * count) // 8)
    each = [(257 + 9 * place, 1 + place % 3) for place in range(max(1, ranges // count))]
    wanted = [(entry_id, each) for entry_id in range(count)]
    size_max = random.choice((1, 2_000, 60_000))
    frame = encode_read_slices(ledger_id, wanted, request_id=count, size_bytes_max=size_max)
    body = frame[4:]
    kind = random.randrange(8)
    if kind == 0:
        body = body[: random.randrange(40, len(body))]
    elif kind == 1:
        body += bytes(random.randrange(1, 300))
    elif kind == 2:
        body = body[:28] + random.randbytes(4) + body[32:]  # a wrong count of entries
    elif kind == 3:
        body = body[:-8] + random.randbytes(8)
    return len(body).to_bytes(4, "big") + body


class BadPeer:
    """A peer that takes no answers, sends half a frame, leaves, floods, or sends invalid bytes.

    A peer that hoards requests a few large answers from its own host, so that it holds a part of a
    lane and waits for nothing itself. A peer that cuts sends the largest requests for slices, with
    small answers. Some of these requests are malformed.

    Attributes:
        closes_in_seconds: Time in which the bookie must close it, if it never ends by itself.
    """

    KINDS = ("sink", "drip", "leave", "garble", "silent", "cut")

    def __init__(self, world: ServiceWorld, number: int, kind: str | None) -> None:
        self.world = world
        self.kind = kind or world.random.choice(self.KINDS)
        self.lane = world.random.choice(("adds", "reads", "control"))
        self.host = world.random.choice(("10.0.0.1", "10.0.1.1"))
        self.ledger_id = 500 + number
        self.size = world.random.choice(SIZES)
        if self.kind == "hoard":
            self.lane = world.random.choice(("reads", "reads", "control"))
            self.host = f"10.0.2.{number}"
            self.size = SIZES[-1]
        if self.kind == "cut":
            self.lane = "reads"
        self.maker = GoodPeer(world, 400 + number)
        self.maker.size = self.size

    async def run(self) -> None:
        world, random = self.world, self.world.random
        self.maker._store_what_is_read()
        while not now(world.is_ending):
            await asyncio.sleep(random.uniform(0.001, 1.5))
            if world.is_ending:
                return
            pipe = Pipe(world, self.host)
            pipe.is_taking = self.kind not in ("sink", "hoard")
            began = world.loop.time()
            counts = (1, 2, 3) if self.kind == "hoard" else (1, 5, 40)
            frames = [self._frame() for _ in range(random.choice(counts))]
            if self.kind in ("sink", "hoard"):
                pipe.send(b"".join(frames))
            elif self.kind == "drip":
                some = frames[:2]
                pipe.send(b"".join(some)[: -random.randrange(1, min(30, len(some[-1])))])
            elif self.kind == "garble":
                pipe.send(frames[0] + bytes(random.choices(range(256), k=300)))
            elif self.kind == "cut":
                await self._cut(pipe, frames)
            elif self.kind == "leave":
                pipe.send(b"".join(frames))
                world.later(random.uniform(0, 100), pipe.leave)
            while not pipe.is_lost and not world.is_ending:
                await asyncio.sleep(0.05)
                self._check(pipe, world.loop.time() - began)
            pipe.leave()

    async def _cut(self, pipe: Pipe, frames: list[bytes]) -> None:
        """Send requests for slices. Each gets one answer on the same connection."""
        began = self.world.loop.time()
        pipe.send(b"".join(frames))
        missing = len(frames)
        ends = list(accumulate(map(len, frames)))
        while missing and not self.world.is_ending:
            await asyncio.sleep(0.02)
            answers, pipe.answers = pipe.answers, []
            missing -= len(answers)
            codes = {answer.code for answer in answers}
            self.world.require(codes <= CUT_CODES, f"requests for slices are answered {codes}")
            self.world.refused_cuts += sum(answer.code is Code.BAD_REQUEST for answer in answers)
            waited = self.world.loop.time() - began
            self.world.require(waited < CUT_SECONDS, f"{missing} cuts wait for {waited:.1f} s")
            if missing and pipe.is_lost:
                # Without a whole frame, a connection may be refused, or may lose its place. A
                # connection that waits in line for this time, and holds bytes, may be closed too.
                whole = sum(end <= pipe.delivered_bytes for end in ends)
                is_answered = whole <= len(frames) - missing
                is_fair = is_answered or waited >= WAIT_SECONDS_MAX or self.world.is_stopping
                self.world.require(is_fair, "requests for slices end their connection")
                return
        pipe.leave()

    def _frame(self) -> bytes:
        if self.kind == "cut":
            return cutting_frame(self.world.random, self.maker.ledger_id)
        make = {"adds": self.maker._add, "reads": self.maker._read}
        return make.get(self.lane, self.maker._recover)().frame

    def _check(self, pipe: Pipe, seconds: float) -> None:
        """Check that a connection that holds bytes without progress is closed in time."""
        stall = self.world.settings.stall_timeout_ms / 1_000
        first = self.world.settings.first_request_timeout_ms / 1_000
        is_stalled = self.kind in ("drip", "silent") or pipe.get_write_buffer_size() > 0
        limit = 3 * (stall + first)
        self.world.require(
            not is_stalled or seconds < limit,
            f"a peer that does not move ({self.kind}, {self.lane}) is there after {seconds:.1f} s",
        )
