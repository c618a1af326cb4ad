"""One simulated cluster: bookies, a metadata store, clients, a network, a checker and the time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

from ledgerlog_spark.model import (
    FRAME_SIZE_BYTES_MAX,
    NO_ENTRY,
    Fragment,
    LedgerMetadata,
    Quorum,
)
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.read.budget import ReaderSettings
from ledgerlog_spark.protocol.ledger.read.lac import LacReader
from ledgerlog_spark.protocol.ledger.read.reader import LedgerReader
from ledgerlog_spark.protocol.ledger.recover.reads import ReadAhead
from ledgerlog_spark.protocol.ledger.recover.recovery import LedgerRecovery, RecoverySettings
from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.protocol.ledger.write.settings import WriterSettings
from ledgerlog_spark.protocol.ledger.write.writer import LedgerWriter
from ledgerlog_spark.retry import RetryPolicy
from tests.sim.audit import Audit
from tests.sim.bookie import SimBookie
from tests.sim.checker import Checker, require
from tests.sim.checkers import Checkers
from tests.sim.client import SimClient
from tests.sim.draws import Draws
from tests.sim.faults import Faults
from tests.sim.late_add import KEY
from tests.sim.metadata_store import SimMetadataStore
from tests.sim.network import Message, Network
from tests.sim.options import IMPATIENT_MS, LEDGER, Options
from tests.sim.runtime import Scheduler

ANSWERED_MS = 1_000
"""A bookie whose disk failed has answered all requests within this virtual time."""


class World:
    """Everything of one schedule.

    Attributes:
        dies_at_change: Writers that die immediately after their next ensemble change.
        trace: Lines that describe the events, kept only if requested.
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
        self.scheduler = Scheduler()
        self.faults = Faults(
            self.draws,
            suppressed,
            budget=options.faults_max,
            now_us=lambda: self.scheduler.now_us,
        )
        if options.rpc_timeout_ms <= IMPATIENT_MS:
            self.faults.lasts("impatient", 1 << 60)
        self.network = Network(
            self.scheduler,
            self.faults,
            drop_rate=options.drop_rate,
            duplicate_rate=options.duplicate_rate,
            tail_rate=options.tail_rate,
            tail_ms=options.tail_ms,
        )
        self.store = self.new_store()
        self.checkers = self.new_checkers()
        self.next_ledger_id = LEDGER + 1
        self.store.on_write = self._on_write
        self.bookies = {
            name: self.new_bookie(name) for name in (f"b{i}" for i in range(options.bookies))
        }
        self.clients: dict[str, SimClient] = {}
        self.dies_at_change: set[str] = set()
        self.prefers: dict[str, tuple[str, ...]] = {}
        self.trace: list[str] | None = [] if keeps_trace else None
        if keeps_trace:
            self.network.on_event = lambda line: self.note("network", line)

    def new_store(self) -> SimMetadataStore:
        return SimMetadataStore(self.faults)

    def new_checkers(self) -> Checkers:
        return Checkers()

    def new_bookie(self, name: str) -> SimBookie:
        return SimBookie(self, name)

    def note(self, who: str, what: object) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.scheduler.now_us / 1000:9.3f} {who}: {what}")

    @property
    def trace_hash(self) -> str:
        assert self.trace is not None
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    def _on_write(self, client: str, ledger_id: int, before: Any, after: Any) -> None:
        self.note("zk", f"{client} wrote {after.value.state.name} {after.value.fragments}")
        self.checkers.of(ledger_id).written(client, ledger_id, before, after)
        rate = self.options.delete_closed_rate
        if after.value.is_closed and self.faults.happens(rate, "delete", "closed", ledger_id):
            self.checkers.mark("deleted when closed")
            self.scheduler.call_later(0, lambda: self.delete_ledger(ledger_id))

    @property
    def checker(self) -> Checker:
        """The checker of the ledger that every schedule has."""
        return self.checkers.of(LEDGER)

    def create_ledger(
        self,
        quorum: Quorum,
        ensemble: tuple[str, ...],
        *,
        ledger_id: int = LEDGER,
        name: str = "w",
        address: str = "",
        absent: tuple[str, ...] = (),
    ) -> SimClient:
        """Return the writer of a new ledger, which names bookies `absent` that are away."""
        metadata = LedgerMetadata(quorum, (Fragment(0, ensemble),))
        record = self.store.create(ledger_id, metadata)
        self.checkers.of(ledger_id).created(record, absent)
        attempts = self.options.metadata_attempts_max
        settings = WriterSettings(
            window=Window(entries_max=self.options.window_entries, size_bytes_max=1 << 20),
            metadata=RetryPolicy(first_delay_ms=5, delay_max_ms=40, attempts_max=attempts),
            replacement=RetryPolicy(first_delay_ms=10, delay_max_ms=80, attempts_max=6),
            absence_poll_ms=40,
            ensemble_changes_max=self.options.ensemble_changes_max,
            add_quorum_timeout_ms=self.options.add_quorum_timeout_ms,
        )
        machine = LedgerWriter(
            ledger_id=ledger_id, created=record, settings=settings, absent=absent
        )
        return self.client(name, machine, ledger_id, address)

    def client(
        self, name: str, machine: Any, ledger_id: int = LEDGER, address: str = ""
    ) -> SimClient:
        self.clients[name] = client = SimClient(self, name, machine, ledger_id, address)
        return client

    def recoverer(
        self,
        name: str,
        *,
        ledger_id: int = LEDGER,
        floor: int = NO_ENTRY,
        attempts_max: int = 4,
        address: str = "",
        password: bytes = b"",
    ) -> SimClient:
        attempts = self.options.metadata_attempts_max
        settings = RecoverySettings(
            read_ahead=ReadAhead(
                entries_first=2,
                entries_max=16,
                slow_member_ms=self.options.hedge_ms,
                batch_entries_max=self.options.recovery_batch_entries,
                **self._recovery_bound(),
            ),
            window=Window(entries_max=self.options.window_entries, size_bytes_max=1 << 20),
            metadata=RetryPolicy(first_delay_ms=5, delay_max_ms=40, attempts_max=attempts),
            retry=RetryPolicy(first_delay_ms=10, delay_max_ms=50, attempts_max=attempts_max),
        )
        return self.client(
            name,
            LedgerRecovery(
                ledger_id=ledger_id, password=password, floor_entry_id=floor, settings=settings
            ),
            ledger_id,
            address,
        )

    def _recovery_bound(self) -> dict[str, int]:
        entries = self.options.recovery_buffered_entries
        if entries is None:
            return {}
        return {"size_bytes_max": entries * max(10, self.options.entry_size_bytes)}

    def payload(self, entry_id: int, ledger_id: int = LEDGER) -> bytes:
        text = f"w{ledger_id}:{entry_id}:".encode()
        payload = text + hashlib.blake2b(text, digest_size=1 + entry_id % 5).digest()
        return payload + bytes(max(0, self.options.entry_size_bytes - len(payload)))

    def add(self, entries: int = 1, name: str = "w") -> None:
        """Let a writer add a run of entries."""
        writer = self.clients[name]
        out, window = writer.entries_asked, self.options.window_entries
        require(out < window, "V12", f"{name} has {out} entries on their way, allowed are {window}")
        first, ledger_id = writer.machine.next_entry_id, writer.ledger_id
        payloads = tuple(self.payload(first + i, ledger_id) for i in range(entries))
        checker = self.checkers.of(ledger_id)
        checker.payloads.update(enumerate(payloads, first))
        checker.added_us.update(dict.fromkeys(range(first, first + entries), self.scheduler.now_us))
        self.note(name, f"adds {first}..{first + entries - 1}")
        writer.feed(m.AddRequested(payloads))

    def candidates(self, client: str, number: int, up: list[str]) -> tuple[str, ...]:
        """Return the bookies that accept writes, in random order or in the order of a script."""
        preferred = self.prefers.get(client, self.prefers.get("*"))
        if preferred is not None:
            return tuple(name for name in preferred if name in up)
        return self.draws.shuffled(up, "candidates", client, number)

    def kill(self, name: str, *, power: bool = False) -> None:
        self.note(name, "loses power" if power else "is killed")
        self.faults.lasts("power" if power else "kill")
        self.checkers.mark("power loss" if power else "process killed")
        self.bookies[name].stop(power=power)

    def tell_lost(self, name: str) -> None:
        """Tell all writers that a bookie has not been registered for long."""
        self.note(name, "counts as lost")
        for client in list(self.clients.values()):
            if client.is_alive and isinstance(client.machine, LedgerWriter):
                client.feed(m.MemberLost(name))

    def stop_failed(self, name: str, host: object, *, waited_ms: int = 0) -> None:
        """End the process of a bookie after a failed write or sync, when it has answered."""
        bookie = self.bookies[name]
        if bookie.host is not host:
            return
        if bookie.storage is not None and bookie.unanswered:
            left = f"{name} leaves {bookie.unanswered} requests without an answer after a failure"
            require(waited_ms < ANSWERED_MS, "V1", left)
            self.scheduler.call_later(
                2_000, lambda: self.stop_failed(name, host, waited_ms=waited_ms + 2)
            )
        else:
            bookie.require_nothing_in_flight()
            self.note(name, "stops after a disk error")
            self.checkers.mark("stopped after a disk error")
            self.faults.lasts("disk", 20_000)
            self.bookies[name].stop(power=False)
            self.scheduler.call_later(20_000, lambda: self.restart(name))

    def replay_adds(self, ledger_id: int, replaced: tuple[str, ...]) -> None:
        """Send replaced bookies their last adds again: late, and twice."""
        rate = self.options.late_add_rate
        for name in replaced:
            bookie = self.bookies[name]
            adds = [one for one in bookie.last_adds if one.ledger_id == ledger_id]
            if not adds or not self.faults.happens(rate, "late", name, len(self.faults.happened)):
                continue
            self.checkers.mark("late add")
            for delay_ms in (1, 20, 30, 60, 61):
                for add in adds:
                    self.scheduler.call_later(
                        delay_ms * 1_000,
                        partial(lambda add, bookie: bookie.add(add, lambda _: None), add, bookie),
                    )

    def restart(self, name: str) -> None:
        bookie = self.bookies[name]
        if bookie.is_up:
            return
        if bookie.host is not None:
            # The bookie is stopping cleanly, but has not ended yet.
            self.scheduler.call_later(1_000, lambda: self.restart(name))
            return
        self.note(name, "starts")
        bookie.start()

    def crash(self, name: str, why: str) -> None:
        """Let a bookie die now, and restart it after a while."""
        bookie = self.bookies[name]
        if not bookie.is_up or self.faults.is_healed:
            return
        draws, boots = self.draws, bookie.boots
        down_us = draws.integer(1_000, 40_000, "down", why, name, boots)
        self.faults.lasts("kill", down_us)
        self.checkers.mark(f"crash at {why}")
        self.kill(name, power=draws.uniform("power", why, name, boots) < 0.5)
        self.scheduler.call_later(down_us, lambda: self.restart(name))

    def reset(self, client: str, bookie_id: str) -> None:
        """Break the connection of one client process to one bookie."""
        for one in list(self.clients.values()):
            if one.address == client and one.is_alive and one.reset(bookie_id):
                self.checkers.mark("connection reset")

    def announce(self, name: str, *, is_written: bool = True) -> None:
        """Send a writer's LAC to its ensemble, to write or to remember. No client waits for it."""
        writer = self.clients[name]
        lac, ledger_id = writer.machine.last_add_confirmed, writer.ledger_id
        if not writer.is_alive or lac == NO_ENTRY:
            return
        for bookie_id in writer.machine.metadata.value.last_fragment.ensemble:
            bookie = self.bookies[bookie_id]
            self.network.send(
                Message(
                    "write_lac",
                    writer.address,
                    bookie_id,
                    partial(
                        lambda bookie: bookie.take_lac(ledger_id, lac, KEY, is_written=is_written),
                        bookie,
                    ),
                )
            )

    def lose_state(self, name: str) -> None:
        """Lose power in the middle of a write: the next boot cuts the torn tail."""
        self.note(name, "loses power in the middle of a write")
        self.bookies[name].tear()
        self.restart(name)

    def delete_ledger(self, ledger_id: int = LEDGER) -> None:
        if ledger_id not in self.store.records:
            return
        self.note("zk", f"ledger {ledger_id} is deleted")
        self.store.delete(ledger_id)
        self.checkers.of(ledger_id).is_deleted = True

    def collect(self, name: str) -> None:
        """Let a bookie run a pass of garbage collection."""
        self.note(name, "collects garbage")
        self.checkers.mark("garbage collected")
        self.bookies[name].collect()

    def run_for(self, duration_ms: float) -> None:
        end_us = self.scheduler.now_us + int(duration_ms * 1_000)
        self.scheduler.call_at(end_us, lambda: None)
        while self.scheduler.now_us < end_us:
            self.scheduler.step()

    def run_until(self, is_reached: Callable[[], bool], within_ms: int) -> bool:
        """Run until a condition holds. Return False if it does not hold within the virtual time."""
        end_us = self.scheduler.now_us + within_ms * 1_000
        while not is_reached():
            if self.scheduler.now_us > end_us or not self.scheduler.step():
                return False
        return True

    def heal(self) -> None:
        """End all faults: every bookie runs, and every message arrives."""
        self.faults.is_healed = True
        self.network.heal()
        for name, bookie in self.bookies.items():
            bookie.heal()
            self.restart(name)
        self.note("world", "healed")

    def audit(self) -> None:
        """Heal the cluster, and check all invariants (tests/sim/audit.py)."""
        Audit(self).run()

    def let_go(self) -> None:
        """After the audit, delete all ledgers. Bookies must drop them (PROTOCOL.md#V10)."""
        Audit(self).let_go()

    def reader(
        self,
        name: str,
        metadata: LedgerMetadata,
        last_entry_id: int,
        *,
        ledger_id: int = LEDGER,
        pause_us: int = 0,
    ) -> SimClient:
        """Return a client that reads from the beginning to `last_entry_id` (inclusive)."""
        frames = self.options.read_frames
        machine = LedgerReader(
            metadata=metadata,
            first_entry_id=0,
            last_entry_id=last_entry_id,
            settings=ReaderSettings(
                batch_entries_max=self.options.read_batch_entries,
                entries_ahead_max=self.options.read_ahead_entries,
                hedge_delay_ms=20,
                overload=RetryPolicy(
                    first_delay_ms=5,
                    delay_max_ms=20,
                    attempts_max=self.options.overload_attempts,
                ),
                **({} if frames is None else {"size_bytes_max": frames * FRAME_SIZE_BYTES_MAX}),
            ),
        )
        client = self.client(name, machine, ledger_id)

        def take(indication: Any) -> None:
            if not isinstance(indication, m.EntriesRead):
                return
            taken = m.EntriesTaken(indication.entries[-1].entry_id)
            if not pause_us:
                client.feed(taken)
                return
            client.waits_for_application = True

            def later() -> None:
                client.waits_for_application = False
                client.feed(taken)

            self.scheduler.call_later(pause_us, later)

        client.on_indication = take
        client.feed(m.Start())
        return client

    def lac_reader(
        self, name: str, metadata: LedgerMetadata, *, ledger_id: int = LEDGER
    ) -> SimClient:
        """Return a client that reads the LAC of a ledger, and has the metadata `metadata`."""
        machine = LacReader(metadata=metadata, waits_for_all=True)
        client = self.client(name, machine, ledger_id)
        client.feed(m.Start())
        return client
