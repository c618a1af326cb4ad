"""A bookie that answers late, out of order, wrongly, partly, with invalid bytes, or not at all."""

from __future__ import annotations

import asyncio
from struct import pack
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import BookieUnavailableError
from ledgerlog_spark.model import BookieInfo, Code
from ledgerlog_spark.wire import answers
from ledgerlog_spark.wire.opcodes import Opcode
from ledgerlog_spark.wire.requests import (
    AddRequest,
    AddRunRequest,
    BatchReadRequest,
    ReadRequest,
    RefusedRequest,
    TellLacRequest,
)
from ledgerlog_spark.wire.slice_requests import SliceReadRequest
from tests.sim.transport.wire import HANGS_SECONDS, Answer

if TYPE_CHECKING:
    from tests.sim.transport.wire import Frame
    from tests.sim.transport.world import TransportWorld

ANSWER_MS_MAX = 8
CONNECT_SECONDS = 0.4
RECONNECT_MS_MAX = 160
HEALS_SECONDS = CONNECT_SECONDS + RECONNECT_MS_MAX / 1e3 + 0.1
"""Maximum time from the end of a fault until requests succeed again."""

SLOW_MS_MAX = 700
LATE_SECONDS_MIN = 0.16
"""Minimum delay of a late answer, after which some requests have timed out."""

DOORS = ("refuses", "refuses", "hangs", "slow", "resets")
LOOKUPS = ("unknown", "hangs", "slow", "nonsense", "port")
_CODES = {
    "add": (Code.READ_ONLY, Code.FENCED, Code.IO_ERROR, Code.BUSY, Code.UNAUTHORIZED),
    "entry": (Code.READ_ONLY, Code.FENCED, Code.IO_ERROR, Code.BUSY, Code.BAD_REQUEST),
    "read": (Code.NO_ENTRY, Code.NO_LEDGER, Code.IO_ERROR, Code.BUSY, Code.UNAUTHORIZED),
}
UNKNOWN_ENTRY = 1 << 40


