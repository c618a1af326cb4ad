"""Ledgers of a simulated cluster: the shipped writer, recovery and bookie storage below leaders.

They replace `SimLedgers`, so that leaders roll while ensembles change, bookies stop and restart,
messages are lost, and the metadata of ledgers is written late. The invariants of each ledger
(docs/PROTOCOL.md) are checked together with those of the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState, Quorum
from ledgerlog_spark.protocol.leader.entry import (
    LeaderCodec,
    LeaderEntryHeader,
    decode_entry_header,
    encode_entry_header,
    encode_records,
)
from ledgerlog_spark.protocol.ledger import messages as pm
from ledgerlog_spark.protocol.ledger.recover.recovery import LedgerRecovery, RecoverySettings
from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.protocol.ledger.write.settings import WriterPhase, WriterSettings
from ledgerlog_spark.protocol.ledger.write.writer import ADDING, LedgerWriter
from ledgerlog_spark.retry import RetryPolicy
from tests.sim.client import SimClient, as_entry
from tests.sim.leader.ledgers import Entry, SimLedger, SimLedgers
from tests.sim.leader.world import LeaderWorld, drawn_properties, play, play_out
from tests.sim.options import Options
from tests.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LOST = (pm.Failure.FENCED, pm.Failure.CLOSED, pm.Failure.NOT_FOUND)
QUORUM = Quorum(3, 3, 2)


@dataclass
class ClusterLedger(SimLedger):
    """A ledger of the cluster. `stored` has the entries that its writer sent.

    Attributes:
        client: The client that runs its writer.
        changes: Number of ensemble changes.
    """

    client: Any = None
    changes: int = 0


class ClusterLedgers(SimLedgers):
    """All ledgers of one cluster."""

    def __init__(self, cluster: World, changes_ensemble: bool, **how: Any) -> None:
        super().__init__(**how)
        self.cluster = cluster
        self.changes_ensemble = changes_ensemble
        self.checkers = cluster.checkers
        cluster.store.on_write = self._on_write
        self._recoveries = 0

    def _on_write(self, client: str, ledger_id: int, before: Any, after: Any) -> None:
        self.checkers.of(ledger_id).written(client, ledger_id, before, after)
        ledger: Any = self.by_id[ledger_id]
        ledger.state = after.value.state
        ledger.last_entry_id = after.value.last_entry_id
        is_writer = client == ledger.client.name
        ledger.is_sealed_by_other = ledger.is_sealed_by_other or not is_writer
        ledger.changes += is_writer and after.value.fragments != before.value.fragments

    def create(self, writer: int, ledger_id: int | None = None) -> SimLedger:
        cluster = self.cluster
        if ledger_id is None:
            ledger_id = (len(self.by_id) * 7_919 + 4_999) % 10_007
        up = [name for name, bookie in cluster.bookies.items() if bookie.is_up]
        everybody = up if len(up) >= QUORUM.ensemble_size else list(cluster.bookies)
        ensemble = cluster.draws.shuffled(everybody, "ensemble", ledger_id)
        metadata = LedgerMetadata(QUORUM, (Fragment(0, ensemble[: QUORUM.ensemble_size]),))
        record = cluster.store.create(ledger_id, metadata)
        self.checkers.of(ledger_id).created(record)
        settings = WriterSettings(
            window=Window(entries_max=64, size_bytes_max=1 << 20),
            metadata=RetryPolicy(first_delay_ms=5, delay_max_ms=40, attempts_max=12),
            replacement=RetryPolicy(first_delay_ms=10, delay_max_ms=80, attempts_max=6),
            ensemble_changes_max=1_000 if self.changes_ensemble else 0,
        )
        machine = LedgerWriter(ledger_id=ledger_id, created=record, settings=settings)
        client = SimClient(cluster, f"w{ledger_id}", machine, ledger_id)
        cluster.clients[client.name] = client
        ledger = self.by_id[ledger_id] = ClusterLedger(ledger_id, writer, client=client)
        client.on_indication = lambda indication: self._on_writer(ledger, indication)
        return ledger

    def _on_writer(self, ledger: ClusterLedger, indication: Any) -> None:
        if isinstance(indication, pm.RunConfirmed):
            ledger.confirmed = indication.last_entry_id + 1
            self.on_confirmed(ledger, indication.last_entry_id)
        elif isinstance(indication, pm.LedgerFailed) and not ledger.is_broken:
            ledger.is_broken = True
            self.on_broken(ledger, indication.failure in LOST)

    def add(self, ledger: Any, entry: Entry) -> None:
        machine = ledger.client.machine
        if machine.phase not in ADDING:
            return
        assert machine.can_add, "the window of the ledger is larger than the leader's"
        payload = payload_of(entry)
        self.checkers.of(ledger.ledger_id).payloads[machine.next_entry_id] = payload
        ledger.stored.append(entry)
        ledger.client.feed(pm.AddRequested((payload,)))

    def close(self, ledger: Any, then: Callable[[bool | None], None]) -> None:
        client, machine = ledger.client, ledger.client.machine
        if not client.is_alive:
            return
        ledger.is_broken = True
        if machine.phase is WriterPhase.CLOSED:
            then(True)
            return

        def ended(indication: Any) -> None:
            if isinstance(indication, pm.LedgerClosed):
                then(True)
            elif isinstance(indication, pm.LedgerFailed):
                then(False if indication.failure in LOST else None)

        client.on_indication = ended
        client.feed(pm.CloseRequested())

    def seal(self, ledger: Any, then: Callable[[SimLedger | None], None]) -> None:
        self._recoveries += 1
        machine = LedgerRecovery(
            ledger_id=ledger.ledger_id,
            password=b"",
            settings=RecoverySettings(
                metadata=RetryPolicy(first_delay_ms=5, delay_max_ms=40, attempts_max=10),
                retry=RetryPolicy(first_delay_ms=10, delay_max_ms=50, attempts_max=4),
            ),
        )
        name = f"r{ledger.ledger_id}.{self._recoveries}"
        client = SimClient(self.cluster, name, machine, ledger.ledger_id)
        self.cluster.clients[name] = client

        def ended(indication: Any) -> None:
            if isinstance(indication, pm.LedgerClosed):
                then(ledger)
            elif isinstance(indication, pm.LedgerFailed):
                then(ledger if indication.failure is pm.Failure.NOT_FOUND else None)

        client.on_indication = ended
        client.feed(pm.Start())

    def drop(self, ledger_id: int) -> None:
        """Drop a ledger, which must be closed or must never have been written."""
        ledger = self.by_id[ledger_id]
        assert ledger.state is LedgerState.CLOSED or not ledger.stored, ledger
        if not ledger.is_deleted:
            ledger.is_deleted = True
            self.cluster.store.delete(ledger_id)

    def die(self, writer: int) -> None:
        """Let the process that writes the ledgers of `writer` die."""
        for ledger in self.by_id.values():
            assert isinstance(ledger, ClusterLedger)
            if ledger.writer == writer:
                ledger.client.crash()

    def check_bytes(self, ledger_id: int) -> str:
        """Return what is wrong with the copies of a closed ledger on bookies; empty if nothing."""
        ledger = self.by_id[ledger_id]
        metadata = self.cluster.store.records[ledger_id].value
        for entry_id, entry in enumerate(ledger.entries):
            ensemble = metadata.fragment_of(entry_id).ensemble
            found = [self.cluster.bookies[name].peek(ledger_id, entry_id) for name in ensemble]
            copies = [as_entry(stored, ledger_id, entry_id) for stored in found if stored]
            if len(copies) < QUORUM.ack_quorum:
                return f"entry {entry_id} of {ledger_id} has {len(copies)} copies (PROTOCOL.md#L5)"
            for copy in copies:
                if copy is None or bytes(copy.payload) != payload_of(entry):
                    return f"entry {entry_id} of {ledger_id} has other bytes (PROTOCOL.md#L6)"
                if decode_entry_header(copy.payload).first_offset != entry.first_offset:
                    return f"entry {entry_id} of {ledger_id} has another offset"
        return ""


def payload_of(entry: Entry) -> bytes:
    """Return the payload of an entry as a leader log stores it."""
    body = encode_records([f"{entry.name!r} {n}".encode() for n in range(entry.records)])
    header = LeaderEntryHeader(
        LeaderCodec.PLAIN, entry.first_offset, entry.append_time_ms, entry.records, len(body)
    )
    return encode_entry_header(header) + body


class ClusterLeaderWorld(LeaderWorld):
    """Leaders over a simulated cluster, in its time."""

    def __init__(
        self, seed: int, options: Options, properties: Mapping[str, str] | None = None
    ) -> None:
        self.cluster = World(seed, options)
        super().__init__(seed, properties)
        how = (properties or {}).get("onBookieFailure", "change_ensemble")
        self.ledgers = ClusterLedgers(
            self.cluster,
            how == "change_ensemble",
            random=self.random,
            later=self.later,
            now_ms=lambda: self.now,
            on_confirmed=self._on_confirmed,
            on_broken=self._on_broken,
        )

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._actions += 1

        def run() -> None:
            self._actions -= 1
            self.now = 1_000 + self.cluster.scheduler.now_us // 1_000
            call()

        self.cluster.scheduler.call_later(delay_ms * 1_000, run)

    _actions = 0

    def run(self) -> None:
        """Run until all actors have ended. The timers of the cluster never end."""
        for _ in range(400_000):
            if not self._actions or not self.cluster.scheduler.step():
                self.check_all_ended()
                return
            self.now = 1_000 + self.cluster.scheduler.now_us // 1_000
        raise self.violation("the schedule does not end")

    @property
    def events(self) -> int:
        """The number of all events of the cluster."""
        return self.cluster.scheduler.events

    @property
    def faults(self) -> int:
        """The number of faults of the store and of the cluster."""
        return super().faults + len(self.cluster.faults.happened)

    def heal(self) -> None:
        super().heal()
        self.cluster.heal()

    def check_whole(self) -> None:
        super().check_whole()
        for item in self.checks.items(self.store.state):
            wrong = self.ledgers.check_bytes(item.ledger_id)
            self.require(not wrong, wrong)

    def end(self) -> None:
        """End everything that still runs."""
        self.cluster.scheduler.close()


def plan_faults(world: ClusterLeaderWorld, crashes: int, partitions: int) -> None:
    """Plan crashes and restarts of bookies, one at a time, and cuts of links for a time."""
    cluster, random = world.cluster, world.random
    names = list(cluster.bookies)
    at = 0
    for _ in range(crashes):
        at += random.randint(20, 400)
        victim, power = random.choice(names), random.random() < 0.3
        back = at + random.randint(5, 150)
        world.later(at, partial(_kill, world, victim, power=power))
        world.later(back, partial(cluster.restart, victim))
        at = back
    for _ in range(partitions):
        alone = random.choice([*names, "zk"])
        others = tuple(name for name in names if name != alone)
        begin = random.randint(0, 1_500)
        end = begin + random.randint(10, 200)
        cut = partial(_cut, world, alone, others, both_ways=random.random() < 0.6)
        world.later(begin, partial(cut, joins=False))
        world.later(end, partial(cut, joins=True))


def _kill(world: ClusterLeaderWorld, victim: str, *, power: bool) -> None:
    if world.cluster.bookies[victim].is_up and world.cluster.faults.take(f"kill at {world.now}"):
        world.cluster.kill(victim, power=power)


def _cut(
    world: ClusterLeaderWorld,
    alone: str,
    others: tuple[str, ...],
    *,
    both_ways: bool,
    joins: bool,
) -> None:
    if world.cluster.faults.is_healed:
        return
    network = world.cluster.network
    world.cluster.faults.take(f"partition at {world.now}")
    (network.join if joins else network.part)((alone,), others, both_ways=both_ways)


def cluster_schedule(seed: int) -> ClusterLeaderWorld:
    """Run the same schedule as `world.schedule`, over a cluster with its own faults."""
    draws = Random(seed * 37 + 5)
    options = Options(
        quorum=QUORUM,
        bookies=draws.choice((3, 4, 5)),
        rpc_timeout_ms=draws.choice((20, 40, 120)),
        drop_rate=draws.choice((0, 0, 0.03)),
        duplicate_rate=draws.choice((0, 0.05)),
        tail_rate=draws.choice((0, 0.1)),
        tail_ms=draws.choice((20, 60, 300)),
        cas_lost_rate=draws.choice((0, 0.1)),
        cas_late_rate=draws.choice((0, 0.05)),
        store_away_rate=draws.choice((0, 0.1)),
    )
    world = ClusterLeaderWorld(seed, options, drawn_properties(draws))
    plan_faults(world, draws.choice((0, 1, 3)), draws.choice((0, 0, 2)))
    try:
        play_out(world, play)
    finally:
        world.end()
    return world
