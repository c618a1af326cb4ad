"""A cluster whose bookies release ledgers, with workers that move copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from bookie_server.errors import StorageError
from bookie_server.storage.directories.opening import BookieStorage
from bookie_server.storage.ledger_storage import LedgerStorage
from ledgerlog_spark.model import Code, LedgerMetadata
from tests.sim.audit import HEALTHY_MS, Audit
from tests.sim.bookie import SimBookie
from tests.sim.checker import require
from tests.sim.client import SimClient
from tests.sim.loss.apache import force, perhaps_as_apache
from tests.sim.options import Options
from tests.sim.release.checker import ReleaseCheckers
from tests.sim.release.worker import Worker
from tests.sim.runtime import Host
from tests.sim.world import World

PASS_MS = 12
RANGES_MAX = 1_000


@dataclass(frozen=True)
class ReleaseOptions(Options):
    """The options of one schedule with releases.

    Attributes:
        wait_ms: The time without an add after which a bookie may release a ledger.
        workers: Number of workers that each move a member's entries of a fragment.
        forced: Number of forced recoveries of closed ledgers.
        apache_part: Part of the recoveries and workers that behave as Apache's.
    """

    wait_ms: int = 40
    workers: int = 0
    forced: int = 0
    apache_part: float = 0.0


def release_options(base: Options, **changes: Any) -> ReleaseOptions:
    """Return options like `base`, with releases."""
    same = {field.name: getattr(base, field.name) for field in fields(Options)}
    return ReleaseOptions(**{**same, **changes})


class ReleaseBookie(SimBookie):
    """A bookie that collects garbage all the time."""

    world: ReleaseWorld

    def __init__(self, world: ReleaseWorld, name: str) -> None:
        super().__init__(world, name)
        self.settings = replace(self.settings, release_wait_ms=world.options.wait_ms)
        self.is_collecting = True
        self._drops: dict[int, Callable[[], None]] = {}  # take back drops that are not durable

    def stop(self, *, power: bool) -> None:
        super().stop(power=power)
        for take_back in self._drops.values():
            take_back()
        self._drops.clear()

    def start(self) -> None:
        super().start()
        assert self.host is not None
        self.host.spawn("passes", self._pass_for_ever(self.host))

    async def _pass_for_ever(self, host: Host) -> None:
        is_watched = False
        while True:
            await host.sleep(PASS_MS)
            if self.storage is not None and not is_watched:
                is_watched = True
                for directory in self.storage.directories:
                    self._watch_releases(directory)
            if self.is_collecting:
                self.collect()

    def _watch_releases(self, storage: LedgerStorage) -> None:
        """Report when a release begins, and when its drop is submitted."""
        release, hide = storage.release, storage.hide

        def hidden(ledger_id: int) -> bool:
            self.world.on_hide(self.name, ledger_id)
            return hide(ledger_id)

        def reported(ledger_id: int, on_done: Callable[[Code], None]) -> None:
            before, checker = (
                storage._states[ledger_id].drop_ticket,
                self.world.checkers.of(ledger_id),
            )

            def dropped(code: Code) -> None:
                if code is Code.OK:
                    self._drops.pop(ledger_id, None)
                on_done(code)

            release(ledger_id, dropped)
            if storage._states[ledger_id].drop_ticket != before:
                self.world.note(self.name, f"releases {ledger_id}")
                self._drops[ledger_id] = checker.released(self.name)

        storage.release, storage.hide = reported, hidden

    def list_entries(self, ledger_id: int, answer: Callable[[frozenset[int] | None], None]) -> bool:
        """Answer with the ids of a ledger's entries, or None if they are unknown."""

        async def listing(storage: BookieStorage) -> None:
            try:
                held = await storage.entries_held(ledger_id, RANGES_MAX)
            except StorageError:
                self.world.checkers.mark("list refused")
                answer(None)
                return
            answer(frozenset(one for first, last in held for one in range(first, last + 1)))

        def begin(storage: BookieStorage) -> None:
            assert self.host is not None
            self.host.spawn("list", listing(storage))

        return self.serve(begin)


class ReleaseWorld(World):
    """A cluster whose bookies release ledgers."""

    options: ReleaseOptions
    checkers: ReleaseCheckers
    bookies: dict[str, ReleaseBookie]  # type: ignore[assignment]

    def __init__(self, seed: int, options: ReleaseOptions, **rest: Any) -> None:
        super().__init__(seed, options, **rest)
        self.workers: list[Worker] = []
        self.on_hide: Callable[[str, int], None] = lambda _name, _ledger_id: None
        self.checkers.has_moving_lacs = options.apache_part > 0
        self.checkers.touchers.update(self.bookies)

    def new_checkers(self) -> ReleaseCheckers:
        return ReleaseCheckers()

    def new_bookie(self, name: str) -> ReleaseBookie:
        return ReleaseBookie(self, name)

    def recoverer(self, name: str, **rest: Any) -> SimClient:
        client = super().recoverer(name, **rest)
        perhaps_as_apache(self, client, self.options.apache_part)
        return client

    def force(self, name: str, ledger_id: int) -> None:
        """Reopen a closed ledger, and recover it, as Apache's tools do."""
        force(self, name, ledger_id)

    def holds(self, name: str, ledger_id: int) -> bool:
        """Whether a bookie that serves holds entries of a ledger."""
        storage = self.bookies[name].storage
        return storage is not None and storage.last_accepted_id(ledger_id) >= 0

    def audit(self) -> None:
        for bookie in self.bookies.values():
            bookie.is_collecting = True
        ReleaseAudit(self).run()


class ReleaseAudit(Audit):
    """The audit of one world."""

    world: ReleaseWorld

    def check_ledger(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """Check the copies after all releases that are due."""
        world = self.world
        if world.checkers.of(ledger_id).is_thin:
            return
        freed = world.run_until(partial(self._is_released, ledger_id), HEALTHY_MS)
        require(freed, "FREED", f"ledger {ledger_id} stays where {metadata.fragments} names nobody")
        super().check_ledger(ledger_id, world.store.records[ledger_id].value)

    def _is_released(self, ledger_id: int) -> bool:
        """Whether each bookie that the closed record does not name has deleted its entries."""
        metadata = self.world.store.records[ledger_id].value
        named = {one for fragment in metadata.fragments for one in fragment.ensemble}
        others = self.world.bookies.keys() - named
        return not any(self.world.holds(name, ledger_id) for name in others)
