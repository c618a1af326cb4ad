"""Bookies of the simulation: storage in memory that can delay, refuse, forget and damage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledgerlog_spark.model import BookieInfo, Code
from ledgerlog_spark.testing.bookie import MemoryStorage
from ledgerlog_spark.wire.opcodes import Flag
from ledgerlog_spark.wire.requests import (
    AddRequest,
    AddRunRequest,
    BatchReadRequest,
    ReadRequest,
    TellLacRequest,
)
from ledgerlog_spark.wire.slice_requests import SliceReadRequest
from tests.contract.transport_bookies import SmallConnection, refuse_lacs, refuse_runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.handles.network import Line
    from tests.sim.handles.world import HandleWorld

RUN_ENTRIES_MAX = 16
"""Maximum number of entries in a run of the clients of this simulation."""

SLOW_MS_MAX = 6_000


class SimStorage:
    """The storage behind a connection. Its answers come later, or never."""

    def __init__(self, bookie: SimBookie, inner: MemoryStorage) -> None:
        self._bookie = bookie
        self._inner = inner

    def add(self, request: Any, on_done: Callable[[Code], None]) -> None:
        bookie = self._bookie
        size = len(request.entry_ids)
        is_small = request.is_recovery or size <= RUN_ENTRIES_MAX
        bookie.world.require(is_small, f"a run of {size} entries")
        if code := bookie.refuses(
            (Code.IO_ERROR, 0.004), (Code.READ_ONLY, 0.004), (Code.BUSY, 0.01)
        ):
            bookie.answer(lambda: on_done(code))
            return
        self._inner.add(request, lambda code: bookie.answer(lambda: on_done(code)))

    def read(self, request: Any, on_done: Callable[[Code, bytes | None], None]) -> None:
        bookie = self._bookie
        if code := bookie.refuses((Code.IO_ERROR, 0.01), (Code.BUSY, 0.01)):
            bookie.answer(lambda: on_done(code, None))
            return

        def done(code: Code, entry: bytes | None) -> None:
            bookie.answer(lambda: on_done(code, bookie.damaged(entry)))

        self._inner.read(request, done)

    def read_batch(self, request: Any, on_done: Callable[[Code, Any], None]) -> None:
        bookie = self._bookie
        if code := bookie.refuses((Code.IO_ERROR, 0.01), (Code.BUSY, 0.01)):
            bookie.answer(lambda: on_done(code, ()))
            return

        def done(code: Code, found: Any) -> None:
            damaged = [bookie.damaged(one) for one in found]
            bookie.answer(lambda: on_done(code, damaged))

        self._inner.read_batch(request, done)

    def read_slices(self, request: Any, on_done: Callable[[Code, Any], None]) -> None:
        bookie = self._bookie
        if code := bookie.refuses((Code.IO_ERROR, 0.01), (Code.BUSY, 0.01)):
            bookie.answer(lambda: on_done(code, ()))
            return

        def done(code: Code, found: Any) -> None:
            damaged = [bookie.damaged(one) for one in found]
            bookie.answer(lambda: on_done(code, damaged))

        self._inner.read_slices(request, done)

    def announce_lac(self, ledger_id: int, lac: int, master_key: bytes) -> None:
        self._inner.announce_lac(ledger_id, lac, master_key)


class SimConnection(SmallConnection):
    """A bookie's end of a connection, which records the requests on it."""

    def __init__(self, bookie: SimBookie, line: Line) -> None:
        super().__init__(bookie)  # type: ignore[arg-type]
        self._bookie = bookie
        self._line = line

    def pause_writing(self) -> None:
        return

    def resume_writing(self) -> None:
        return

    def serve(self, request: Any) -> None:
        self._bookie.world.events += 1
        kinds = self._line.kinds
        kinds.add(lane_of(request))
        self._bookie.world.require(
            len(kinds) == 1, f"{kinds} go over one connection of {self._line.process}"
        )
        super().serve(request)


def lane_of(request: Any) -> str:
    """The lane that a request belongs to."""
    match request:
        case AddRunRequest() | AddRequest():
            return "control" if request.flags & Flag.RECOVERY_ADD else "adds"
        case ReadRequest() if request.master_key is not None:
            return "control"
        case ReadRequest() | BatchReadRequest() | SliceReadRequest():
            return "control" if request.flags & Flag.HIGH_PRIORITY else "reads"
        case TellLacRequest():
            return "adds"
        case _:
            return "adds"


