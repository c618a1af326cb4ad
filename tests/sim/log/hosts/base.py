"""The base of all simulations of hosts: virtual time, the store, and the end of all actors."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

from ledgerlog_spark.log import clock
from ledgerlog_spark.log.maintenance import check, sweeper
from ledgerlog_spark.metadata.logs.nodes import LogPaths
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.upkeep import upkeep
from tests.fixtures.autojump import AutojumpLoop
from tests.sim.log.checks import Violation
from tests.sim.log.hosts.process import CURRENT

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from ledgerlog_spark.testing.memory.nodes import NodeChange

BEGAN_MS = 1_700_000_000_000
PAGES_GRACE_MS = 10
LOOK_AGAIN_MS = 600
YOUNG_MS = 500
END_SECONDS = 600
DAY_MS = 86_400_000
SKEWS_MS = (0, 0, 37, -2_000, 8 * DAY_MS, -365 * DAY_MS)
"""Times by which the wall clocks of processes are ahead of the clock of the store."""


class CallbackError(Exception):
    """An error that a user's callback raises on purpose. It is reported, and stops nothing."""


class Hosts:
    """Virtual time, the store, and all actors. `_look` checks each change of the store.

    Attributes:
        views: The state of each log in the store, by log id, including deleted logs.
        newest_id: The id of the log that was created last.
        is_faulty: Whether faults happen.
        is_busy: Whether actors continue; False if they must end.
        still_until_ms: Time before which the store answers no request.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.extra = Random(seed * 67 + 11)
        """Random numbers for situations of only some schedules, separate from the others."""
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.nodes = MemoryNodes(self.now_ms)
        self.root = "/ledgers"
        self.paths = LogPaths(self.root)
        self.views: dict[str, Any] = {}
        self.newest_id = ""
        self.counts: Counter[str] = Counter()
        self.events = 0
        self.is_faulty = True
        self.is_busy = True
        self.still_until_ms = 0
        self.failure: BaseException | None = None
        self._works: dict[asyncio.Task[Any], str] = {}
        self.nodes.listen(self._changed)

    def elapsed_ns(self) -> int:
        """Return the virtual time, rounded: with sums of floats, 300 ms could become 299 ms."""
        return round(self.loop.time() * 1e9)

    def now_ms(self) -> int:
        return BEGAN_MS + self.elapsed_ns() // 1_000_000  # as the other clocks here do

    def wall_ms(self) -> int:
        process = CURRENT.get()
        return self.now_ms() + (process.skew_ms if process is not None else 0)

    def violation(self, what: str) -> Violation:
        at_ms = self.now_ms() - BEGAN_MS
        return Violation(f"hosts, seed {self.seed}, at {at_ms} ms: {what}")

    def require(self, holds: bool, what: str) -> None:
        """Raise a violation, and keep it, so that code that catches errors cannot hide it."""
        if not holds:
            self.failure = self.failure or self.violation(what)
            raise self.failure

    # --- what the store says ---

    def _changed(self, changes: list[NodeChange]) -> None:
        if self.failure is not None:
            return
        try:
            self._look(changes)
        except Violation as violation:
            self.failure = violation

    def _look(self, changes: list[NodeChange]) -> None:
        """Check the changes that the store has just committed."""
        raise AssertionError(changes)

    def ledger_of(self, path: str) -> int | None:
        """Return the ledger whose metadata is at this path; None for another path."""
        is_record = path.startswith(f"{self.root}/") and path.rpartition("/")[2].startswith("L")
        digits = "".join(c for c in path[len(self.root) :] if c.isdigit())
        return int(digits) if is_record and digits else None

    # --- running ---

    def watch(self, what: str, task: asyncio.Task[Any]) -> None:
        self._works[task] = what

    async def until_all_ended(self) -> None:
        """Wait until every actor has ended. Otherwise raise a violation that names the actor."""
        deadline = self.loop.time() + END_SECONDS
        while True:
            if self.failure is not None:
                raise self.failure
            left = [task for task in self._works if not task.done()]
            for task in self._works:
                if task.done() and not task.cancelled() and task.exception() is not None:
                    raise task.exception()  # type: ignore[misc]
            if not left:
                self._works.clear()
                return
            if self.loop.time() > deadline:
                raise self.violation(f"these never end: {sorted(self._works[t] for t in left)}")
            await asyncio.wait(left, timeout=1, return_when=asyncio.FIRST_EXCEPTION)

    @contextlib.contextmanager
    def times_and_tokens(self, *others: Any) -> Iterator[None]:
        """Apply the wall clocks, random names and grace periods of this world, and `others`."""

        def new_uuid() -> uuid.UUID:
            return uuid.UUID(int=self.random.getrandbits(128), version=4)

        grace: Any = sweeper.Sweeper.__init__.__kwdefaults__
        with contextlib.ExitStack() as patches:
            for patch in (
                mock.patch.object(clock, "now_ms", self.wall_ms),
                mock.patch.object(uuid, "uuid4", new_uuid),
                mock.patch.object(sweeper, "LOOK_AGAIN_MS", LOOK_AGAIN_MS),
                mock.patch.object(upkeep, "LOOK_AGAIN_MS", LOOK_AGAIN_MS),
                mock.patch.object(check, "YOUNG_MS", YOUNG_MS),
                mock.patch.dict(grace, pages_grace_ms=PAGES_GRACE_MS),
                *others,
            ):
                patches.enter_context(patch)
            yield


def play_hosts(seed: int, run: Callable[[int], Coroutine[Any, Any, Any]]) -> Any:
    """Return the result of `run` for one random schedule. Any error becomes a `Violation`."""
    lost: list[dict[str, Any]] = []

    def report(_: object, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), CallbackError):
            lost.append(context)

    with asyncio.Runner(loop_factory=AutojumpLoop) as runner:
        runner.get_loop().set_exception_handler(report)
        try:
            world = runner.run(run(seed))
        except Violation:
            raise
        except Exception as error:
            raise Violation(f"hosts, seed {seed}: {error!r}") from error
    if lost:
        found = lost[0].get("exception")
        raise Violation(f"hosts, seed {seed}: nobody gets {found or lost[0]!r}") from found
    return world
