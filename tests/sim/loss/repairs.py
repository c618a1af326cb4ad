"""The ports of the shipped repair, on the model of a bookie."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any

from bookie_server.core import doubt as rules
from bookie_server.core import repair as r
from bookie_server.core.doubt import Doubt
from bookie_server.core.requests import StoredAdd, StoredBatchRead, StoredRead
from bookie_server.ports import Priority
from bookie_server.service.repair import repairs as shipped
from bookie_server.service.repair.one_ledger import RepairCounters, RepairParts, RepairReport
from bookie_server.service.repair.pace import RepairPace
from bookie_server.service.repair.progress import LimboLedger, RepairProgress
from ledgerlog_spark.errors import MetadataUnavailableError
from ledgerlog_spark.model import NO_ENTRY, Code, LedgerMetadata, Versioned
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.retry import NO_LIMIT, RetryPolicy
from tests.sim.checker import require
from tests.sim.late_add import KEY
from tests.sim.loss.checker import names
from tests.sim.loss.directory import Record
from tests.sim.network import Message
from tests.sim.runtime import Host, SimFuture

if TYPE_CHECKING:
    from tests.sim.loss.bookie import LossBookie

PEER_MS = 20
BATCH_SIZE_BYTES = 1 << 20
TIMES = shipped.RepairTimes(
    poll_ms=6,
    rounds=RetryPolicy(6, 12, NO_LIMIT),
    asked_again_ms=5,
    limits=r.RecoveryLimits(idle_ms=80, stuck_ms=60),
)


class RandomPauses:
    """Implements `Tasks` for a repair: its pauses are random, so that schedules differ."""

    def __init__(self, bookie: LossBookie, host: Host) -> None:
        self._bookie = bookie
        self._host = host
        self.future, self.call_soon, self.give_way = host.future, host.call_soon, host.give_way

    def spawn(self, name: str, coroutine: Any, priority: Priority = Priority.FOREGROUND) -> None:
        self._host.spawn(name, coroutine, priority)

    async def sleep(self, duration_ms: int) -> None:
        duration_us = duration_ms * 1_000
        await self._host.sleep_us(self._bookie.random.randint(duration_us // 3, duration_us * 2))


class MarkedProgress(RepairProgress):
    """Marks the situations that random schedules must reach."""

    mark: Callable[[str], None]

    def note(self, ledger_id: int, report: RepairReport) -> None:
        self.mark(f"repair {report.ended.outcome.name}")
        super().note(ledger_id, report)


class Repairs:
    """Runs the shipped repair in one process of a bookie, and implements its ports."""

    def __init__(self, bookie: LossBookie) -> None:
        host = bookie.host
        assert host is not None
        self._bookie = bookie
        self._host = host
        self._asked: dict[int, None] = {}
        self._loaded: dict[int, LedgerMetadata] = {}
        self._recoveries = 0
        self._is_running = False
        tasks, counters = RandomPauses(bookie, host), RepairCounters()
        progress = MarkedProgress(counters)
        progress.mark = bookie.world.checkers.mark
        parts = RepairParts(
            bookie.name,
            storage=self,
            records=self,
            peers=self,
            tasks=tasks,
            clock=host,
            pace=RepairPace(tasks, host, 0),
            counters=counters,
            silent_ms=PEER_MS,
            loads=RetryPolicy(1, 1, 3),
        )
        self._repairs = shipped.Repairs(
            parts, progress, self._recover, TIMES, on_deleted=self._drop
        )

    @property
    def outcomes(self) -> dict[int, LimboLedger]:
        """The ledgers that the last repair could not clear."""
        return self._repairs.progress.in_limbo

    def want(self, ledger_id: int) -> None:
        """Repair a ledger before others, because a client got the answer "unknown"."""
        self._asked[ledger_id] = None

    def begin(self) -> None:
        """Repair what is in limbo, until the process ends."""
        if not self._is_running:
            self._is_running = True
            self._repairs.start()

    async def _answer(self, request: Callable[[Callable[..., None]], object]) -> Any:
        """Return the arguments with which `request` calls its callback."""
        answered: SimFuture[tuple[Any, ...]] = self._host.future()
        request(lambda *answer: answered.set_result(answer))
        return await answered

    # The metadata store.

    async def load(self, ledger_id: int) -> Versioned[LedgerMetadata] | None:
        bookie = self._bookie
        is_read, record, _ = await self._answer(lambda on: bookie.load_record(ledger_id, on))
        if not is_read:
            raise MetadataUnavailableError("the answer of the store was lost")
        if record is not None:
            self._loaded[ledger_id] = record.value
        return record

    async def ids(self) -> AsyncIterator[int]:
        (ids,) = await self._answer(lambda on: self._bookie.ask("list", self.listing, on))
        if ids is None:
            raise MetadataUnavailableError("the list of the store was lost")
        for ledger_id in ids:
            yield ledger_id

    def listing(self) -> list[int]:
        """Return the ids of all ledgers that exist now."""
        return sorted(self._bookie.world.store.records)

    # The storage.

    @property
    def doubt(self) -> Doubt:
        return self._bookie.doubt

    async def end_doubt(self, epoch: int) -> None:
        bookie = self._bookie
        bookie.world.checkers.mark("doubt ended")
        await self._answer(lambda on: bookie.commit(lambda doubt: doubt.ended(epoch), on))

    def is_known(self, ledger_id: int) -> bool:
        return ledger_id in self._bookie.states

    def limbo_ledgers(self) -> list[int]:
        return sorted(self._bookie.in_limbo)

    def take_asked(self) -> list[int]:
        asked, self._asked = self._asked, {}
        return list(asked)

    def take_damaged(self) -> list[tuple[int, tuple[int, ...]]]:
        return []

    def last_accepted_id(self, ledger_id: int) -> int:
        state = self._bookie.states.get(ledger_id)
        return NO_ENTRY if state is None else state.last_accepted_id

    async def verify_held(
        self, ledger_id: int, entry_ids: Sequence[int], is_intact: Callable[[int, bytes], bool]
    ) -> frozenset[int]:
        await self._host.sleep_us(self._bookie.random.randint(10, 100))
        held = self._bookie.entries.get(ledger_id, {})
        return frozenset(one for one in entry_ids if one in held and is_intact(one, held[one]))

    async def store_repaired(self, ledger_id: int, entry_id: int, stored: bytes) -> Code:
        bookie = self._bookie
        add = StoredAdd(ledger_id, (entry_id,), (len(stored),), stored, KEY, is_recovery=True)
        bookie.world.checkers.mark("entry repaired")
        (code,) = await self._answer(lambda on: bookie.add(add, on))
        return code

    async def keep_in_limbo(self, ledger_id: int) -> Code:
        self._bookie._state_of(ledger_id, KEY)
        ticket = self.write_state(ledger_id)
        await self._answer(lambda on: self.when_kept(ticket, on))
        return Code.OK

    def write_state(self, ledger_id: int) -> int:
        """Write the state of a ledger in limbo, and return its ticket."""
        bookie = self._bookie
        return bookie.submit(Record("state", ledger_id, epoch=bookie.cleared[ledger_id]))

    def when_kept(self, ticket: int, then: Callable[[], None]) -> None:
        """Call `then` when the state of a ledger in limbo is durable."""
        self._bookie.when_control(ticket, then)

    async def clear_ledger(self, ledger_id: int, epoch: int, last_add_confirmed: int) -> Code:
        bookie = self._bookie
        if not rules.is_in_limbo(bookie.cleared.get(ledger_id), bookie.doubt):
            return Code.OK
        bookie._state_of(ledger_id, KEY)
        record = Record("cleared", ledger_id, lac=last_add_confirmed, epoch=epoch)
        ticket = bookie.submit(record)
        await self._answer(lambda on: bookie.when_control(ticket, on))
        bookie.world.checkers.mark("ledger cleared")
        bookie.apply_cleared(record)
        self._require_whole(ledger_id)
        return Code.OK

    def _require_whole(self, ledger_id: int) -> None:
        """Check that a ledger that leaves limbo has every entry that the loaded record names."""
        bookie, held = self._bookie, self._bookie.entries.get(ledger_id, {})
        if rules.is_in_limbo(bookie.cleared[ledger_id], bookie.doubt):
            return
        record = self._loaded[ledger_id]
        ids = [
            e for fragment, end in r.ends_of(record) for e in range(fragment.first_entry_id, end)
        ]
        missing = [e for e in ids if e not in held and names(record, bookie.name, e)]
        require(not missing, "R1", f"{bookie.name} clears {ledger_id} without {missing}")

    def _drop(self, ledger_id: int) -> None:
        bookie = self._bookie
        for kept in (bookie.entries, bookie.states, bookie.cleared):
            kept.pop(ledger_id, None)
        bookie.submit(Record("drop", ledger_id))

    async def _recover(self, ledger_id: int, _report: RepairReport) -> None:
        bookie = self._bookie
        self._recoveries += 1
        bookie.world.checkers.mark("recovered by a bookie in limbo")
        name = f"{bookie.name}.{bookie.boots}.{self._recoveries}.{ledger_id}"
        bookie.world.recoverer(name, ledger_id=ledger_id).feed(m.Start())

    # Other bookies.

    async def read(
        self, bookie_id: str, ledger_id: int, entry_id: int
    ) -> tuple[Code, bytes | None]:
        peer, request = self._bookie.world.bookies[bookie_id], StoredRead(ledger_id, entry_id)
        serve, lost = (lambda reply: peer.read(request, reply)), (Code.TIMEOUT, None)
        return await self._ask_peer("fetch", bookie_id, serve, lost)

    async def read_batch(
        self, bookie_id: str, ledger_id: int, first_entry_id: int, count: int
    ) -> Sequence[bytes]:
        peer = self._bookie.world.bookies[bookie_id]
        request = StoredBatchRead(ledger_id, first_entry_id, count, BATCH_SIZE_BYTES)
        serve, lost = (lambda reply: peer.read_batch(request, reply)), (Code.TIMEOUT, ())
        code, entries = await self._ask_peer("fetch", bookie_id, serve, lost)
        return entries if code is Code.OK else ()

    async def read_lac(self, bookie_id: str, ledger_id: int) -> tuple[Code, int]:
        peer = self._bookie.world.bookies[bookie_id]
        serve, lost = (lambda reply: peer.read_lac(ledger_id, reply)), (Code.TIMEOUT, NO_ENTRY)
        return await self._ask_peer("peer_lac", bookie_id, serve, lost)

    async def _ask_peer(
        self,
        kind: str,
        peer: str,
        serve: Callable[[Callable[..., None]], bool],
        lost: tuple[Any, ...],
    ) -> Any:
        """Send a request to another bookie, and return the answer, or `lost`."""
        bookie, host, network = self._bookie, self._host, self._bookie.world.network
        answered: SimFuture[tuple[Any, ...]] = host.future()

        def answer(*values: Any) -> None:
            if not answered.done() and host.is_alive:
                answered.set_result(values)

        def reply(*values: Any) -> None:
            network.send(Message(f"{kind}_reply", peer, bookie.name, lambda: answer(*values)))

        def arrive() -> None:
            if not serve(reply):
                reply(*lost)

        network.send(Message(kind, bookie.name, peer, arrive))
        host.call_later(PEER_MS * 1_000, lambda: answer(*lost))
        return await answered
