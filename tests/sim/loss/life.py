"""The life of a bookie that may lose records: starts, losses, doubts and ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from bookie_server.core import doubt as rules
from bookie_server.core.doubt import Doubt, FoundDirectory
from tests.sim.loss.directory import FAILED, Manifest
from tests.sim.loss.process import SYNC_US, WRITE_US, LossProcess
from tests.sim.runtime import Host

CHECKPOINT_MS = (4, 20)


class LossLife(LossProcess):
    """One bookie, through all its restarts.

    Attributes:
        is_serving: Whether it has started.
        count_starts: Whether a checkpoint of new records increases the counter of starts.
        copies: Copies of its directory, as backups have them.
    """

    is_serving = False
    count_starts = True

    def start(self) -> None:
        self.is_up = True
        self.boots += 1
        self.host = Host(self.world.scheduler, f"{self.name}.{self.boots}")
        self.forget()
        self._later(WRITE_US, self._boot)

    def _boot(self) -> None:
        """Read the bookie's node, until the read succeeds."""
        if self.name not in self.world.store.starts and not self.directory.records:
            self._on_node(0)
            return
        self.ask("node", lambda: self.world.store.starts.get(self.name, 0), self._on_node)

    def _on_node(self, node_starts: int | None) -> None:
        if node_starts is None:
            self._later((1_000, 3_000), self._boot)
            return
        directory = self.directory
        manifest = directory.manifest
        is_proved = self._prove()
        found = FoundDirectory(
            has_manifest=manifest is not None,
            is_known=self.name in self.world.store.starts,
            starts=manifest.starts if manifest else 0,
            node_starts=node_starts,
            owes_sync=manifest.owes_sync if manifest else False,
            is_proved=is_proved,
            has_lost_record=directory.has_damage,
        )
        manifest = manifest or Manifest()
        is_doubtful = rules.raises_doubt(found)
        if is_doubtful:
            manifest = replace(manifest, doubt=manifest.doubt.raised())
            self.world.note(self.name, f"begins in doubt: {found}")
            self.world.checkers.mark("doubt at start")
        elif manifest.owes_sync:
            self.world.checkers.mark("kill proved")
        starts = max(manifest.starts, node_starts) + 1
        self._later(SYNC_US, partial(self._begin, replace(manifest, starts=starts)))

    def _prove(self) -> bool:
        """Return whether everything that the last run acknowledged is on the device.

        The process may have died before it could record that a sync failed. Then another sync
        succeeds, and only the cache has the records. So only records that are read after the cache
        is dropped count.
        """
        directory = self.directory
        number = directory.number
        directory.sync(len(directory.records))
        directory.drop_cache()
        return number is not None and number != FAILED and len(directory.records) >= number

    def _begin(self, manifest: Manifest) -> None:
        """Commit the first MANIFEST of this start, write the node, and serve."""
        directory = self.directory
        directory.sync(len(directory.records))
        directory.manifest = replace(manifest, owes_sync=False)
        directory.has_damage = False
        directory.number = None
        self.doubt = manifest.doubt
        self.health.check_epoch = manifest.doubt.epoch
        self.began_ms = self.world.scheduler.now_us // 1_000
        self._register()

    def _register(self) -> None:
        assert self.directory.manifest is not None
        starts, epoch = self.directory.manifest.starts, self.doubt.epoch
        is_doubt = epoch > 0 and not self.doubt.transaction
        write = partial(self.world.store.write_node, self.name, starts, is_doubt=is_doubt)
        self.ask("write_node", write, partial(self._on_registered, epoch))

    def _on_registered(self, epoch: int, transaction: int | None) -> None:
        if transaction is None:
            self._later((1_000, 3_000), self._register)
            return
        self.registered = transaction
        self._replay()
        if not self.doubt.transaction and self.doubt.epoch:
            self.commit(lambda doubt: doubt.dated(epoch, transaction))
        self.is_serving = True
        self._tick()
        self.repairs.begin()
        waiting, self._requests = self._requests, []
        for request in waiting:
            request()

    def _replay(self) -> None:
        """Apply the records of the directory."""
        for record in self.directory.records:
            if record.kind == "drop":
                for kept in (self.entries, self.states, self.cleared):
                    kept.pop(record.ledger_id, None)
                continue
            if record.kind == "gone":
                continue
            state = self._state_of(record.ledger_id, record.key, record.epoch)
            state.check_epoch = max(state.check_epoch, record.checked)
            state.is_fenced |= record.kind == "fence"
            self._apply(record)
            if record.kind == "cleared":
                self.apply_cleared(record)

    def _tick(self) -> None:
        """Sync periodically, and increase `starts` if records were written."""

        def checkpoint() -> None:
            self.world.checkers.mark("checkpoint")
            self.when_synced(self._tickets, self._after_checkpoint)
            self._tick()

        self._later((CHECKPOINT_MS[0] * 1_000, CHECKPOINT_MS[1] * 1_000), checkpoint)

    def _after_checkpoint(self) -> None:
        manifest = self.directory.manifest
        assert manifest is not None
        if self._synced == self._tickets and not self._submitted:
            manifest = replace(manifest, owes_sync=False)
        if self._synced > self._counted and self.count_starts:
            manifest = replace(manifest, starts=self._next_starts(manifest.starts))
            write = partial(self.world.store.write_node, self.name, manifest.starts)
            self.ask("write_node", write, lambda _: None)
            self._counted = self._synced
        self.directory.manifest = manifest
        world = self.world
        drawn = world.draws.uniform("copy", self.name, self._synced, self.boots)
        if world.options.old_copies and drawn < 0.3:
            self.copies.append(self.directory.copied())

    @staticmethod
    def _next_starts(starts: int) -> int:
        return starts + 1

    def commit(
        self, change: Callable[[Doubt], Doubt], then: Callable[[], None] = lambda: None
    ) -> None:
        """Change the doubt in the MANIFEST, and act on it when it is durable."""

        def durable() -> None:
            manifest = self.directory.manifest
            assert manifest is not None
            self.doubt = change(self.doubt)
            self.directory.manifest = replace(manifest, doubt=self.doubt)
            then()

        self._later(SYNC_US, durable)

    def stop(self, *, power: bool) -> None:
        """End the process. With `power`, lose a part of the records that are not synced."""
        self.is_up = False
        self.world.losing.discard(self.name)
        self.down_us = self.world.scheduler.now_us
        self._requests = []
        if self.host is not None:
            self.host.kill()
            self.host = None
        self.is_serving = False
        owes = self.directory.manifest is not None and self.directory.manifest.owes_sync
        if power and (self.directory.lose_power(self.random) or owes) and self.is_weak:
            self.note_loss("power")
        self.forget()

    def stop_cleanly(self) -> None:
        """Sync, raise the counter, and end."""
        host = self.host
        if host is None or not self.is_serving:
            return
        self.is_up = False

        def end() -> None:
            self.directory.sync(len(self.directory.records))
            manifest = self.directory.manifest
            assert manifest is not None
            starts = self._next_starts(manifest.starts)
            self.directory.manifest = replace(manifest, owes_sync=False, starts=starts)
            self.ask("write_node", partial(self.world.store.write_node, self.name, starts), ended)

        def ended(_: int | None) -> None:
            host.call_soon(lambda: self.stop(power=False) if self.host is host else None)

        self.when_synced(self._tickets, end)

    def lose_record(self) -> None:
        """Lose a synced record without a trace, and notice it at once."""
        places = [
            place
            for place, one in enumerate(self.directory.records)
            if place not in self.directory.dirty and one.kind != "gone"
        ]
        if not places or not self.is_serving:
            return
        self.lose_record_at(self.random.choice(places))

    def lose_record_at(self, place: int) -> None:
        """Lose this record without a trace, and notice it at once."""
        self.note_loss("damage")
        gone = self.directory.records[place]
        gone.kind = "gone"
        self.entries.get(gone.ledger_id, {}).pop(gone.entry_id, None)
        self.directory.has_damage = True
        self.raise_doubt()

    def raise_doubt(self) -> None:
        """Raise the doubt while serving: first in memory, then durably, then with a transaction."""
        self.doubt = self.doubt.raised()
        self.health.check_epoch = self.doubt.epoch
        epoch = self.doubt.epoch
        self.world.checkers.mark("doubt while serving")

        def durable() -> None:
            self.directory.has_damage = False
            self._date(epoch)
            self.repairs.begin()

        self.commit(lambda doubt: doubt, durable)

    def _date(self, epoch: int) -> None:
        assert self.directory.manifest is not None
        starts = self.directory.manifest.starts
        write = partial(self.world.store.write_node, self.name, starts, is_doubt=True)

        def written(transaction: int | None) -> None:
            if transaction is None:
                self._later((1_000, 3_000), partial(self._date, epoch))
            else:
                self.commit(lambda doubt: doubt.dated(epoch, transaction))

        self.ask("write_node", write, written)

    @property
    def is_registered(self) -> bool:
        now_us, session_us = self.world.scheduler.now_us, self.world.options.session_ms * 1_000
        return self.is_up or now_us - self.down_us < session_us

    @property
    def is_in_doubt(self) -> bool:
        """Whether its doubt is not over, or a ledger is in limbo."""
        if not self.is_serving:
            return self.lost > 0
        return not self.doubt.is_over or bool(self.in_limbo)

    @property
    def in_limbo(self) -> list[int]:
        """The ledgers with a state that are in limbo."""
        return [one for one in self.states if rules.is_in_limbo(self.cleared[one], self.doubt)]

    def heal(self) -> None:
        """Do nothing: the model has no faults of disks."""

    def require_nothing_in_flight(self) -> None:
        """Do nothing: the model counts no bytes."""
