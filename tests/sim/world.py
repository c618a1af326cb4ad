"""One simulated cluster: bookies, a metadata store, clients, a network, a checker and the time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from ledgerlog_spark.model import NO_ENTRY, Fragment, LedgerMetadata, Quorum
from ledgerlog_spark.protocol import messages as m
from ledgerlog_spark.protocol.add_pipeline import Window
from ledgerlog_spark.protocol.lac import LacReader
from ledgerlog_spark.protocol.reader import LedgerReader, ReaderSettings
from ledgerlog_spark.protocol.recovery import LedgerRecovery, RecoverySettings
from ledgerlog_spark.protocol.recovery_reads import ReadAhead
from ledgerlog_spark.protocol.retry import RetryPolicy
from ledgerlog_spark.protocol.writer import LedgerWriter, WriterSettings
from tests.sim.bookie import SimBookie
from tests.sim.checker import Checker, Violation, require, write_set
from tests.sim.client import SimClient, as_entry
from tests.sim.disk import Faults as DiskFaults
from tests.sim.draws import Draws
from tests.sim.faults import Faults
from tests.sim.metadata_store import SimMetadataStore
from tests.sim.network import Network
from tests.sim.options import Options
from tests.sim.runtime import Scheduler

LEDGER = 7
LATE_MS = 1_000
"""The last message of a schedule has arrived so long after its audit."""


class World:
    """Everything of one schedule.

    Attributes:
        trace: Lines of what happened, kept only when asked for.
    """

    def __init__(
        self,
        seed: int,
        options: Options,
        *,
        suppressed: frozenset[str] = frozenset(),
        keeps_trace: bool = False,
    ) -> None:
        self.options = options
        self.draws = Draws(seed)
        self.faults = Faults(self.draws, suppressed)
        self.scheduler = Scheduler()
        self.network = Network(
            self.scheduler,
            self.faults,
            drop_rate=options.drop_rate,
            duplicate_rate=options.duplicate_rate,
            tail_rate=options.tail_rate,
            tail_ms=options.tail_ms,
        )
        self.store = SimMetadataStore(self.faults)
        self.checker = Checker()
        self.store.on_write = self._on_write
        self.bookies = {
            name: SimBookie(self, name) for name in (f"b{i}" for i in range(options.bookies))
        }
        self.clients: dict[str, SimClient] = {}
        self.prefers: dict[str, tuple[str, ...]] = {}
        self.trace: list[str] | None = [] if keeps_trace else None
        if keeps_trace:
            self.network.on_event = lambda line: self.note("network", line)

    def note(self, who: str, what: object) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.scheduler.now_us / 1000:9.3f} {who}: {what}")

    @property
    def trace_hash(self) -> str:
        assert self.trace is not None
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    def _on_write(self, client: str, ledger_id: int, before: Any, after: Any) -> None:
        self.note("zk", f"{client} wrote {after.value.state.name} {after.value.fragments}")
        self.checker.written(client, ledger_id, before, after)

    def create_ledger(self, quorum: Quorum, ensemble: tuple[str, ...]) -> SimClient:
        """The writer `w` of a new ledger."""
        record = self.store.create(LEDGER, LedgerMetadata(quorum, (Fragment(0, ensemble),)))
        self.checker.created(record)
        settings = WriterSettings(
            window=Window(entries_max=self.options.window_entries, size_bytes_max=1 << 20),
            metadata=RetryPolicy(first_delay_ms=5, delay_max_ms=40, attempts_max=12),
            replacement=RetryPolicy(first_delay_ms=10, delay_max_ms=80, attempts_max=6),
        )
        return self.client("w", LedgerWriter(ledger_id=LEDGER, created=record, settings=settings))

    def client(self, name: str, machine: Any) -> SimClient:
        self.clients[name] = client = SimClient(self, name, machine, LEDGER)
        return client

    def recoverer(self, name: str, *, floor: int = NO_ENTRY, attempts_max: int = 4) -> SimClient:
        settings = RecoverySettings(
            read_ahead=ReadAhead(
                entries_first=2,
                entries_max=16,
                hedge_delay_ms=self.options.hedge_ms,
                batch_entries_max=self.options.recovery_batch_entries,
            ),
            window=Window(entries_max=self.options.window_entries, size_bytes_max=1 << 20),
            metadata=RetryPolicy(first_delay_ms=5, delay_max_ms=40, attempts_max=10),
            retry=RetryPolicy(first_delay_ms=10, delay_max_ms=50, attempts_max=attempts_max),
        )
        return self.client(
            name,
            LedgerRecovery(ledger_id=LEDGER, password=b"", floor_entry_id=floor, settings=settings),
        )

    def payload(self, entry_id: int) -> bytes:
        text = f"w:{entry_id}:".encode()
        return text + hashlib.blake2b(text, digest_size=1 + entry_id % 5).digest()

    def add(self, entries: int = 1) -> None:
        """Let the writer add a run."""
        writer = self.clients["w"]
        first = writer.machine.next_entry_id
        payloads = tuple(self.payload(first + i) for i in range(entries))
        self.checker.payloads.update(enumerate(payloads, first))
        self.note("w", f"adds {first}..{first + entries - 1}")
        writer.feed(m.AddRequested(payloads))

    def candidates(self, client: str, number: int, up: list[str]) -> tuple[str, ...]:
        """Bookies that take writes, shuffled, or in the order a script prefers."""
        preferred = self.prefers.get(client, self.prefers.get("*"))
        if preferred is not None:
            return tuple(name for name in preferred if name in up)
        return self.draws.shuffled(up, "candidates", client, number)

    def kill(self, name: str, *, power: bool = False) -> None:
        self.note(name, "loses power" if power else "is killed")
        self.checker.mark("power loss" if power else "process killed")
        self.bookies[name].stop(power=power)

    def stop_failed(self, name: str, host: object) -> None:
        """The process of a bookie ends itself after a write or sync error."""
        if self.bookies[name].host is host:
            self.note(name, "stops after a disk error")
            self.checker.mark("stopped after a disk error")
            self.bookies[name].stop(power=False)
            self.scheduler.call_later(20_000, lambda: self.restart(name))

    def restart(self, name: str) -> None:
        if not self.bookies[name].is_up:
            self.note(name, "starts")
            self.bookies[name].start()

    def lose_state(self, name: str) -> None:
        """Lose power in the middle of a write: the next boot cuts the torn tail."""
        self.kill(name, power=True)
        self.bookies[name].disk.tear_tail()
        self.restart(name)

    def delete_ledger(self) -> None:
        self.note("zk", "the ledger is deleted")
        self.store.delete(LEDGER)
        self.checker.is_deleted = True

    def collect(self, name: str) -> None:
        """Let a bookie look for deleted ledgers."""
        self.note(name, "collects garbage")
        self.checker.mark("garbage collected")
        self.bookies[name].collect()

    def run_for(self, duration_ms: float) -> None:
        end_us = self.scheduler.now_us + int(duration_ms * 1_000)
        self.scheduler.call_at(end_us, lambda: None)
        while self.scheduler.now_us < end_us:
            self.scheduler.step()

    def run_until(self, is_reached: Callable[[], bool], within_ms: int) -> bool:
        """Run until a condition holds; False when it did not within so much virtual time."""
        end_us = self.scheduler.now_us + within_ms * 1_000
        while not is_reached():
            if self.scheduler.now_us > end_us or not self.scheduler.step():
                return False
        return True

    def heal(self) -> None:
        """The end of all faults: every bookie runs, every message arrives."""
        self.faults.is_healed = True
        self.network.heal()
        for name, bookie in self.bookies.items():
            bookie.disk.faults = DiskFaults()
            self.restart(name)
        self.note("world", "healed")

    def seal(self) -> LedgerMetadata:
        """After healing: recovery must come to an end within bounded time (V1, V3)."""
        for number in range(5):
            name = f"final{number}"
            client = self.recoverer(name)
            client.feed(m.Start())
            ended = self.run_until(lambda c=client: c.ended is not None, 20_000)
            require(ended, "V1", f"{name} did not end within 20 s of a healthy cluster")
            if isinstance(client.ended, m.LedgerClosed):
                return client.ended.versioned.value
        raise Violation("V1", f"a healthy cluster cannot close the ledger: {client.ended}")

    def settle_writer(self) -> None:
        """After healing: every pending add of a live writer is confirmed or fails (V9)."""
        writer = self.clients["w"]
        settled = self.run_until(
            lambda: (
                not writer.is_alive
                or not writer.machine.is_adding
                or self.checker.last_confirmed == writer.machine.next_entry_id - 1
            ),
            20_000,
        )
        require(
            settled,
            "V9",
            f"entry {self.checker.last_confirmed + 1} is neither confirmed nor failed after 20 s "
            "of a healthy cluster",
        )

    def settle_clients(self) -> None:
        """After healing: whoever recovers or reads ends within bounded time (V1)."""
        for name, client in list(self.clients.items()):
            if name == "w":
                continue
            ended = self.run_until(
                lambda client=client: client.ended is not None or not client.is_alive, 20_000
            )
            require(
                ended,
                "V1",
                f"{name} is in {client.machine.phase.name} after 20 s of a healthy cluster",
            )

    def audit(self) -> None:
        """Heal, let all clients end, seal, and read everything back (L3, L5, L23).

        Of a deleted ledger only the writer is left to be asked.
        """
        self.heal()
        self.settle_writer()
        self.settle_clients()
        if LEDGER not in self.store.records:
            return
        metadata = self.seal()
        checker = self.checker
        require(
            metadata.last_entry_id >= checker.last_confirmed,
            "L1",
            f"closed at {metadata.last_entry_id}, confirmed {checker.last_confirmed}",
        )
        for entry_id in range(metadata.last_entry_id + 1):
            ensemble = metadata.fragment_of(entry_id).ensemble
            copies = 0
            for index in write_set(metadata.quorum, entry_id):
                stored = self.bookies[ensemble[index]].peek(LEDGER, entry_id)
                if stored is not None:
                    entry = as_entry(stored, LEDGER, entry_id)
                    require(
                        entry is not None and bytes(entry.payload) == checker.payloads[entry_id],
                        "L6",
                        f"{ensemble[index]} has other bytes as entry {entry_id}",
                    )
                    copies += 1
            name = "L3" if copies == 0 else "L5"
            require(
                copies >= metadata.quorum.ack_quorum,
                name,
                f"entry {entry_id} has {copies} copies in {ensemble}",
            )
        self._read_everything(metadata)
        require(len(set(checker.ends.values())) <= 1, "L23", f"different ends: {checker.ends}")

    def let_go(self) -> None:
        """After the audit the ledger is deleted: every bookie drops it and stays fenced (V10)."""
        self.run_for(LATE_MS)
        self.delete_ledger()
        # The others were never asked anything, so they never started.
        for name, bookie in self.bookies.items():
            if not bookie.boots:
                continue
            self.run_until(lambda bookie=bookie: bookie.storage is not None, 1_000)
            ended: list[str] = []
            bookie.collect(lambda ended=ended: ended.append("ended"))
            self.run_until(lambda ended=ended: bool(ended), 1_000)
            require(bool(ended) and bookie.storage is not None, "V10", f"{name} collects for ever")
            if self.checker.fenced.get(name, False):
                require(bookie.storage.is_fenced(LEDGER), "V10", f"{name} forgot its fence")
            held = LEDGER in bookie.storage.droppable()
            require(not held, "V10", f"{name} still has the deleted ledger")

    def _read_everything(self, metadata: LedgerMetadata) -> None:
        if metadata.last_entry_id < 0:
            return
        client = self.reader("audit", metadata, metadata.last_entry_id)
        ended = self.run_until(lambda: client.ended is not None, 20_000)
        require(
            ended and isinstance(client.ended, m.RangeRead),
            "L3",
            f"reading everything back ends with {client.ended}",
        )

    def reader(self, name: str, metadata: LedgerMetadata, last_entry_id: int) -> SimClient:
        """A client that reads from the beginning to `last_entry_id` (inclusive)."""
        machine = LedgerReader(
            metadata=metadata,
            first_entry_id=0,
            last_entry_id=last_entry_id,
            settings=ReaderSettings(batch_entries_max=5, hedge_delay_ms=20),
        )
        client = self.client(name, machine)

        def take(indication: Any) -> None:
            if isinstance(indication, m.EntriesRead):
                client.feed(m.EntriesTaken(indication.entries[-1].entry_id))

        client.on_indication = take
        client.feed(m.Start())
        return client

    def lac_reader(self, name: str, metadata: LedgerMetadata) -> SimClient:
        """A client that asks how far the ledger is confirmed, knowing the record as it was."""
        client = self.client(name, LacReader(metadata=metadata, waits_for_all=True))
        client.feed(m.Start())
        return client
