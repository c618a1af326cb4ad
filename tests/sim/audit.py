"""The end of a schedule: all faults are over, all clients end, and all invariants are checked."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from bookie_server.core.requests import StoredBatchRead, StoredRead
from ledgerlog_spark.model import NO_ENTRY, Code, LedgerMetadata
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.write.writer import ADDING, LedgerWriter
from ledgerlog_spark.wire.digests import master_key
from tests.sim.bookie import SETTINGS
from tests.sim.checker import Checker, Violation, require, write_set
from tests.sim.client import SimClient, as_entry
from tests.sim.late_add import late_add

if TYPE_CHECKING:
    from tests.sim.world import World

HEALTHY_MS = 20_000
"""In a healthy cluster, everything ends within this virtual time."""
TOMBSTONES_KEPT_MS = SETTINGS.tombstone_keep_s * 1_000 + 1_000
OTHER_KEY = master_key(b"guess")
LATE_MS = 1_000
"""The last message of a schedule arrives within this time after the audit."""


class Audit:
    """The audit of one world."""

    def __init__(self, world: World) -> None:
        self.world = world

    @property
    def is_rotten(self) -> bool:
        """Whether a copy is permanently lost. The only promise left is that no data is invented."""
        return any(bookie.is_rotten for bookie in self.world.bookies.values())

    def run(self) -> None:
        """Heal the cluster, let all clients end, seal every ledger, and read all ledgers.

        PROTOCOL.md#L3, PROTOCOL.md#L5, PROTOCOL.md#L23.
        """
        world = self.world
        self.restart_bookies()
        world.heal()
        # A bookie that is stopping, cleanly or because its disk failed, does not answer.
        up = world.run_until(
            lambda: all(b.is_up and not b.has_failed for b in world.bookies.values()), HEALTHY_MS
        )
        require(up, "V1", "a bookie does not start")
        for client in list(world.clients.values()):
            if isinstance(client.machine, LedgerWriter):
                self.settle_writer(client)
        self.settle_clients()
        self.ask_damaged()
        for ledger_id in sorted(world.store.records):
            metadata = self.seal(ledger_id)
            if metadata is not None:
                self.check_ledger(ledger_id, metadata)
        self.ask_bookies()
        self.ask_without_password()
        self.end_writers()
        self._require_fences("L14")
        self._require_idle()

    def end_writers(self) -> None:
        """A writer that is open when its ledger is sealed ends with an error (PROTOCOL.md#V1)."""
        for name, client in list(self.world.clients.items()):
            if not (isinstance(client.machine, LedgerWriter) and client.machine.phase in ADDING):
                continue
            client.feed(m.CloseRequested())
            ended = self.world.run_until(
                partial(lambda client: client.ended is not None or not client.is_alive, client),
                HEALTHY_MS,
            )
            require(ended, "V1", f"{name} was asked to close and is {client.machine.phase.name}")

    def restart_bookies(self) -> None:
        """Restart all bookies: a start finds damage, and loses what was only in memory."""
        everybody = self.world.draws.uniform("all restart") < 0.3
        for name, bookie in self.world.bookies.items():
            if bookie.storage is not None and bookie.is_up and (everybody or bookie.is_rotten):
                self.world.faults.lasts("kill")
                self.world.kill(name)

    def _restart(self, names: list[str]) -> None:
        for name in names:
            self.world.kill(name)
            self.world.restart(name)
        for name in names:
            bookie = self.world.bookies[name]
            up = self.world.run_until(partial(lambda b: b.storage is not None, bookie), HEALTHY_MS)
            require(up, "V1", f"{name} does not start")

    def ask_damaged(self) -> None:
        """Check that a bookie with damage never denies that an acknowledged entry exists
        (PROTOCOL.md#L32).

        After a start, a damaged file is in doubt until its last entry is deleted. So the bookie is
        asked again after one more start.
        """
        damaged = [name for name, bookie in self.world.bookies.items() if bookie.is_rotten]
        for _ in range(2 if damaged else 0):
            self._restart(damaged)
            self._read_each(damaged)

    def _read_each(self, names: list[str]) -> None:
        """Ask bookies for every confirmed entry, and for the last entry."""
        answered: list[str] = []
        asked = 0
        for name in names:
            bookie = self.world.bookies[name]
            for ledger_id, checker in self.world.checkers.by_ledger.items():
                for entry_id in (NO_ENTRY, *range(checker.last_confirmed + 2)):
                    asked += 1
                    request = StoredRead(ledger_id, entry_id)
                    bookie.read(request, lambda *_, name=name: answered.append(name))
        done = self.world.run_until(lambda: len(answered) == asked, 1_000)
        require(done, "V1", f"{asked - len(answered)} of {asked} reads are not answered")

    def _require_idle(self) -> None:
        """Check that no bookie counts bytes in flight after all answers (PROTOCOL.md#V11)."""
        for name, bookie in self.world.bookies.items():
            storage = bookie.storage
            if storage is None:
                continue
            self.world.run_until(partial(lambda b: not b.unanswered, bookie), HEALTHY_MS)
            require(not bookie.unanswered, "V1", f"{name} does not answer {bookie.unanswered}")
            bookie.require_nothing_in_flight()

    def ask_bookies(self) -> None:
        """Ask each bookie for its LACs, and each damaged bookie for all entries.

        PROTOCOL.md#L32, PROTOCOL.md#L33.
        """
        world = self.world
        answered: list[str] = []
        asked = 0
        for name, bookie in world.bookies.items():
            for ledger_id, checker in world.checkers.by_ledger.items():
                if bookie.storage is None:
                    continue
                asked += 1
                bookie.read_lac(ledger_id, lambda *_, name=name: answered.append(name))
                for entry_id in range(checker.last_confirmed + 1 if bookie.is_rotten else 0):
                    asked += 1
                    request = StoredBatchRead(ledger_id, entry_id, 3, 1 << 20)
                    bookie.read_batch(request, lambda *_, name=name: answered.append(name))
        done = world.run_until(lambda: len(answered) == asked, 1_000)
        require(done, "V1", f"{asked - len(answered)} of {asked} reads are not answered")

    def ask_without_password(self) -> None:
        """Check PROTOCOL.md#L40: with a wrong key, nothing is added or fenced, and no LAC moves."""
        world, answers = self.world, list[tuple[str, str, Code]]()
        asked = 0
        for name, bookie in world.bookies.items():
            storage = bookie.storage
            for ledger_id, checker in world.checkers.by_ledger.items():
                has_key = checker.copies.promise(name).last_entry_id != NO_ENTRY
                if storage is None or bookie.is_rotten or checker.is_deleted or not has_key:
                    continue
                lac = checker.last_confirmed + 1_000

                def note(code: Code, *_: object, name: str = name, what: str = "") -> None:
                    answers.append((name, what, code))

                add = replace(late_add(checker, ledger_id), master_key=OTHER_KEY)
                for is_recovery in (False, True):
                    storage.add(replace(add, is_recovery=is_recovery), partial(note, what="add"))
                storage.read(StoredRead(ledger_id, 0, OTHER_KEY), partial(note, what="fence"))
                storage.write_lac(ledger_id, lac, OTHER_KEY, partial(note, what="LAC"))
                storage.announce_lac(ledger_id, lac, OTHER_KEY)
                storage.read_lac(ledger_id, partial(self._require_lac, name, checker))
                asked += 4
        done = world.run_until(lambda: len(answers) == asked, 1_000)
        require(done, "V1", f"{asked - len(answers)} of {asked} are not answered")
        for name, what, code in answers:
            is_refused = code is Code.UNAUTHORIZED
            require(is_refused, "L40", f"{name} answers {code.name} to a {what} with another key")

    @staticmethod
    def _require_lac(name: str, checker: Checker, _code: Code, lac: int) -> None:
        is_moved = lac > checker.last_confirmed + 999
        require(not is_moved, "L40", f"the LAC of {name} was moved with another key")

    def settle_writer(self, writer: SimClient) -> None:
        """Check that every pending add of a live writer is stored or fails (PROTOCOL.md#V9)."""
        machine, checker = writer.machine, self.world.checkers.of(writer.ledger_id)
        settled = self.world.run_until(
            lambda: (
                not writer.is_alive
                or machine.phase not in ADDING
                or (
                    checker.last_confirmed == machine.next_entry_id - 1
                    and not machine._pipeline.entries_in_flight
                    and not self._awaits_return(machine)
                )
            ),
            HEALTHY_MS,
        )
        require(
            settled,
            "V9",
            f"{writer.name}: {machine._pipeline.entries_in_flight} entries are in flight and "
            f"{checker.last_confirmed} of {machine.next_entry_id - 1} is confirmed after "
            f"{HEALTHY_MS} ms of a healthy cluster",
        )
        if writer.is_alive and machine.phase in ADDING and not checker.is_deleted:
            self._require_whole_write_sets(writer, checker)

    @staticmethod
    def _awaits_return(machine: LedgerWriter) -> bool:
        """Whether a bookie is absent that must return: the writer has entries, and may change."""
        return bool(machine.absent_bookies) and machine._may_change and machine.next_entry_id > 0

    def _require_whole_write_sets(self, writer: SimClient, checker: Checker) -> None:
        """Check that, with no pending add, each entry of the last fragment has all Qw copies."""
        fragment, quorum = checker.record.last_fragment, checker.record.quorum
        if checker.record.is_closed:
            return
        for entry_id in range(fragment.first_entry_id, checker.last_confirmed + 1):
            for index in write_set(quorum, entry_id):
                bookie = self.world.bookies[fragment.ensemble[index]]
                is_absent = bookie.name in writer.machine.absent_bookies
                if bookie.is_rotten or bookie.is_in_limbo or is_absent:
                    continue
                held = bookie.peek(writer.ledger_id, entry_id)
                require(
                    held is not None,
                    "V9",
                    f"entry {entry_id} of {writer.ledger_id} is not on {bookie.name}, and nothing "
                    "is in flight",
                )

    def settle_clients(self) -> None:
        """Check that recoveries and reads end within a bounded time (PROTOCOL.md#V1)."""
        for name, client in list(self.world.clients.items()):
            if isinstance(client.machine, LedgerWriter):
                continue
            ended = self.world.run_until(
                partial(lambda client: client.ended is not None or not client.is_alive, client),
                HEALTHY_MS,
            )
            require(
                ended,
                "V1",
                f"{name} is in {client.machine.phase.name} after {HEALTHY_MS} ms of a healthy "
                "cluster",
            )

    def seal(self, ledger_id: int) -> LedgerMetadata | None:
        """Close the ledger by recovery. None if lost copies prevent the close (PROTOCOL.md#V3)."""
        ended = None
        for number in range(5):
            name = f"final{number}.{ledger_id}"
            client = self.world.recoverer(name, ledger_id=ledger_id)
            client.feed(m.Start())
            has_ended = self.world.run_until(
                partial(lambda c: c.ended is not None, client), HEALTHY_MS
            )
            require(has_ended, "V1", f"{name} did not end in a healthy cluster")
            ended = client.ended
            if isinstance(ended, m.LedgerClosed):
                return ended.versioned.value
        if self.is_rotten:
            return None
        raise Violation("V1", f"a healthy cluster cannot close ledger {ledger_id}: {ended}")

    def check_ledger(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """Check the end of a closed ledger, all its copies, and the entries that a reader gets."""
        checker = self.world.checkers.of(ledger_id)
        require(
            metadata.last_entry_id >= checker.last_confirmed,
            "L1",
            f"closed at {metadata.last_entry_id}, confirmed {checker.last_confirmed}",
        )
        for entry_id in range(metadata.last_entry_id + 1):
            self._check_copies(ledger_id, metadata, entry_id, checker)
        self._read_everything(f"audit.{ledger_id}", ledger_id, metadata)
        if len(metadata.fragments) > 1:
            # A reader that opened the ledger before its ensemble changes asks the first bookies,
            # which never had the later entries.
            first = self.world.store.first[ledger_id].value
            last = metadata.last_entry_id
            self._read_everything(f"old.{ledger_id}", ledger_id, first, last)
        require(len(set(checker.ends.values())) <= 1, "L23", f"different ends: {checker.ends}")

    def _check_copies(
        self, ledger_id: int, metadata: LedgerMetadata, entry_id: int, checker: Checker
    ) -> None:
        ensemble = metadata.fragment_of(entry_id).ensemble
        copies = rotten = 0
        for index in write_set(metadata.quorum, entry_id):
            bookie = self.world.bookies[ensemble[index]]
            rotten += bookie.is_rotten
            stored = bookie.peek(ledger_id, entry_id)
            if stored is not None:
                entry = as_entry(stored, ledger_id, entry_id)
                require(
                    entry is not None and bytes(entry.payload) == checker.payloads[entry_id],
                    "L6",
                    f"{bookie.name} has other bytes as entry {entry_id}",
                )
                copies += 1
        require(
            copies >= metadata.quorum.ack_quorum - rotten,
            "L3" if copies == 0 else "L5",
            f"entry {entry_id} of {ledger_id} has {copies} copies in {ensemble}",
        )

    def _read_everything(
        self, name: str, ledger_id: int, metadata: LedgerMetadata, last: int | None = None
    ) -> None:
        last = metadata.last_entry_id if last is None else last
        if last < 0:
            return
        client = self.world.reader(name, metadata, last, ledger_id=ledger_id)
        ended = self.world.run_until(lambda: client.ended is not None, HEALTHY_MS)
        require(
            ended and (isinstance(client.ended, m.RangeRead) or self.is_rotten),
            "L3",
            f"reading ledger {ledger_id} back ends with {client.ended}",
        )

    def let_go(self) -> None:
        """Delete the ledgers. Every bookie drops them and keeps their fences (PROTOCOL.md#V10).

        This holds also after a start. In half of the schedules, the tombstones are forgotten before
        this start.
        """
        world = self.world
        world.run_for(LATE_MS)
        for ledger_id in sorted(world.store.records):
            world.delete_ledger(ledger_id)
        # The other bookies never got a request, so they never started.
        names = [name for name, bookie in world.bookies.items() if bookie.boots]
        self._collect(names)
        self._require_dropped(names)
        if world.draws.uniform("forgets") < 0.5:
            world.run_for(TOMBSTONES_KEPT_MS)
            for _ in range(2):
                # The records of a ledger are freed with their file, and after that its tombstone.
                self._collect(names)
            world.checkers.mark("tombstones forgotten")
        self._restart(names)
        self._require_dropped(names)

    def _collect(self, names: list[str]) -> None:
        world = self.world
        for name in names:
            bookie = world.bookies[name]
            world.run_until(partial(lambda bookie: bookie.storage is not None, bookie), 1_000)
            ended: list[str] = []
            bookie.collect(partial(ended.append, "ended"))
            world.run_until(partial(bool, ended), 1_000)
            require(bool(ended) and bookie.storage is not None, "V10", f"{name} collects for ever")

    def _require_dropped(self, names: list[str]) -> None:
        world = self.world
        for name in names:
            bookie = world.bookies[name]
            assert bookie.storage is not None
            assert bookie.host is not None
            droppable = world.scheduler.run(bookie.storage.droppable(), bookie.host)
            held = [one for one in world.checkers.by_ledger if one in droppable]
            require(not held, "V10", f"{name} still has the deleted ledgers {held}")
        self._require_fences("V10")

    def _require_fences(self, name: str) -> None:
        """Check that a bookie that answered a fence stores no add of the old writer.

        The bookie may have lost the fence by damage, or forgotten it long after the ledger was
        dropped. In that case it asks the metadata store before it stores an add. So an add is sent.
        """
        world = self.world
        answers: list[tuple[str, int, Code]] = []
        asked = 0
        for ledger_id, checker in world.checkers.by_ledger.items():
            for bookie_id in [one for one, is_fenced in checker.fenced.items() if is_fenced]:
                bookie = world.bookies[bookie_id]
                if bookie.storage is None:
                    continue
                asked += 1
                bookie.storage.add(
                    late_add(checker, ledger_id),
                    partial(lambda at, code: answers.append((*at, code)), (bookie_id, ledger_id)),
                )
        done = world.run_until(lambda: len(answers) == asked, 1_000)
        require(done, "V1", f"{asked - len(answers)} of {asked} late adds are not answered")
        for bookie_id, ledger_id, code in answers:
            is_refused = code is not Code.OK
            require(
                is_refused, name, f"{bookie_id} answered a fence of {ledger_id} and took an add"
            )