class SimBookie:
    """One bookie: the server of `SmallConnection`s.

    Attributes:
        place: The machine of the bookie; changes if it restarts on another machine.
        is_up: Whether it accepts connections.
        is_stuck: Whether its connections stay open without any data.
        is_slow: Whether its answers take seconds.
        is_rotten: Whether most of its reads return damaged entries.
        is_rotten_for_good: Whether all its reads return damaged entries, until this is reset.
        answer_delay_ms: Additional delay of each answer.
        control_delay_ms: Additional delay of each answer of its control service.
        takes_runs: Whether its registration lists ADD_RUN.
        is_older: Whether it refuses ADD_RUN although its registration lists it.
        has_control: Whether it has a control service.
    """

    def __init__(self, world: HandleWorld, name: str) -> None:
        random = world.random
        self.world = world
        self.name = name
        self.place = name
        self.inner = MemoryStorage()
        self.storage = SimStorage(self, self.inner)
        self.is_up = True
        self.is_stuck = False
        self.is_slow = False
        self.is_rotten = False
        self.is_rotten_for_good = False
        self.answer_delay_ms = 0.0
        self.control_delay_ms = 0.0
        self.takes_runs = random.random() < 0.75
        self.takes_lacs = random.random() < 0.75
        self.says_lacs = self.takes_lacs or random.random() < 0.3
        self.has_control = random.random() < 0.8
        self.is_older = self.takes_runs and random.random() < 0.15
        self.script: Any = self._refuse
        self.requests: list[Any] = []
        self.connections: list[Any] = []
        self._moves = 0
        self._lives = 0

    @property
    def info(self) -> BookieInfo:
        operations = ["ADD_RUN/1"] * self.takes_runs + ["TELL_LAC/1"] * self.says_lacs
        operations += ["READ_SLICES/1"] * self.takes_runs  # older bookies have neither
        return BookieInfo(
            self.name, self.place, 3181, properties={"ledgerlog.ops": ",".join(operations)}
        )

    def _refuse(self, connection: Any, request: Any) -> bool:
        """Answer as a bookie that does not support the operation. Return whether it answered."""
        if self.is_older and refuse_runs(connection, request):
            return True
        return not self.takes_lacs and refuse_lacs(connection, request)

    def note(self) -> None:
        self.requests.clear()

    def connection(self, line: Line) -> SimConnection:
        return SimConnection(self, line)

    def refuses(self, *codes: tuple[Code, float]) -> Code | None:
        for code, chance in codes:
            if self.world.happens(chance):
                self.world.fault(f"{code.name} answers")
                return code
        return None

    def damaged(self, entry: bytes | None) -> bytes | None:
        is_bad = self.world.happens(0.7 if self.is_rotten else 0.02) or self.is_rotten_for_good
        if entry is None or not is_bad:
            return entry
        self.world.fault("damaged entries")
        return entry[:-1] + bytes([entry[-1] ^ 1])

    def answer(self, call: Callable[[], None]) -> None:
        """Call `call` later while the bookie is up: out of order, and sometimes never."""
        world = self.world
        if world.happens(0.01):
            world.fault("lost answers")
            return
        delay_ms = world.random.uniform(0, 8) + self.answer_delay_ms
        if self.is_slow and world.is_faulty:
            delay_ms = world.random.uniform(0, SLOW_MS_MAX)
        lives = self._lives
        world.network.later(delay_ms, lambda: call() if self._lives == lives else None)

    def stop(self) -> None:
        """Reset its connections, and accept no more."""
        self.is_up = False
        self._lives += 1
        self.world.network.cut_bookie(self.name)

    def move(self) -> None:
        """Stop the bookie with its machine. Its next start is on another machine."""
        self.is_up = False
        self._lives += 1
        self.world.gone_places.add(self.place)
        self._moves += 1
        self.place = f"{self.name}-moved-{self._moves}"

    def start(self) -> None:
        """Accept connections again, perhaps as another version, with the same entries."""
        self.is_up = True
        self.is_stuck = False
        if self.world.is_faulty and self.world.random.random() < 0.3:
            self.takes_runs = not self.takes_runs
