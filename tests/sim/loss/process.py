"""The process of a bookie that may lose records: its writes, and its requests to the store.

A record is written after a short time, in order. A sync covers the records that were written before
it. An unjournaled bookie acknowledges an entry when it is written, and a control record when it is
synced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from bookie_server.core import doubt as rules
from bookie_server.core.doubt import AddCheck, Doubt
from bookie_server.core.ledger_gate import Health
from bookie_server.core.ledger_state import HeldLedger
from bookie_server.core.requests import StoredAdd
from ledgerlog_spark.model import LedgerMetadata, Versioned
from tests.sim.loss.directory import FAILED, Directory, Record
from tests.sim.network import Message
from tests.sim.runtime import Host

if TYPE_CHECKING:
    from tests.sim.loss.repairs import Repairs
    from tests.sim.loss.world import LossWorld

WRITE_US = (20, 300)
SYNC_US = (200, 1_500)
ASK_MS = 25
"""After this time, an answer of the metadata store is late."""

OnRecord = Callable[[bool, Versioned[LedgerMetadata] | None, int], None]


class LossProcess:
    """The records and requests of one bookie.

    Attributes:
        directory: What outlives the process.
        is_weak: Whether it acknowledges entries before a sync.
        lost: Number of losses so far, of any kind.
        doubt: The doubt that the process acts on.
        cleared: The epoch up to which each ledger is cleared.
        compared: The epoch in which the process last compared the creation of a ledger.
    """

    repairs: Repairs

    def __init__(self, world: LossWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.sync_us = SYNC_US  # of a sync of records
        self.random = Random(f"{world.draws.seed} {name}")
        self.directory = Directory()
        self.is_weak = world.draws.uniform("weak", name) < world.options.weak_part
        self.is_up = True
        self.boots = 0
        self.lost = 0
        self.down_us = -1 << 60
        self.host: Host | None = None
        self.copies: list[Directory] = []
        self.last_adds: deque[StoredAdd] = deque(maxlen=3)
        self.refuses_adds = False
        self._requests: list[Callable[[], None]] = []
        self._answers = 0
        self.forget()

    def forget(self) -> None:
        """Forget everything that is only in the process."""
        self.entries: dict[int, dict[int, bytes]] = {}
        self.states: dict[int, HeldLedger] = {}
        self.cleared: dict[int, int] = {}
        self.compared: dict[int, int] = {}
        self.doubt = Doubt()
        self.health = Health()
        self._submitted: deque[Record] = deque()
        self._tickets = self._written = self._synced = 0
        self._is_syncing = False
        self._wanted = 0
        self._on_written: deque[tuple[int, Callable[[], None]]] = deque()
        self._on_synced: deque[tuple[int, Callable[[], None]]] = deque()
        self._fence_tickets: dict[int, int] = {}
        self._checks: dict[int, list[Callable[[AddCheck], None]]] = {}
        self._questions: dict[int, list[Callable[[], None]]] = {}
        self._counted = 0  # tickets that the counter of starts covers
        self.began_ms = 0
        self.registered = 0  # transaction with which this process registered

    def _later(self, range_us: tuple[int, int], then: Callable[[], None]) -> None:
        assert self.host is not None
        self.host.call_later(self.random.randint(*range_us), then)

    def note_loss(self, kind: str) -> None:
        """Record that the bookie has lost something."""
        self.lost += 1
        self.world.losing.discard(self.name)
        self.world.faults.lasts("power", 1 << 60)
        self.world.checkers.mark(f"lost by {kind}")
        self.world.checkers.lost(self.name)
        self.world.note(self.name, f"has lost records: {kind}")

    def _state_of(
        self, ledger_id: int, key: bytes | None, cleared: int | None = None
    ) -> HeldLedger:
        state = self.states.get(ledger_id)
        if state is None:
            state = self.states[ledger_id] = HeldLedger(ledger_id)
            epoch = rules.first_cleared_epoch(self.doubt) if cleared is None else cleared
            self.cleared.setdefault(ledger_id, epoch)
        if state.master_key is None:
            state.master_key = key
        return state

    def submit(self, record: Record) -> int:
        """Write a record, and return its ticket."""
        self._tickets += 1
        state = self.states.get(record.ledger_id)
        if state is not None:
            state.last_ticket = self._tickets
            record.checked = state.check_epoch
            record.key = state.master_key
            record.epoch = record.epoch or self.cleared[record.ledger_id]
        self._submitted.append(record)
        self._later(WRITE_US, self._write)
        return self._tickets

    def _write(self) -> None:
        record = self._submitted.popleft()
        directory = self.directory
        directory.append(record)
        self._written += 1
        if self.is_weak:
            assert directory.manifest is not None
            if not directory.manifest.owes_sync:
                directory.manifest = replace(directory.manifest, owes_sync=True)
            if directory.number != FAILED:
                directory.number = len(directory.records)
            self._apply(record)
        self._pop(self._on_written, self._written)
        if not self.is_weak or self._wanted > self._synced:
            self._sync()

    def _apply(self, record: Record) -> None:
        """Make a record visible: when it is written, or synced, depending on the mode."""
        state = self.states.get(record.ledger_id)
        if state is None:
            return
        if record.kind == "entry":
            self.entries.setdefault(record.ledger_id, {})[record.entry_id] = record.stored
            state.last_add_confirmed = max(state.last_add_confirmed, record.lac)
            state.last_entry_id = max(state.last_entry_id, record.entry_id)
        elif record.kind == "lac":
            state.explicit_lac = max(state.explicit_lac, record.lac)

    def apply_cleared(self, record: Record) -> None:
        """Clear a ledger, because the record about this is durable."""
        ledger_id = record.ledger_id
        self.cleared[ledger_id] = max(self.cleared.get(ledger_id, 0), record.epoch)
        state = self.states[ledger_id]
        state.explicit_lac = max(state.explicit_lac, record.lac)

    def _sync(self) -> None:
        if self._is_syncing or self._written == self._synced:
            return
        self._is_syncing = True
        covered, end = self._written, len(self.directory.records)
        fails = self.world.sync_fails(self.name)

        def synced() -> None:
            self._is_syncing = False
            if fails:
                self.directory.fail_sync(end)
                self._on_failed_sync()
                return
            self.directory.sync(end)
            if not self.is_weak:
                for record in self.directory.records[end - covered + self._synced : end]:
                    self._apply(record)
            self._synced = covered
            self._pop(self._on_synced, covered)
            if self._wanted > self._synced or (not self.is_weak and self._submitted):
                self._sync()

        self._later(self.sync_us, synced)

    def _on_failed_sync(self) -> None:
        """Stop after a failed sync.

        In half of the cases, the process dies before it learns of the failure.
        """
        self.world.checkers.mark("sync failed")
        self.note_loss("failed sync")
        if not self.world.dies_in_sync(self.name):
            self.directory.number = FAILED
        name = self.name
        self.world.kill(name)
        self.world.scheduler.call_later(5_000, lambda: self.world.restart(name))

    @staticmethod
    def _pop(waiting: deque[tuple[int, Callable[[], None]]], done: int) -> None:
        while waiting and waiting[0][0] <= done:
            waiting.popleft()[1]()

    def when_written(self, ticket: int, then: Callable[[], None]) -> None:
        """Call `then` when the records up to a ticket are written."""
        if ticket <= self._written:
            then()
        else:
            self._on_written.append((ticket, then))

    def when_synced(self, ticket: int, then: Callable[[], None]) -> None:
        """Call `then` when the records up to a ticket are synced."""
        self._wanted = max(self._wanted, ticket)
        if ticket <= self._synced:
            then()
            return
        # Tickets of waiters need not rise, and `_pop` expects them in order.
        ticket = max(ticket, self._on_synced[-1][0] if self._on_synced else 0)
        self._on_synced.append((ticket, then))
        self._sync()

    def when_acknowledged(self, ticket: int, then: Callable[[], None]) -> None:
        """Call `then` when an entry may be acknowledged."""
        if self.is_weak:
            self.when_written(ticket, then)
        else:
            self.when_synced(ticket, then)

    def ask(self, kind: str, look: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Send a request to the metadata store over the network.

        `then` gets None after a time-out.
        """
        host, network = self.host, self.world.network
        assert host is not None
        is_open = True

        def answered(answer: Any) -> None:
            nonlocal is_open
            if is_open and host.is_alive:
                is_open = False
                then(answer)

        def arrive() -> None:
            answer = look()
            network.send(Message(f"{kind}_reply", "zk", self.name, lambda: answered(answer)))

        network.send(Message(kind, self.name, "zk", arrive))
        host.call_later(ASK_MS * 1_000, lambda: answered(None))

    def load_record(self, ledger_id: int, then: OnRecord) -> None:
        """Load a record, with all changes before this call."""
        store = self.world.store

        def look() -> tuple[Versioned[LedgerMetadata] | None, int]:
            return store.records.get(ledger_id), store.created.get(ledger_id, 0)

        def answered(answer: Any) -> None:
            if answer is None:
                then(False, None, 0)
            else:
                then(True, *answer)

        self.ask("bookie_load", look, answered)
