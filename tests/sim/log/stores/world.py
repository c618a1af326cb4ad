"""Sessions of one store, the history of each node, and the invariants."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, Self

from ledgerlog_spark.errors import (
    LedgerLogError,
    MetadataUnavailableError,
    MetadataUnknownError,
)
from ledgerlog_spark.metadata.store_clock import StoreClock
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.protocol.log.state.codec import decode_head
from tests.sim.log.hosts.base import Hosts
from tests.sim.log.hosts.tree import SimTree
from tests.unit.log.log_values import token

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ledgerlog_spark.model import Version
    from ledgerlog_spark.testing.memory.nodes import NodeChange

HARMS = (1, 1, 2, 2, 8)
"""Factors by which the requests of a call fail more often than in the simulation of hosts."""

DRIFT = 1 - 5e-5
"""Speed of the clocks of processes, relative to the clock of the store."""

LOST = ("requests lost", "replies lost", "late writes")


class NotedClock(StoreClock):
    """A clock that remembers by how much the server of its last time was ahead."""

    def __init__(self, world: StoreWorld) -> None:
        super().__init__(elapsed=lambda: int(world.elapsed_ns() * DRIFT))
        self._world = world
        self.ahead_ms = 0

    def note(self, store_ms: int) -> None:
        super().note(store_ms)
        self.ahead_ms = self._world.ahead_ms


class StoreTree(SimTree):
    """A session that counts its lost answers.

    Attributes:
        harm: Factor of the probability that requests fail.
        lost: Number of writes with an unknown outcome.
        tried: Moment before its last write was carried out.
        synced: Moment of its last sync.
    """

    def __init__(self, world: StoreWorld) -> None:
        super().__init__(world)
        self._clock = self.noted = NotedClock(world)
        self._moments = world
        self.harm = 1
        self.lost = self.tried = self.synced = 0

    async def sync(self, path: str = "/") -> None:
        await super().sync(path)
        self.synced = self._moments.moment

    def _happens(self, probability: float) -> bool:
        return super()._happens(probability * self.harm)

    def _fault(self, what: str) -> None:
        super()._fault(what)
        self.lost += what in LOST

    def _check_incarnation(self, operations: Any, version: Version | None) -> None:
        self.tried = self._moments.moment
        super()._check_incarnation(operations, version)


class StoreProcess:
    """A process with the stores of the cluster, which makes one call at a time."""

    def __init__(self, world: StoreWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.tree = StoreTree(world)
        self.stores = MetadataStores.on(self.tree, world.root)
        self.logs = self.stores.logs
        self.ledgers = self.stores.ledgers

    def spawn(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        self.world.watch(f"{what} of {self.name}", asyncio.ensure_future(work))

    async def sleep(self, ms_max: int = 40) -> None:
        await asyncio.sleep(self.world.random.randint(0, ms_max) / 1e3)


class StoreCall:
    """One call, with the state at its beginning. As a context manager, it checks its failure.

    Attributes:
        since: Moment of its beginning.
        lost_min: Number of lost answers from which on its outcome may be unknown.
    """

    def __init__(self, process: StoreProcess) -> None:
        self._process, self._tree = process, process.tree
        self._tree.harm = process.world.random.choice(HARMS)
        self._faults, self._lost = self._tree.faults, self._tree.lost
        self.since = process.world.moment
        self.lost_min = 1
        process.world.counts["calls"] += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if not isinstance(error, LedgerLogError):
            return False
        self.failed(error)
        return True

    def failed(self, error: LedgerLogError) -> None:
        """Raise a violation unless a fault explains the failure."""
        world, tree = self._process.world, self._tree
        world.counts[f"failed: {type(error).__name__}"] += 1
        if isinstance(error, MetadataUnknownError):
            lost = tree.lost - self._lost
            world.require(not error.definite, f"{error!r} says that it is certain")
            world.require(lost >= self.lost_min, f"{lost} answers were lost: {error!r}")
        elif isinstance(error, MetadataUnavailableError):
            world.require(tree.faults > self._faults, f"nothing explains {error!r}")


class StoreWorld(Hosts):
    """The history of the store.

    Attributes:
        ahead_ms: Time by which the clock of the answering server is ahead.
        moment: The number of changes so far. A moment is a value of this number.
        history: The data of each node, with the moment of each change; None for no node.
        logs: Ids of the logs that a process tried to create.
        apps: The producers of each log.
        ledgers: The log of each ledger that was registered or created.
        listed: The ledgers that a version names.
        listed_in: The version of the head that first listed each ledger.
        pages: The version of the node of pages that each attempt wrote.
        refused: Ledgers whose creation failed with a definite error.
    """

    def __init__(self, seed: int) -> None:
        self.ahead_ms = 0
        super().__init__(seed)
        self.moment = 0
        self.history: dict[str, list[tuple[int, bytes | None]]] = {}
        self.logs: list[str] = []
        self.apps: dict[str, list[str]] = {}
        self.ledgers: dict[int, str] = {}
        self.listed: set[int] = set()
        self.listed_in: dict[int, int] = {}
        self.pages: dict[str, int] = {}
        self.refused: set[int] = set()
        self.numbers = itertools.count(1)
        self._registrations: dict[int, str] = {}
        self._layout = MetadataStores.on(StoreTree(self), self.root).ledgers

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

    def some_log(self) -> str:
        """Return a random log, most often one that is not deleted."""
        living = [i for i in self.logs if self.held(self.paths.head(i)) is not None]
        living = [i for i in living if not self.is_deleted(i)]
        return self.random.choice(living if living and self.random.random() < 0.7 else self.logs)

    def new_token(self) -> str:
        return token(self.random.getrandbits(100) << 16)

    def record(self, ledger_id: int) -> str:
        return self._layout.path(ledger_id)

    def held(self, path: str) -> bytes | None:
        """Return the data of a node; None if it does not exist."""
        node = self.nodes.current.nodes.get(path)
        return None if node is None else node.data

    def seen(self, path: str, since: int) -> list[bytes | None]:
        """Return the data of a node at and after the moment `since`, in order."""
        found: list[bytes | None] = [None]
        for moment, data in self.history.get(path, ()):
            found = [data] if moment <= since else [*found, data]
        return found

    def is_registered(self, ledger_id: int) -> bool:
        return self._registrations.get(ledger_id) in self.nodes.current.nodes

    def is_deleted(self, log_id: str) -> bool:
        return self.held(self.paths.deleted(log_id)) is not None

    # --- after each change ---

    def _look(self, changes: list[NodeChange]) -> None:
        self.moment += 1
        self.events += 1
        before: dict[str, bytes | None] = {}
        for change in changes:
            if change.path not in before:
                before[change.path] = self.seen(change.path, self.moment)[-1]
                self.history.setdefault(change.path, []).append(
                    (self.moment, self.held(change.path))
                )
        for path, data in before.items():
            if path.startswith(f"{self.paths.ids}/"):
                self._of_log(path, data, before)
            elif path.startswith(f"{self.paths.names}/") and data is not None:
                is_right = self.held(path) is not None or self.is_deleted(data.decode())
                self.require(is_right, f"the name of log {data!r} went, which is not deleted")
        self._accounts()

    def _of_log(self, path: str, before: bytes | None, changed: dict[str, Any]) -> None:
        log_id, _, rest = path[len(self.paths.ids) + 1 :].partition("/")
        above, _, name = rest.rpartition("/")
        data = self.held(path)
        if rest == "head" and data is not None and before is not None:
            self._head(log_id, data)
        elif above == "unlisted":
            if changed.get(self.record(int(name)), b"") is None:
                self.listed.discard(int(name))  # deleted, and created again by a late attempt
            is_head = self.paths.head(log_id) in changed
            self._mark(log_id, int(name), before, data, is_head=is_head)
        elif above.endswith("/ledgers") and data is not None:
            self.ledgers[int(name)] = log_id
            self._registrations[int(name)] = path
            if int(name) % 3 == 0 and not self.is_deleted(log_id):
                self.listed.add(int(name))  # it is released at the end
            self.require(int(name) not in self.refused, f"ledger {name} was refused")

    def _head(self, log_id: str, data: bytes) -> None:
        """Check that the head names no page that was touched after it was written."""
        head = decode_head(data)
        if head.token in self.pages:
            node = self.nodes.current.nodes.get(self.paths.pages(log_id, head.token))
            is_there = node is not None and node.version.number == self.pages[head.token]
            self.require(is_there, "a head names pages that are being deleted")

    def _mark(
        self,
        log_id: str,
        ledger_id: int,
        before: bytes | None,
        data: bytes | None,
        *,
        is_head: bool,
    ) -> None:
        """Check that a mark is deleted only with its ledger, or after the ledger was listed.

        A listed ledger that leaves the list gets a new mark, which starts its grace period.
        """
        if data is None:
            if is_head:
                self.require(before == b"made", f"ledger {ledger_id} was listed: {before!r}")
                self.listed.add(ledger_id)
                head = self.nodes.current.nodes[self.paths.head(log_id)]
                self.listed_in[ledger_id] = head.version.number
            is_gone = self.held(self.record(ledger_id)) is None
            self.require(is_head or is_gone, f"ledger {ledger_id} lost its mark")
            return
        self.ledgers[ledger_id] = log_id
        self.require(ledger_id not in self.refused, f"ledger {ledger_id} was refused")
        if ledger_id in self.listed:
            self.require(is_head and data == b"listed", f"{ledger_id} is listed, and {data!r}")
            self.listed.discard(ledger_id)

    def _accounts(self) -> None:
        """Check that every existing ledger is listed, marked or registered, so none leaks."""
        nodes = self.nodes.current.nodes
        for ledger_id, log_id in self.ledgers.items():
            if self.record(ledger_id) not in nodes:
                continue
            is_listed = ledger_id in self.listed and self.paths.head(log_id) in nodes
            is_known = (
                is_listed
                or self.is_registered(ledger_id)
                or self.paths.mark(log_id, ledger_id) in nodes
            )
            self.require(is_known, f"ledger {ledger_id} is forgotten")
