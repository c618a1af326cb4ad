"""A cluster with everything that heals it: auditors, workers, releases, limbo and a vacation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from ledgerlog_spark.model import Code, LedgerMetadata, Version, Versioned
from tests.sim.audit import HEALTHY_MS
from tests.sim.checker import require
from tests.sim.copies import Promise
from tests.sim.faults import Faults
from tests.sim.healing.checker import HealingChecker, HealingCheckers
from tests.sim.healing.store import HealingStore
from tests.sim.healing.world import HealingAudit, HealingOptions, HealingWorld
from tests.sim.joint.audits import Audits
from tests.sim.joint.vacation import VacationStage
from tests.sim.vacate.world import BOOKIE


@dataclass(frozen=True)
class JointOptions(HealingOptions):
    """The options of one joint schedule.

    Attributes:
        audit_delay_ms: The time for which a bookie is away before auditors mark its ledgers.
        audit_pause_rate: Probability that an auditor pauses at an effect.
        audit_expiries: Number of sessions of auditors that end.
        limbo_losses: Number of bookies that lose their directory and begin in limbo, at most one.
        members_lost: Number of times that writers learn that a member is lost.
        vacation: What the operator begins: "drain", "decommission", or nothing.
        is_cancelled: Whether the operator cancels it, and begins it again.
    """

    audit_delay_ms: int = 60
    audit_pause_rate: float = 0.0
    audit_expiries: int = 0
    limbo_losses: int = 0
    members_lost: int = 0
    vacation: str = ""
    is_cancelled: bool = False


def joint_options(base: HealingOptions, **changes: Any) -> JointOptions:
    """Return options like `base`, with auditors."""
    same = {field.name: getattr(base, field.name) for field in fields(base)}
    return JointOptions(**{**same, **changes})


class JointChecker(HealingChecker):
    """The invariants of healing, and LIMBO: a bookie never denies what it lost."""

    def __init__(self, marks: dict[str, int], touchers: set[str]) -> None:
        super().__init__(marks, touchers)
        self._doubted: dict[str, frozenset[int]] = {}

    def lost(self, bookie: str) -> None:
        """A bookie has lost its directory, and begins in limbo.

        Its acknowledgements stay: a writer may confirm an entry with them.
        """
        self._doubted[bookie] = frozenset(self._held.pop(bookie, ()))
        self.copies.release(bookie)
        self.fenced.pop(bookie, None)

    def formatted(self, bookie: str) -> None:
        """The directory is new, and no record names the bookie: it owes nothing."""
        self._doubted.pop(bookie, None)
        self.emptied(bookie)

    def read_answered(
        self, bookie: str, request: Any, code: Code, stored: bytes | None, promise: Promise
    ) -> None:
        self._check_limbo(bookie, request.entry_id, code)
        super().read_answered(bookie, request, code, stored, promise)

    def batch_answered(
        self, bookie: str, code: Code, stored: Sequence[bytes], promise: Promise
    ) -> None:
        if not stored:
            self._check_limbo(bookie, promise.entry_id, code)
        super().batch_answered(bookie, code, stored, promise)

    def _is_held_or_repaired(self, name: str, entry_id: int) -> bool:
        """A bookie in limbo fetches what it lost, so it needs no mark."""
        is_lost = entry_id in self._doubted.get(name, ())
        return is_lost or super()._is_held_or_repaired(name, entry_id)

    def _check_limbo(self, bookie: str, entry_id: int, code: Code) -> None:
        doubted = self._doubted.get(bookie, ())
        if self.is_deleted or entry_id not in doubted:
            return
        is_denied = code.is_absent and entry_id not in self._held.get(bookie, ())
        require(not is_denied, "LIMBO", f"{bookie} denies {entry_id}, which it lost")
        self.mark("read in limbo")


class JointCheckers(HealingCheckers):
    """One checker for each ledger."""

    def of(self, ledger_id: int) -> JointChecker:
        checker = self.by_ledger.get(ledger_id)
        if checker is None:
            checker = self.by_ledger[ledger_id] = JointChecker(self.marks, self.touchers)
            checker.has_moving_lacs = self.has_moving_lacs
        assert isinstance(checker, JointChecker)
        return checker

    def emptied(self, bookie: str) -> None:
        for ledger_id in self.by_ledger:
            self.of(ledger_id).formatted(bookie)

    def lost(self, bookie: str) -> None:
        for ledger_id in self.by_ledger:
            self.of(ledger_id).lost(bookie)


class JointStore(HealingStore):
    """Copies each change of a record to the views of auditors and of vacations."""

    world: JointWorld

    def __init__(self, faults: Faults, world: JointWorld) -> None:
        super().__init__(faults)
        self.world = world

    def create(self, ledger_id: int, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        created = super().create(ledger_id, metadata)
        self.world.on_record(ledger_id)
        return created

    def write(
        self, client: str, ledger_id: int, metadata: LedgerMetadata, version: Version
    ) -> tuple[Any, Versioned[LedgerMetadata] | None]:
        written = super().write(client, ledger_id, metadata, version)
        if written[1] is not None:
            self.world.on_record(ledger_id)
        return written

    def delete(self, ledger_id: int) -> None:
        super().delete(ledger_id)
        self.world.on_record(ledger_id)


class JointWorld(HealingWorld):
    """A cluster that heals itself, with shipped auditors and a vacation."""

    options: JointOptions
    store: JointStore
    checkers: JointCheckers

    def __init__(self, seed: int, options: JointOptions, **rest: Any) -> None:
        self.audit_marks: Counter[str] = Counter()
        self.audits: Audits | None = None
        self.stage: VacationStage | None = None
        super().__init__(seed, options, **rest)
        self.audits = Audits(self)
        self.stage = VacationStage(self)

    def new_store(self) -> JointStore:
        return JointStore(self.faults, self)

    def new_checkers(self) -> JointCheckers:
        return JointCheckers()

    def on_record(self, ledger_id: int) -> None:
        """A record was created, written or deleted."""
        if self.audits is None or self.stage is None:
            return
        record = self.store.records.get(ledger_id)
        if record is None:
            self.audits.store.drop(ledger_id)
        else:
            self.audits.store.put(ledger_id, record)
        self.stage.written_us[ledger_id] = self.scheduler.now_us
        self.stage.store.remember()

    def start_auditor(self) -> None:
        """The shipped auditors mark lost bookies, and run vacations."""
        assert self.audits is not None
        assert self.stage is not None
        self.audits.start()
        self.stage.start()

    def candidates(self, client: str, number: int, up: list[str]) -> tuple[str, ...]:
        """Omit a bookie that has been read-only for longer than the age of the writer's list."""
        assert self.stage is not None
        leaves = BOOKIE in self.read_only and not self.stage.is_seen_by_writers()
        return super().candidates(
            client, number, [name for name in up if not (leaves and name == BOOKIE)]
        )

    def restart(self, name: str) -> None:
        before = self.bookies[name].boots
        super().restart(name)
        if name == BOOKIE and self.stage is not None and self.bookies[name].boots != before:
            self.stage.returns()

    def end_read_only(self) -> None:
        """A bookie that leaves stays read-only until its vacation ends."""

    def lose_directory(self, name: str) -> None:
        """A bookie loses its directory and begins in limbo. Records name it all the same."""
        bookie = self.bookies[name]
        self.note(name, "loses its directory, and begins in limbo")
        self.kill(name)
        bookie.empty(is_in_doubt=True)
        self.store.format_bookie(name, is_fix=True)
        self.faults.lasts("wipe", 0)
        self.checkers.lost(name)
        self.checkers.mark("lost in limbo")
        self.restart(name)

    def audit(self) -> None:
        for bookie in self.bookies.values():
            bookie.is_collecting = True
        JointAudit(self).run()


class JointAudit(HealingAudit):
    """The audit: the vacation ends, and ledgers leave the bookie in limbo, as if it were lost."""

    world: JointWorld

    def run(self) -> None:
        world = self.world
        assert world.audits is not None
        assert world.stage is not None
        world.audits.calm()
        world.stage.is_calm = True
        super().run()
        self._end_vacation()

    def check_ledger(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """Move the ledger away from a bookie in limbo, and check it."""
        world = self.world
        if not any(healer.is_alive for healer in world.healers):
            world.start_healers(1)
        for name, bookie in world.bookies.items():
            if bookie.is_in_limbo and any(
                name in fragment.ensemble for fragment in metadata.fragments
            ):
                world.store.note("move", ledger_id, frozenset({name}))
        super().check_ledger(ledger_id, world.store.records[ledger_id].value)

    def _end_vacation(self) -> None:
        """AUTORECOVERY.md#Y5: without faults, the vacation ends, and no note is left."""
        world, stage = self.world, self.world.stage
        assert stage is not None
        ended = world.run_until(partial(getattr, stage, "is_over"), HEALTHY_MS)
        text = f"{stage.store.vacation} has not ended; ledgers {stage.named()}"
        require(ended, "Y5", text)
