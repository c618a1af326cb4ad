"""A storage that answers late and in any order, and checks the memory of the requests."""

from __future__ import annotations

from hashlib import blake2b
from sys import getsizeof
from typing import TYPE_CHECKING, Any

from bookie_server.service.limits.budget import FREE_PARTS_OF_SHARE
from ledgerlog_spark.model import Code
from ledgerlog_spark.testing.bookie import MemoryStorage
from ledgerlog_spark.wire.frames import ReceiveBuffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.service.world import ServiceWorld


RUNS_REFUSED = 0.2


def memory_of(value: Any) -> int:
    """Return the memory of nested tuples of numbers, in bytes."""
    parts = sum(map(memory_of, value)) if isinstance(value, tuple) else 0
    return getsizeof(value) + parts


class LateStorage:
    """The storage port over entries in memory.

    Attributes:
        is_stuck: Whether regular adds get no answer.
        open_bytes: Size of the adds and of the requests for slices without an answer.
        requests: The requests without an answer.
    """

    def __init__(self, world: ServiceWorld) -> None:
        self.world = world
        self.inner = MemoryStorage()
        self.is_stuck = False
        self.open_bytes = 0
        self.requests = 0
        self._stuck: list[Callable[[], None]] = []
        self._newest: dict[int, int] = {}

    def release(self) -> None:
        """Answer adds again."""
        self.is_stuck = False
        stuck, self._stuck = self._stuck, []
        for answer in stuck:
            self._answer_later(answer)

    def add(self, request: Any, on_done: Callable[[Any], None]) -> None:
        first = request.entry_ids[0]
        is_next = first > self._newest.get(request.ledger_id, -1)
        self.world.require(is_next, f"entry {first} of {request.ledger_id} overtook another one")
        self._newest[request.ledger_id] = first
        digest = blake2b(request.body).digest()
        self.open_bytes += len(request.body)

        def done(code: Any) -> None:
            memory = request.body.obj if isinstance(request.body, memoryview) else None
            is_counted = not isinstance(memory, ReceiveBuffer) or memory.charge is not None
            self.world.require(is_counted, "memory of an add counted no longer, and it was open")
            is_whole = blake2b(request.body).digest() == digest
            self.world.require(is_whole, "memory of an add changed before storage was done")
            self.open_bytes -= len(request.body)
            on_done(code)

        self.requests += 1
        answer = self._once(lambda: self.inner.add(request, done))
        if self.is_stuck and not request.is_recovery:
            self._stuck.append(answer)
        else:
            self._answer_later(answer)

    def add_together(self, request: Any, on_done: Callable[[Any], None]) -> bool:
        if self.world.random.random() < RUNS_REFUSED:
            return False
        self.add(request, on_done)
        self._newest[request.ledger_id] = request.entry_ids[-1]
        return True

    def read(self, request: Any, on_done: Callable[..., None]) -> None:
        self.requests += 1
        self._answer_later(self._once(lambda: self.inner.read(request, on_done)))

    def read_together(self, request: Any, on_some: Callable[..., None]) -> int:
        """Read some of the first entries, and answer them in parts and in any order."""
        random = self.world.random
        count = random.randint(1, len(request.entry_ids))
        at = 0
        while at < count:
            end = random.randint(at + 1, count)
            self._read_some(request.ledger_id, request.entry_ids[at:end], on_some)
            at = end
        return count

    def _read_some(self, ledger_id: int, ids: Any, on_some: Callable[..., None]) -> None:
        def answer() -> None:
            ledger = self.inner.ledgers[ledger_id]
            on_some(Code.OK, ids, [ledger.entries[entry_id] for entry_id in ids])

        self.requests += 1
        self._answer_later(self._once(answer))

    def read_batch(self, request: Any, on_done: Callable[..., None]) -> None:
        self.requests += 1
        self._answer_later(self._once(lambda: self.inner.read_batch(request, on_done)))

    def read_slices(self, request: Any, on_done: Callable[..., None]) -> None:
        # If the lane is too small for the largest request, the request takes the maximum of a
        # share.
        largest = self.world.lanes.reads.size_bytes_max // FREE_PARTS_OF_SHARE
        size_bytes = min(memory_of(request.entries), largest)
        self.open_bytes += size_bytes
        self.world.check_bytes_held()

        def done(*answer: Any) -> None:
            self.open_bytes -= size_bytes
            on_done(*answer)

        self.requests += 1
        self._answer_later(self._once(lambda: self.inner.read_slices(request, done)))

    def announce_lac(self, ledger_id: int, lac: int, master_key: bytes) -> None:
        self.inner.announce_lac(ledger_id, lac, master_key)

    def _once(self, answer: Callable[[], None]) -> Callable[[], None]:
        def call() -> None:
            self.requests -= 1
            answer()

        return call

    def _answer_later(self, answer: Callable[[], None]) -> None:
        random = self.world.random
        if random.random() < 0.2:
            answer()
        else:
            self.world.later(random.uniform(0, self.world.storage_ms_max), answer)
