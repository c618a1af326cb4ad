"""The control service of simulated bookies, as one process reaches it."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.model import NO_ENTRY, Code
from ledgerlog_spark.transport.port import LacRise, ReadBatch
from tests.sim.handles.story import OwnersMistakeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.transport.port import WatchLac, WriteLac
    from tests.sim.handles.process import Process
    from tests.sim.handles.world import HandleWorld

WATCHES_A_SECOND_MAX = 60
WRITES_OF_ONE_LAC_MAX = 32
"""A writer writes a LAC eight times when it is idle, and eight times more after each change of its
ensemble, or after its failure."""


class _Watch:
    def __init__(
        self, process: Process, bookie: str, request: WatchLac, on_rise: Any, on_end: Any
    ) -> None:
        self.process = process
        self.bookie = bookie
        self.request = request
        self.known = request.previous
        self.on_rise = on_rise
        self.on_end = on_end
        self.is_over = False
        self.leave: Callable[[], None] = lambda: None


class SimControl:
    """Replaces the gRPC transport of a `V2Transport`."""

    def __init__(self, world: HandleWorld, process: Process) -> None:
        self._world = world
        self._process = process
        self._watches: dict[_Watch, None] = {}
        self._is_closed = False
        self.lies_by = 0
        """Each answer with the LAC of an open ledger is too large by this number."""
        self._begun: list[float] = []
        self._open: dict[int, tuple[str, Callable[..., None]]] = {}
        self._numbers = itertools.count()
        self._written: dict[tuple[str, int, int], int] = {}

    @property
    def watches(self) -> int:
        """The number of open watches."""
        return len(self._watches)

    def write_lac(
        self, bookie_id: str, request: WriteLac, timeout_ms: int, on_reply: Callable[[Code], None]
    ) -> None:
        of = bookie_id, request.ledger_id, request.last_add_confirmed
        self._written[of] = self._written.get(of, 0) + 1
        self._world.require(
            self._written[of] <= WRITES_OF_ONE_LAC_MAX,
            f"LAC {of[2]} is written to {bookie_id} {self._written[of]} times",
        )

        def ask(done: Callable[[Code], None]) -> None:
            storage = self._world.bookies[bookie_id].inner
            storage.write_lac(
                request.ledger_id, request.last_add_confirmed, request.master_key, done
            )

        self._ask(bookie_id, timeout_ms, ask, on_reply)

    def read_lac(
        self, bookie_id: str, ledger_id: int, timeout_ms: int, on_reply: Callable[[Code, int], None]
    ) -> None:
        def ask(done: Callable[..., None]) -> None:
            self._world.bookies[bookie_id].inner.read_lac(ledger_id, done)

        self._ask(
            bookie_id,
            timeout_ms,
            ask,
            lambda code, lac=NO_ENTRY: on_reply(code, lac + self.lies_by),
        )

    def watch_lac(
        self,
        bookie_id: str,
        request: WatchLac,
        on_rise: Callable[[LacRise], None],
        on_end: Callable[[Code], None],
    ) -> Callable[[], None]:
        world = self._world
        now = world.loop.time()
        self._begun = [at for at in self._begun if at > now - 1]
        self._begun.append(now)
        followers = max(1, self._process.followers)
        world.require(
            len(self._begun) <= WATCHES_A_SECOND_MAX * followers,
            f"{len(self._begun)} watches a second of {followers} followers",
        )
        watch = _Watch(self._process, bookie_id, request, on_rise, on_end)
        self._watches[watch] = None
        world.network.later(world.network.delay_ms(), lambda: self._begin(watch))

        def cancel() -> None:
            watch.is_over = True
            watch.leave()
            self._watches.pop(watch, None)

        return cancel

    def _begin(self, watch: _Watch) -> None:
        bookie = self._world.bookies[watch.bookie]
        if watch.is_over:
            return
        if not self._reaches(watch.bookie) or self._world.happens(0.05):
            self._end(watch)
            return

        def told(lac: int) -> None:
            self._world.network.later(self._world.network.delay_ms(), lambda: self._tell(watch))
            del lac

        watch.leave = bookie.inner.watch_lac(watch.request.ledger_id, told)
        told(0)

    def _tell(self, watch: _Watch) -> None:
        if watch.is_over:
            return
        if not self._reaches(watch.bookie):
            self._end(watch)
            return
        bookie = self._world.bookies[watch.bookie]
        ledger = bookie.inner.ledgers.get(watch.request.ledger_id)
        if ledger is None or ledger.lac <= watch.known:
            return
        first, watch.known = watch.known + 1, ledger.lac
        found: list[bytes] = []
        if watch.request.entries_size_bytes_max:
            batch = ReadBatch(
                watch.request.ledger_id,
                first,
                watch.known + 1 - first,
                watch.request.entries_size_bytes_max,
            )
            bookie.inner.read_batch(batch, lambda _, entries: found.extend(entries))
            if sum(map(len, found)) > watch.request.entries_size_bytes_max:
                found.clear()
        try:
            watch.on_rise(
                LacRise(watch.known, first, [bookie.damaged(one) or b"" for one in found])
            )
        except OwnersMistakeError:
            self._world.require(False, "a watch gets what a user's callback raises")

    def bookie_lost(self, bookie: str) -> None:
        """Let each request to the bookie, and each watch of it, end a moment later."""
        for name, reply in tuple(self._open.values()):
            if name == bookie:
                self._world.network.later(
                    self._world.network.delay_ms(), partial(reply, Code.UNAVAILABLE)
                )
        for watch in [watch for watch in self._watches if watch.bookie == bookie]:
            self._world.network.later(self._world.network.delay_ms(), partial(self._end, watch))

    def _end(self, watch: _Watch) -> None:
        self._watches.pop(watch, None)
        watch.leave()
        if not watch.is_over:
            watch.is_over = True
            watch.on_end(Code.UNAVAILABLE)

    async def aclose(self) -> None:
        self._is_closed = True
        for watch in tuple(self._watches):
            self._end(watch)
        for _, reply in tuple(self._open.values()):
            reply(Code.UNAVAILABLE)

    def _reaches(self, bookie_id: str) -> bool:
        bookie = self._world.bookies[bookie_id]
        is_there = bookie.has_control and bookie.is_up and not bookie.is_stuck
        return is_there and not self._is_closed and not self._world.is_cut(self._process.name)

    def _ask(
        self,
        bookie_id: str,
        timeout_ms: int,
        ask: Callable[[Callable[..., None]], None],
        on_reply: Callable[..., None],
    ) -> None:
        """Call `ask` after a delay, and pass its first answer on after another delay."""
        world, number = self._world, next(self._numbers)

        def reply(*answer: Any) -> None:
            if self._open.pop(number, None) is not None:
                on_reply(*answer)

        def arrive() -> None:
            bookie = world.bookies[bookie_id]
            if bookie.is_stuck:
                return
            if not self._reaches(bookie_id) or world.happens(0.02):
                reply(Code.UNAVAILABLE)
                return
            delay_ms = bookie.control_delay_ms
            ask(
                lambda *answer: world.network.later(
                    delay_ms, lambda: bookie.answer(lambda: reply(*answer))
                )
            )

        self._open[number] = bookie_id, reply
        world.network.later(world.network.delay_ms(), arrive)
        world.network.later(timeout_ms, lambda: reply(Code.TIMEOUT))
