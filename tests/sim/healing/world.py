"""A cluster with replication workers, an auditor, and bookies that release ledgers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from random import Random
from typing import Any

from bookie_server.core.doubt import Doubt
from bookie_server.core.manifest_codec import Manifest
from bookie_server.core.requests import StoredAdd, StoredBatchRead, StoredRead
from bookie_server.service.collector import Collector
from ledgerlog_spark.model import Code, LedgerMetadata
from ledgerlog_spark.protocol.autorecovery.replicate import messages as r
from tests.sim.audit import HEALTHY_MS, Audit
from tests.sim.checker import require
from tests.sim.directories import DISK_SEEDS
from tests.sim.disk import SimDisk
from tests.sim.healing.checker import HealingCheckers
from tests.sim.healing.jobs import SETTINGS, Job
from tests.sim.healing.store import HealingStore, Session
from tests.sim.healing.workers import ApacheWorker, HealWorker
from tests.sim.late_add import KEY
from tests.sim.options import Options
from tests.sim.release.world import ReleaseBookie, ReleaseOptions, ReleaseWorld

AUDIT_MS = 25
"""The pause between two passes of the auditor."""
PASSES_PER_COMPACTION = 16
LOST_MS = 60
"""A bookie is lost if it is away for this time."""


@dataclass(frozen=True)
class HealingOptions(ReleaseOptions):
    """The options of one schedule with workers.

    Attributes:
        deaths: Number of bookies that die, and return late or never. healers, apache_healers:
        Number of our workers, and of models of Apache's. expiries, worker_crashes: Number of
        sessions that end, and of workers that die.
        spare_wipes: Number of bookies that lose their directory while no ledger names them.
        sleep_rate: Probability that a worker sleeps before an effect.
    """

    deaths: int = 1
    healers: int = 2
    apache_healers: int = 0
    expiries: int = 0
    worker_crashes: int = 0
    spare_wipes: int = 0
    sleep_rate: float = 0.0


def healing_options(base: Options, **changes: Any) -> HealingOptions:
    """Return options like `base`, with workers."""
    same = {field.name: getattr(base, field.name) for field in fields(base)}
    return HealingOptions(**{**same, **changes})


class HealingBookie(ReleaseBookie):
    """A bookie whose directory may be replaced by an empty one."""

    world: HealingWorld

    def __init__(self, world: HealingWorld, name: str) -> None:
        super().__init__(world, name)
        self.wipes = self.passes = 0
        self.is_weak = False
        self.weak: list[StoredAdd] = []
        self.forgotten: dict[int, Code] = {}
        self.unlisted: set[int] = set()

    def collect(self, on_done: Callable[[], None] = lambda: None) -> None:
        """Begin a pass. Only some passes compact too, because compactions take most of the time."""
        self.passes += 1
        if self.passes % PASSES_PER_COMPACTION == 0 or self.collector is None:
            super().collect(on_done)
            return

        async def collect(collector: Collector) -> None:
            await collector.collect()
            on_done()

        if self.host is not None:
            self.host.spawn("garbage", collect(self.collector))

    def stop(self, *, power: bool) -> None:
        self.weak.clear()
        super().stop(power=power)

    def add(self, request: StoredAdd, answer: Callable[[Code], None]) -> bool:
        """A weak bookie acknowledges recovery adds, and stores them at the next force."""
        if self.is_weak and request.is_recovery and self.is_up:
            self.weak.append(request)
            answer(Code.OK)
            return True
        return super().add(request, answer)

    def read(self, request: StoredRead, answer: Callable[[Code, bytes | None], None]) -> bool:
        """A recovery read waits until everything is durable."""
        if request.is_recovery and self.weak:
            weak, self.weak = self.weak, []
            left = len(weak)

            def stored(_: Code) -> None:
                nonlocal left
                left -= 1
                if not left:
                    super(HealingBookie, self).read(request, answer)

            for one in weak:
                super().add(one, stored)
            return True
        return super().read(request, answer)

    def read_batch(
        self, request: StoredBatchRead, answer: Callable[[Code, Sequence[bytes]], None]
    ) -> bool:
        """Deny what the bookie has forgotten."""
        code = self.forgotten.get(request.first_entry_id)
        if code is not None:
            answer(code, ())
            return self.is_up

        def some(code: Code, stored: Sequence[bytes]) -> None:
            first = request.first_entry_id
            ids = range(first, first + len(stored))
            until = next((n for n, one in enumerate(ids) if one in self.forgotten), len(stored))
            answer(code, stored[:until])

        return super().read_batch(request, some)

    def list_entries(self, ledger_id: int, answer: Callable[[frozenset[int] | None], None]) -> bool:
        """List also what a weak bookie has not stored yet."""

        def listed(held: frozenset[int] | None) -> None:
            weak = {one for add in self.weak for one in add.entry_ids}
            answer(None if held is None else (held | weak) - self.unlisted)

        return super().list_entries(ledger_id, listed)

    def store_durably(self, ledger_id: int, entry_id: int, stored: bytes) -> None:
        """Store one entry, as another worker does."""
        add = StoredAdd(ledger_id, (entry_id,), (len(stored),), stored, KEY, is_recovery=True)
        super().add(add, lambda _: None)

    def empty(self, *, is_in_doubt: bool) -> None:
        """Replace all directories by empty ones. The process is down."""
        self.wipes += 1
        self.is_in_limbo = is_in_doubt
        seed = self.world.draws.seed * 64 + int(self.name.lstrip("b")) + 1_000 * self.wipes
        first = Manifest(doubt=Doubt(epoch=self.wipes)) if is_in_doubt else None
        for number in range(len(self.directories.disks)):
            self.directories.empty(number, SimDisk(Random(seed + DISK_SEEDS * number)), first)


class HealingWorld(ReleaseWorld):
    """A cluster that heals itself."""

    options: HealingOptions
    store: HealingStore
    checkers: HealingCheckers
    bookies: dict[str, HealingBookie]  # type: ignore[assignment]

    def __init__(self, seed: int, options: HealingOptions, **rest: Any) -> None:
        super().__init__(seed, options, **rest)
        self.healers: list[HealWorker] = []
        self.read_only: set[str] = set()
        self.dead: set[str] = set()  # bookies that do not return before the audit
        self.floors: dict[int, int] = {}
        self.recoveries = 0
        self.answer_ms = 40  # for which a worker waits for an answer
        self.garbled: set[tuple[str, int]] = set()  # entries whose bytes are changed on the network
        self.is_over = False
        self.sleep_ms: Callable[[HealWorker, Any], int] = lambda _worker, _effect: 0
        self._last_added: dict[int, tuple[int, int]] = {}

    def new_store(self) -> HealingStore:
        return HealingStore(self.faults)

    def new_checkers(self) -> HealingCheckers:
        return HealingCheckers()

    def new_bookie(self, name: str) -> HealingBookie:
        return HealingBookie(self, name)

    # Workers.

    def start_healers(self, count: int) -> None:
        for _ in range(count):
            healer = HealWorker(self, f"h{len(self.healers)}")
            self.healers.append(healer)
            healer.start()

    def start_apache(self, count: int) -> None:
        for number in range(count):
            ApacheWorker(self, f"a{number}").start()

    def delay_of(self, worker: HealWorker, effect: Any) -> int:
        """How long a worker sleeps before it performs an effect, in us."""
        return 0 if self.is_over else 1_000 * self.sleep_ms(worker, effect)

    def session_for(self, job: Job) -> Session:
        """The session in which a request of a job is sent."""
        return job.session

    def lost_session(self, worker: HealWorker) -> None:
        """A worker has noticed that its session was lost."""
        worker.drop_job()

    def quiet_ms(self, ledger_id: int) -> int:
        """The time since a ledger got an entry, as a worker measures it."""
        now_us = self.scheduler.now_us
        last = max(self.checkers.of(ledger_id).stored, default=-1)
        before = self._last_added.get(ledger_id)
        if before is None or before[0] != last:
            before = self._last_added[ledger_id] = (last, now_us)
        return (now_us - before[1]) // 1_000

    def check_fence(self, job: Job, effect: r.RecoverForCopies) -> None:
        """Check that a worker may fence a ledger now."""
        record = self.checkers.of(job.ledger_id).record
        floor = self.floors.get(job.ledger_id, -1)
        require(effect.floor >= floor, "FLOOR", f"{job.worker.name} recovers below {floor}")
        names = [n for n, one in self.bookies.items() if one.is_registered]
        spares = [n for n in names if n not in record.last_fragment.ensemble]
        is_quiet = self.quiet_ms(job.ledger_id) >= SETTINGS.quiet_ms
        checker = self.checkers.of(job.ledger_id)
        checker.fenced_by_worker(
            job.worker.name,
            has_spare=bool(spares) or is_quiet or self.faults.happened != [],
            waited_ms=0 if job.has_waited else -1,
        )

    # The auditor.

    def start_auditor(self) -> None:
        self.scheduler.call_later(AUDIT_MS * 1_000, self._audit_pass)

    def _audit_pass(self) -> None:
        if not self.is_over:
            self.mark_lost()
            self.start_auditor()

    def long_away(self) -> frozenset[str]:
        """The bookies that are lost now."""
        now_us = self.scheduler.now_us
        return frozenset(
            name
            for name, bookie in self.bookies.items()
            if not bookie.is_registered and now_us - bookie.down_us >= LOST_MS * 1_000
        )

    def mark_lost(self) -> None:
        """Mark the ledgers that name a lost bookie."""
        lost = self.long_away()
        for ledger_id, record in self.store.records.items():
            named = {name for one in record.value.fragments for name in one.ensemble}
            if named & lost:
                self.store.note("mark", ledger_id, frozenset(named & lost))

    def note_holes(self) -> None:
        """Report each ledger that lacks copies, as writers and the auditor's checks do."""
        for ledger_id, record in self.store.records.items():
            checker = self.checkers.of(ledger_id)
            lacking = {n for n in self.bookies if checker.lacks(n, record.value)}
            if record.value.is_closed and lacking:
                self.store.note("hole", ledger_id, frozenset(lacking))

    # Bookies.

    def restart(self, name: str) -> None:
        if name not in self.dead:
            super().restart(name)

    def end_read_only(self) -> None:
        """All bookies accept writes again."""
        self.read_only.clear()

    def wipe_spare(self, name: str, *, is_fix: bool, is_in_doubt: bool) -> bool:
        """Replace the directory of a bookie that no record names. Return whether this was done."""
        is_named = any(
            name in fragment.ensemble
            for record in self.store.records.values()
            for fragment in record.value.fragments
        )
        bookie = self.bookies[name]
        if is_named or not bookie.is_up or bookie.storage is None:
            return False
        self.note(name, "loses its directory")
        self.kill(name)
        bookie.empty(is_in_doubt=is_in_doubt)
        self.store.format_bookie(name, is_fix=is_fix)
        self.faults.lasts("wipe", 0)
        self.checkers.emptied(name)
        self.checkers.mark("spare wiped")
        self.restart(name)
        return True

    def audit(self) -> None:
        for bookie in self.bookies.values():
            bookie.is_collecting = True
        HealingAudit(self).run()


class HealingAudit(Audit):
    """The audit of one world: in the end every ledger has all copies, and no mark is left."""

    world: HealingWorld

    def run(self) -> None:
        world = self.world
        world.dead.clear()
        super().run()

    def check_ledger(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """Wait until the workers have healed the ledger."""
        world = self.world
        world.end_read_only()
        if not any(healer.is_alive for healer in world.healers):
            world.start_healers(1)
        world.note_holes()
        healed = world.run_until(partial(self._is_healed, ledger_id), HEALTHY_MS)
        notes = {kind: sorted(notes) for kind, notes in world.store.notes.items()}
        require(healed, "ENDED", f"ledger {ledger_id} is not healed: {notes}")
        super().check_ledger(ledger_id, world.store.records[ledger_id].value)
        checker = world.checkers.of(ledger_id)
        # An auditor that had not noticed the return of a bookie may have marked the ledger again.
        metadata = world.store.records[ledger_id].value
        for name in world.bookies:
            lacking = checker.lacks(name, metadata)
            require(not lacking, "ENDED", f"{name} lacks {lacking} of ledger {ledger_id}")

    def _is_healed(self, ledger_id: int) -> bool:
        return not any(ledger_id in notes for notes in self.world.store.notes.values())
