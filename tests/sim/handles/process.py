"""One process: the shipped client with its session, links and connections, and with checks between
the client and its transport."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.client.recent_records import RecentRecords
from ledgerlog_spark.client.services import Services
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.log.clients import LogClient
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import BookieInfo, Code
from ledgerlog_spark.protocol.ledger.read.budget import ReaderSettings
from ledgerlog_spark.protocol.ledger.recover.recovery import RecoverySettings
from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.protocol.ledger.write.settings import WriterSettings
from ledgerlog_spark.retry import RetryPolicy
from ledgerlog_spark.transport.port import ReadEntry
from ledgerlog_spark.transport.v2.transport import V2Lane, V2Transport
from tests.sim.handles.control import SimControl
from tests.sim.handles.tree import HandleTree

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.sim.handles.story import Story
    from tests.sim.handles.world import HandleWorld

BACKLOG_ENTRIES_MAX = 40
UNSENT_BYTES_MAX = 20_000
CALM_MS_MAX = 1_000
"""Without faults, no request takes longer than this."""

RECENT_SIZE_BYTES_MAX = 12_000
"""Maximum size of the recent records that a client of this simulation keeps."""

DOWN_MS_MAX = 1_500
"""A client notices within this time that a bookie resets and refuses its connections."""

SETTINGS = ClientSettings(
    add_timeout_ms=2_000,
    read_timeout_ms=1_500,
    metadata_timeout_ms=4_000,
    close_timeout_ms=6_000,
    linger_ms=20,
    backlog_entries_max=BACKLOG_ENTRIES_MAX,
    backlog_size_bytes_max=1 << 16,
    writer=WriterSettings(
        window=Window(entries_max=60),
        add_quorum_timeout_ms=12_000,
        metadata=RetryPolicy(attempts_max=8),
        replacement=RetryPolicy(first_delay_ms=100, delay_max_ms=500, attempts_max=12),
    ),
    reader=ReaderSettings(
        entries_ahead_max=64, batch_entries_max=16, batches_in_flight_max=3, hedge_delay_ms=300
    ),
    recovery=RecoverySettings(metadata=RetryPolicy(attempts_max=8)),
)


class Request:
    """One request of a client to the transport."""

    def __init__(self, process: Process, what: str, bookie: str, timeout_ms: int) -> None:
        self.process = process
        self.what = what
        self.bookie = bookie
        self.timeout_ms = timeout_ms
        self.begun = process.world.loop.time()
        self.is_calm = process.world.is_calm
        self.is_new = True

    def __repr__(self) -> str:
        return f"{self.process.name}'s {self.what} of {self.bookie}"

    @property
    def age_ms(self) -> float:
        return (self.process.world.loop.time() - self.begun) * 1e3


class CheckedTransport:
    """Passes requests on, and checks their answers.

    Each request must get one answer, not at once, but within its time limit. There must be a reason
    for each failure.

    Attributes:
        open: Requests without an answer.
    """

    def __init__(self, process: Process, inner: V2Transport) -> None:
        self.open: set[Request] = set()
        self.timeouts: dict[str, list[float]] = {}
        self._process = process
        self._world = process.world
        self._inner = inner

    def add(self, bookie_id: str, request: Any, timeout_ms: int, on_reply: Any) -> None:
        self._ask("add", bookie_id, request, timeout_ms, on_reply)
        link = self._inner._links[bookie_id, V2Lane.CONTROL if request.is_recovery else V2Lane.ADDS]
        kept = link._connection._unsent_bytes if link._connection is not None else 0
        self._world.require(
            kept <= UNSENT_BYTES_MAX + 16_000, f"{kept} bytes wait for {bookie_id} to take them"
        )

    def read(self, bookie_id: str, request: Any, timeout_ms: int, on_reply: Any) -> None:
        self._ask("read", bookie_id, request, timeout_ms, on_reply)

    def read_batch(self, bookie_id: str, request: Any, timeout_ms: int, on_reply: Any) -> None:
        self._ask("read_batch", bookie_id, request, timeout_ms, on_reply)

    def read_slices(self, bookie_id: str, request: Any, timeout_ms: int, on_reply: Any) -> None:
        self._ask("read_slices", bookie_id, request, timeout_ms, on_reply)

    def write_lac(self, bookie_id: str, request: Any, timeout_ms: int, on_reply: Any) -> None:
        self._ask("write_lac", bookie_id, request, timeout_ms, on_reply)

    def read_lac(self, bookie_id: str, ledger_id: int, timeout_ms: int, on_reply: Any) -> None:
        self._ask("read_lac", bookie_id, ledger_id, timeout_ms, on_reply)

    def announce_lac(self, bookie_id: str, request: Any) -> bool:
        return self._inner.announce_lac(bookie_id, request)

    def watch_lac(self, bookie_id: str, request: Any, on_rise: Any, on_end: Any) -> Any:
        return self._inner.watch_lac(bookie_id, request, on_rise, on_end)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _ask(self, what: str, bookie: str, request: Any, timeout_ms: int, on_reply: Any) -> None:
        asked = Request(self._process, what, bookie, timeout_ms)
        self.open.add(asked)

        def reply(code: Code, *result: Any) -> None:
            self._world.require(not asked.is_new, f"{asked} was answered before it was sent")
            self._world.require(asked in self.open, f"{asked} was answered twice")
            self.open.discard(asked)
            self._judge(asked, code)
            on_reply(code, *result)

        getattr(self._inner, what)(bookie, request, timeout_ms, reply)
        asked.is_new = False

    def _judge(self, asked: Request, code: Code) -> None:
        world = self._world
        if self._process.is_over:
            return
        late_ms = asked.age_ms - asked.timeout_ms
        world.require(late_ms < 50, f"{asked} was answered {late_ms:.0f} ms after its deadline")
        if asked.is_calm and world.is_calm:
            bookie = world.bookies[asked.bookie]
            is_there = bookie.has_control or not asked.what.endswith("_lac")
            is_bad = code in (Code.TIMEOUT, Code.UNAVAILABLE) and is_there
            world.require(not is_bad, f"{asked}: {code.name} although nothing is wrong")
            world.require(
                asked.age_ms < CALM_MS_MAX, f"{asked} took {asked.age_ms:.0f} ms for nothing"
            )
        if code is Code.TIMEOUT:
            self.timeouts.setdefault(asked.bookie, []).append(world.loop.time())
        if code is Code.UNAVAILABLE and not asked.what.endswith("_lac"):
            self._explain(asked)

    def _explain(self, asked: Request) -> None:
        """Check that an UNAVAILABLE has a reason.

        The reasons are a lost or refused connection, and two requests on it without an answer.
        """
        world, now = self._world, self._world.loop.time()
        since = asked.begun - 3
        lost = world.network.losses.get((self._process.name, asked.bookie), -1.0) >= since
        unknown = self._process.lookups_failed.get(asked.bookie, -1.0) >= since
        late = [at for at in self.timeouts.get(asked.bookie, []) if at >= since - 4]
        world.require(
            lost or unknown or len(late) >= 2,
            f"{asked} is UNAVAILABLE after {asked.age_ms:.0f} ms, at {now:.3f}, for nothing",
        )


class Process:
    """A program that uses ledgers.

    Attributes:
        is_over: Whether it crashed or closed its client.
        followers: The followers that it made.
        ends: For each ledger, the last end that a handle knew, and whether the ledger was closed.
        lookups_failed: Time in seconds at which the look-up of a bookie last failed.
    """

    def __init__(self, world: HandleWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.is_over = False
        self.has_crashed = False
        self.followers = 0
        self.tails = 0
        self.lookups_failed: dict[str, float] = {}
        self.tree = HandleTree(world)  # type: ignore[arg-type]
        self.stores = MetadataStores.on(self.tree, world.root)
        self.transport = V2Transport(self._info, connect_timeout_ms=400, reconnect_delay_ms_max=320)
        self.control = SimControl(world, self)
        self.transport._control = self.control  # type: ignore[assignment]
        self.checked = CheckedTransport(self, self.transport)
        services = Services(
            transport=self.checked,
            ledgers=self.stores.ledgers,
            registration=self.stores.registration,
            identities=self.stores.identities,
            settings=SETTINGS,
            random=Random(world.random.getrandbits(32)),
            logs=self.stores.logs,
            leases=self.stores.leases,
            session=self.stores.tree,
        )
        self.client = LogClient(services, on_close=self._on_close)
        self.client._recent = RecentRecords(world.loop.time, RECENT_SIZE_BYTES_MAX)
        self.ends: dict[int, tuple[int, bool]] = {}
        self.news: list[Any] = []
        """The watches of the ends of logs, which their users cancel."""
        self._tasks: list[asyncio.Task[None]] = []

    async def _info(self, bookie_id: str) -> BookieInfo:
        try:
            info = await self.stores.registration.info(bookie_id)
        except BaseException:
            self.lookups_failed[bookie_id] = self.world.loop.time()
            raise
        return replace(info, host=f"{info.host}%{self.name}")

    async def _on_close(self) -> None:
        try:
            await self.transport.aclose()
        finally:
            if not self.has_crashed:  # after a crash, the session ends later by itself
                await self.stores.close()

    def spawn(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        """Run an actor to its end. An error that it does not catch is a violation."""

        async def run() -> None:
            try:
                await work
            except LedgerLogError as error:
                if not self.is_over:
                    raise self.world.violation(f"{what} ended with {error!r}") from error

        task = asyncio.ensure_future(run())
        task.add_done_callback(lambda _: work.close())  # even if it never began
        self._tasks.append(task)
        self.world.watch(f"{what} of {self.name}", task)

    async def read_one(
        self,
        bookie: str,
        story: Story,
        entry_id: int,
        timeout_ms: int = SETTINGS.read_timeout_ms,
    ) -> None:
        """Read one entry from one bookie. `CheckedTransport` checks the answer."""
        done: asyncio.Future[None] = self.world.loop.create_future()

        def answered(_code: Code, _entry: bytes | None) -> None:
            if not done.done():
                done.set_result(None)

        self.checked.read(bookie, ReadEntry(story.ledger_id, entry_id), timeout_ms, answered)
        await done

    async def close(self) -> None:
        """Close the client, and check that all its calls end and that none of its work is left."""
        self.is_over = True
        for news in self.news:
            news.cancel()
        await self.client.aclose()
        await asyncio.sleep(0.1)
        self.check_nothing_is_left()

    def check_nothing_is_left(self) -> None:
        world = self.world
        world.require(not self.checked.open, f"{self.checked.open} were never answered")
        lines = world.network.open_lines(self.name)
        world.require(not lines, f"{self.name} left {len(lines)} connections open")
        world.require(not self.control.watches, f"{self.name} left watches behind")

    def crash(self) -> None:
        """Crash: from this moment on, the process sends nothing."""
        if self.is_over:
            return
        self.is_over = self.has_crashed = True
        self.world.fault("crashes")
        self.tree.crash()
        self.world.cut_processes.add(self.name)
        for task in self._tasks:
            task.cancel()
        self.world.watch(f"the end of {self.name}", asyncio.ensure_future(self._end()))

    async def _end(self) -> None:
        for line in self.world.network.open_lines(self.name):
            line.client.abort()
        for news in self.news:
            news.cancel()
        await self.client.aclose()


def when_down(process: Process, bookie: str) -> Callable[[], None]:
    """Return a check to call later: no request from before the bookie went down still waits."""
    world, went = process.world, process.world.loop.time()

    def check() -> None:
        there = world.bookies[bookie]
        if there.is_up or process.is_over or there.place in world.gone_places:
            return
        old = [one for one in process.checked.open if one.bookie == bookie and one.begun < went]
        world.require(not old, f"{old} wait for a bookie that refuses connections")

    return check