class Bookie:
    """One bookie.

    Attributes:
        life: Number of its process. A process answers only its own requests.
        door: The handling of new connections: "open", or one of DOORS.
        lookup: The result of look-ups: "found", or one of LOOKUPS.
        takes_runs: Whether it supports ADD_RUN. `says_runs` is what its registration lists.
        slow_lanes: The lanes in which answers take up to SLOW_MS_MAX.
        calm_at: Time in seconds from which on requests to it are quick again.
    """

    def __init__(self, world: TransportWorld, name: str) -> None:
        random = world.random
        self.world = world
        self.name = name
        self.life = 0
        self.door = "open"
        self.lookup = "found"
        self.takes_runs = random.random() < 0.6
        self.says_runs = self.takes_runs or random.random() < 0.4
        self.refuses_silently = random.random() < 0.3
        self.takes_lacs = random.random() < 0.7
        self.says_lacs = self.takes_lacs or random.random() < 0.5
        self.slow_lanes: set[str] = set()
        self.refusal_chance = random.choice((0.0, 0.05, 0.3))
        self.calm_at = 0.0
        self._serial = 0

    @property
    def info(self) -> BookieInfo:
        operations = ["ADD_RUN/1"] * self.says_runs + ["TELL_LAC/1"] * self.says_lacs
        operations.append("READ_SLICES/1")
        ports = {"port": 70_000, "nonsense": -5}
        return BookieInfo(
            self.name, self.name, ports.get(self.lookup, 3181), None,
            {"ledgerlog.ops": ",".join(operations)},
        )  # fmt: skip

    async def let_in(self, port: int) -> None:
        """Return when there is a connection.

        Raises:
            OSError: There is none.
            OverflowError: There is no such port.
        """
        if not 0 < port < 1 << 16:
            raise OverflowError("port must be 0-65535.")
        await asyncio.sleep(self.world.random.uniform(0.0001, 0.003))
        if self.door == "refuses":
            raise ConnectionRefusedError
        if self.door == "hangs":
            await asyncio.sleep(HANGS_SECONDS)
        if self.door == "slow":
            await asyncio.sleep(self.world.random.uniform(0.05, 0.6))

    async def resolve(self) -> BookieInfo:
        random, sleep = self.world.random, asyncio.sleep
        await sleep(random.uniform(0, 0.004))
        if self.lookup == "unknown":
            raise BookieUnavailableError(f"{self.name} is not registered", bookie_id=self.name)
        if self.lookup == "hangs":
            await sleep(HANGS_SECONDS)
        if self.lookup == "slow":
            await sleep(random.uniform(0.05, 0.5))
        return self.info

    def disturb(self, until: float) -> None:
        """Record that requests to it may be slow or fail until some time after `until`."""
        self.calm_at = max(self.calm_at, until + HEALS_SECONDS)

    def restart(self) -> None:
        """Restart, perhaps as another version. All connections are reset."""
        random = self.world.random
        self.life += 1
        was = self.takes_runs
        if random.random() < 0.5:
            self.takes_runs = not was
            self.says_runs = self.takes_runs or random.random() < 0.3
        for line in self.world.lines_of(self.name):
            line.reset()

    def downgrade(self) -> None:
        """Become a version without ADD_RUN, at the same address. It resets at the next ADD_RUN."""
        self.takes_runs = self.says_runs = False
        self.refuses_silently = True

    def arrived(self, frame: Frame) -> None:
        """Handle a complete request."""
        world, line, request = self.world, frame.line, frame.request
        world.events += 1
        if isinstance(request, AddRunRequest) and not self.takes_runs:
            self._refuse_run(frame, request)
            return
        if isinstance(request, TellLacRequest):
            if not self.takes_lacs:
                refused = RefusedRequest(
                    request.version, Opcode.TELL_LAC, request.ledger_id,
                    request.last_add_confirmed, None, Code.BAD_REQUEST,
                )  # fmt: skip
                line.send_back(answers.encode_refusal(refused), Answer(frame, Code.BAD_REQUEST))
            return
        if world.random.random() < 0.012:
            world.fault("late answers")
            world.judge.slowed(frame)
            line.late.append(frame)
            return
        delay_ms = world.random.uniform(0, ANSWER_MS_MAX)
        if frame.line.lane.name in self.slow_lanes and world.is_faulty:
            delay_ms = world.random.uniform(0, SLOW_MS_MAX)
            world.judge.slowed(frame)
        life = self.life
        world.later(delay_ms, lambda: self._answer(frame) if self.life == life else None)

    def _refuse_run(self, frame: Frame, request: AddRunRequest) -> None:
        line = frame.line
        if self.refuses_silently and not self.says_runs:
            line.world.judge.lost(line, over_a_run=True)
            line.end(ConnectionResetError())
            return
        number = None if self.world.random.random() < 0.7 else request.request_id
        refused = RefusedRequest(
            request.version, Opcode.ADD_RUN, request.ledger_id, request.entry_ids[0], number,
            Code.BAD_REQUEST,
        )  # fmt: skip
        line.send_back(answers.encode_refusal(refused), Answer(frame, Code.BAD_REQUEST))

    def _answer(self, frame: Frame) -> None:
        world, line = self.world, frame.line
        if line.is_over:
            return
        if world.happens(0.008):
            world.fault("nonsense")
            line.lane.disturb(world.loop.time())
            line.send_back(self._nonsense(frame), Answer(None))
            return
        answer, data = self._encoded(frame)
        if world.happens(0.004):
            world.fault("half answers")
            line.lane.disturb(world.loop.time() + HANGS_SECONDS)
            world.judge.slowed(frame)
            line.send_back(data[: world.random.randrange(1, len(data))], None)
            world.later(world.random.uniform(1, 900), line.reset)
            return
        line.send_back(data, answer)
        is_long_ago = bool(line.late) and world.loop.time() - line.late[0].at > LATE_SECONDS_MIN
        if is_long_ago and world.random.random() < 0.5:
            answer, data = self._encoded(line.late.pop(0))
            line.send_back(data, answer)

    def _encoded(self, frame: Frame) -> tuple[Answer, bytes]:
        request, random = frame.request, self.world.random
        self._serial += 1
        is_refused = random.random() < self.refusal_chance

        def code_of(kind: str) -> Code:
            return random.choice(_CODES[kind]) if is_refused else Code.OK

        match request:
            case AddRunRequest():
                code = code_of("add")
                data = answers.encode_add_run_answer(
                    code, request.ledger_id, request.entry_ids[0], request.request_id
                )
                return Answer(frame, code), data
            case AddRequest():
                code = code_of("entry")
                data = answers.encode_add_answer(code, request.ledger_id, request.entry_id)
                return Answer(frame, code), data
            case ReadRequest():
                code = code_of("read")
                entry = self._entry(request.ledger_id, request.entry_id) if code is Code.OK else b""
                ids = request.ledger_id, request.entry_id
                data = answers.encode_read_answer_head(code, *ids, len(entry)) + entry
                return Answer(frame, code, entry if code is Code.OK else None), data
            case BatchReadRequest():
                code = code_of("read")
                first, count = request.first_entry_id, random.randint(1, request.count_max)
                is_even = random.random() < 0.5
                found = [
                    self._entry(request.ledger_id, first + place, is_even=is_even)
                    for place in range(count if code is Code.OK else 0)
                ]
                buffers = answers.encode_batch_read_answer(
                    code, request.ledger_id, first, request.request_id, found
                )
                return Answer(frame, code, tuple(found)), b"".join(buffers)
            case SliceReadRequest():
                code = code_of("read")
                place = request.ledger_id, request.entries[0][0], request.request_id
                count = random.randint(1, len(request.entries)) if code is Code.OK else 0
                parts = [
                    self._entry(request.ledger_id, entry_id)[:size]
                    for entry_id, ((_, size), *_) in request.entries[:count]
                ]
                buffers = answers.encode_batch_read_answer(
                    code, *place, parts, opcode=Opcode.READ_SLICES
                )
                return Answer(frame, code, tuple(parts)), b"".join(buffers)
        raise AssertionError(request)

    def _entry(self, ledger_id: int, entry_id: int, *, is_even: bool = False) -> bytes:
        size = 24 if is_even else self.world.random.choice((0, 3, 24, 24, 700, 3_000))
        return pack(">qqqq", ledger_id, entry_id, self._serial, size) + bytes(size)

    def _nonsense(self, frame: Frame) -> bytes:
        """Return bytes that are no valid answer to this request."""
        request, ledger_id = frame.request, frame.request.ledger_id  # type: ignore[union-attr]
        add = answers.encode_add_answer(Code.OK, ledger_id, UNKNOWN_ENTRY)
        right = self._encoded(frame)[1]
        of_its_own: list[bytes] = []
        choices = [
            pack(">i", -1),
            pack(">i", 3) + b"abc",
            pack(">i", 1 << 30),
            pack(">iI", 4, 3 << 24 | Opcode.READ << 16),
            pack(">iI", 4, 0 << 24 | Opcode.READ << 16),
            pack(">iI", 4, 2 << 24 | 99 << 16),
            pack(">iI", 6, 2 << 24 | Opcode.AUTH << 16) + b"ab",
            pack(">iI", 10, 2 << 24 | Opcode.READ << 16) + b"abcdef",
            pack(">iI", 27, 2 << 24 | Opcode.ADD << 16) + bytes(23),
            add,
            right[:4] + b"\3" + right[5:],
            right[:4] + b"\0" + right[5:],
            right[:5] + b"\11" + right[6:],
            answers.encode_read_answer_head(Code.OK, ledger_id, UNKNOWN_ENTRY, 0),
            answers.encode_add_run_answer(Code.OK, ledger_id, UNKNOWN_ENTRY, UNKNOWN_ENTRY),
            b"".join(
                answers.encode_batch_read_answer(Code.OK, ledger_id, 0, UNKNOWN_ENTRY, [b"x"])
            ),
        ]
        if isinstance(request, BatchReadRequest):
            ids = ledger_id, request.first_entry_id, request.request_id
            (whole,) = [b"".join(answers.encode_batch_read_answer(Code.OK, *ids, [b"entry"]))]
            of_its_own += [
                answers.encode_add_run_answer(Code.OK, *ids),  # an answer to a run
                whole[:36] + pack(">i", 6) + whole[40:],  # an entry that ends beyond the frame
                pack(">i", 38) + whole[4:36] + pack(">i", 1) + b"ab",
            ]
        if isinstance(request, SliceReadRequest):
            ids = ledger_id, request.entries[0][0], request.request_id
            of_its_own += [
                # an answer to a batch
                b"".join(answers.encode_batch_read_answer(Code.OK, *ids, [b"x"])),
            ]
        if isinstance(request, AddRunRequest):
            ids = ledger_id, request.entry_ids[0], request.request_id
            of_its_own.append(b"".join(answers.encode_batch_read_answer(Code.OK, *ids, [])))
        is_its_own = bool(of_its_own) and self.world.random.random() < 0.4
        return self.world.random.choice(of_its_own if is_its_own else choices)
