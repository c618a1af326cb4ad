"""Random operations on one bookie's storage, power losses, and a `Model` of the answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from bookie_server.core.requests import StoredBatchRead, StoredRead
from bookie_server.errors import StorageError
from bookie_server.ports import Standing
from bookie_server.storage.shared import StorageCounters
from ledgerlog_spark.model import Code
from tests.crash.invariants import check_files, check_origins, check_runs
from tests.crash.losses import Losses
from tests.crash.machine import KEY, SMALL, Machine, add_request, entry
from tests.crash.model import ANY_AGE, Model, ViolationError
from tests.crash.modes import DIRECT, Mode
from tests.crash.requests import Requests

LEDGERS = 3
"""Number of ledgers that are in use at a time. Sometimes a new ledger replaces another ledger."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """A run that was submitted to the journal. Runs that were submitted in one call follow each
    other.

    Attributes:
        ledger_id: The ledger of the run.
        age: The age of the ledger at that time.
        stored: The entries of the run.
    """

    ledger_id: int
    age: int
    stored: dict[tuple[int, int], bytes]


class Run:
    """One seeded run: operations, power loss at any moment, and a check after each restart.

    Attributes:
        requests: The requests to the storage.
        modes: The write modes, one of which each start uses, with the setting that only `journal`
            has: whether it syncs its data.
        intervals_ms: Intervals between checkpoints; each start uses one interval.
        losses: The possible losses of runs that acknowledged before their syncs.
        excused: Codes that a present fault explains.
    """

    def __init__(self, seed: int, modes: Sequence[Mode] = DIRECT) -> None:
        self.random = Random(seed)
        self.modes = modes
        self.intervals_ms: tuple[int, ...] = (1, 100, 10_000)
        self.losses = Losses(self)
        settings = replace(
            SMALL,
            group_bytes_max=self.random.choice((1 << 10, 1 << 14)),
            open_files_max=self.random.choice((8, 1_024)),
            pieces_max=self.random.choice((5, 50)),
            tombstone_keep_s=self.random.choice((1, 604_800)),
            state_deltas_bytes_min=self.random.choice((1, 1 << 14)),
            release_wait_ms=1,
        )
        self.machine = Machine(seed, settings=settings)
        self.model = Model()
        self.ledgers = list(range(LEDGERS))
        self.ledgers_made = LEDGERS
        self.next_id: Counter[int] = Counter()
        self.submitted: dict[int, Submitted] = {}
        self.number = 0
        self.requests = Requests(self.random)
        self.excused: set[Code] = set()
        self.last_sent: tuple[int, Sequence[int], list[bytes]] | None = None
        self.written: dict[tuple[int, int], set[bytes]] = {}
        self.accepted: dict[tuple[int, int], set[int]] = {}
        self.denied: dict[tuple[int, int], set[int]] = {}
        self.seen: Counter[str] = Counter()

    def run(self, rounds: int = 6) -> None:
        self.take_mode()
        self.machine.start()
        for _ in range(rounds):
            if self.random.random() < 0.5:
                place = self.random.randrange(LEDGERS)
                if self.random.random() < 0.5:
                    self.drop(self.ledgers[place])
                self.ledgers[place] = self.ledgers_made
                self.ledgers_made += 1
            for _ in range(self.random.randrange(1, 25)):
                self.operate()
                if self.random.random() < 0.7:
                    self.let_run(self.random.randrange(1, 25))
            if self.random.random() < 0.3:
                # Long enough for a tombstone to be forgotten.
                self.machine.scheduler.run_for(1_500)
                self.machine.reclaim()
                self.machine.host.spawn("reclaim", self.machine.serving.reclaim())
            if self.random.random() < 0.3:
                self.compact()
                self.let_run(self.random.randrange(400))
            # Stop in the middle of the work: only few events lie between a write and its sync.
            for _ in range(self.random.randrange(1, 6)):
                self.operate()
                self.let_run(self.random.randrange(4))
            self.reach_a_write()
            for _ in range(3):
                self.read_newest()
            self.go_down()
            self.come_up()
            self.check_all()
            if self.model.in_doubt and self.random.random() < 0.5:
                self.losses.repair()
            self.submitted.clear()
            self.accepted.clear()
            self.denied.clear()

    def let_run(self, events: int) -> None:
        for _ in range(events):
            if not self.machine.scheduler.step():
                return

    def reach_a_write(self) -> None:
        """Most of the time, continue until something is written and not yet synced.

        Sometimes continue until this is more than one record, so that a torn write may lose a
        record in the middle.
        """
        disk = self.machine.disk
        least = self.random.choice((1, 1_500, 4_000))
        for _ in range(self.random.choice((0, 60, 200))):
            writes = (content.unsynced for content in disk.seen_names.values())
            if any(sum(len(data) for _, data in unsynced) >= least for unsynced in writes):
                return
            self.let_run(1)

    def go_down(self) -> None:
        self.machine.check_descriptors()
        counters = self.machine.serving.counters
        self.seen["add_overlap"] += counters.add_overlap
        self.seen["adds_repeated"] += counters.adds_repeated
        for mark in ("torn_tails", "rewritten_records", "replayed_records"):
            self.seen[mark] += getattr(counters, f"boot_{mark}")
        self.seen["drops"] += counters.drops
        self.seen["tombstones_forgotten"] += counters.tombstones_forgotten
        self.seen["freed"] += counters.files_freed
        self.seen["compactions"] += counters.compactions
        self.seen["compacted"] += counters.compaction_bytes_freed > 0
        if counters.compaction_sources_withdrawn:
            raise ViolationError("a file was taken for an unreadable one, and nothing is damaged")
        found = {name: count for name, count in noticed_by_scrubs(counters).items() if count}
        if found:
            raise ViolationError(f"nothing is damaged, and scrubs found {found}")
        self.seen["scrubs"] += counters.scrubs
        self.seen["scrubbed files"] += counters.scrub_files
        self.seen["recycled"] += counters.files_recycled
        names = [name for name in self.machine.disk.seen_names if name.startswith("slot")]
        self.seen["rolls"] += len(names) > 4
        self.seen["checkpoints"] += counters.checkpoints
        self.seen["redone"] += counters.boot_redone_groups
        way = self.random.randrange(4)
        if way == 0:
            self.machine.crash()
        elif way == 1:
            self.excused = {Code.IO_ERROR}
            self.machine.stop()
            self.excused = set()
        else:
            self.machine.lose_power()

    def take_mode(self) -> None:
        """Choose the write mode of the next start."""
        if self.modes is DIRECT:
            return
        mode = self.random.choice(self.modes)
        self.machine.settings = replace(
            self.machine.settings, mode_settings=mode.settings(self.random, self.intervals_ms)
        )

    def come_up(self) -> None:
        """Start. Sometimes the power fails during the start."""
        while True:
            self.take_mode()
            self.losses.expect()
            if self.random.random() >= 0.4:
                break
            self.seen["boots_cut_short"] += 1
            self.machine.host.spawn("start", self.opening())
            self.let_run(self.random.randrange(1, 400))
            if self.random.random() < 0.5:
                self.machine.lose_power()
            else:
                self.machine.crash()
        self.machine.start()
        self.losses.started()
        check_origins(self.machine)  # before the first record of the new process
        self.requests.forget()
        self.model.process_ended()

    async def opening(self) -> None:
        await self.machine.opening()

    def operate(self) -> None:
        choice = self.random.random()
        ledger_id = self.random.choice(self.ledgers)
        if choice < 0.75:
            self.add(ledger_id)
        elif choice < 0.82:
            self.fence(ledger_id)
        elif choice < 0.88:
            self.write_lac(ledger_id)
        elif choice < 0.91:
            self.drop(ledger_id)
        elif choice < 0.93:
            self.machine.host.spawn("reclaim", self.machine.serving.reclaim())
        elif choice < 0.95:
            self.release(ledger_id)
        elif choice < 0.96:
            self.compact()
        elif choice < 0.97:
            self.read(ledger_id)
        elif choice < 0.985:
            self.read_batch(ledger_id)
        else:
            self.read_for_recovery(ledger_id)

    def compact(self) -> None:
        """Copy the live entries of files with dead entries, while other requests are answered."""
        self.machine.serving.compactor.request(self.random.choice((20, 80, 100)))

    def add(self, ledger_id: int) -> None:
        random = self.random
        is_recovery = random.random() < 0.3
        count = random.choice((1, 1, 1, 3, 8))
        first = self.next_id[ledger_id]
        if random.random() < 0.2:
            first = random.randrange(max(1, first))
        end = first + count + (random.random() < 0.1)
        self.next_id[ledger_id] = max(self.next_id[ledger_id], end)
        ids: Sequence[int] = range(first, first + count)
        if count == 3 and random.random() < 0.5:
            ids = (first, first + 2)
        self.number += 1
        payloads = [b"%d " % self.number * random.choice((1, 10, 700)) for _ in ids]
        is_repeated = random.random() < 0.1 and self.last_sent is not None
        if is_repeated and self.last_sent is not None:
            ledger_id, ids, payloads = self.last_sent
        self.send_add(ledger_id, ids, payloads, is_recovery=is_recovery)
        if is_repeated and random.random() < 0.3:
            # While the run is compared with the stored entries.
            self.let_run(random.randrange(3))
            self.drop(ledger_id)

    def send_add(
        self, ledger_id: int, ids: Sequence[int], payloads: list[bytes], *, is_recovery: bool
    ) -> None:
        """Send a run, and compare its answer with the model."""
        model = self.model
        self.last_sent = ledger_id, ids, payloads
        stored = {
            (ledger_id, i): entry(ledger_id, i, p) for i, p in zip(ids, payloads, strict=True)
        }
        age = model.age[ledger_id]
        for key, data in stored.items():
            model.possible.setdefault(key, Counter())[ANY_AGE, data] += 1
            self.written.setdefault(key, set()).add(data)
        was_fenced = ledger_id in model.fenced
        was_dropped = ledger_id in model.being_dropped
        sent_at, number = model.time, self.number

        def done(code: Code) -> None:
            for key in stored:
                self.accepted.get(key, set()).discard(number)
                if code is Code.OK and number in self.denied.get(key, ()):
                    raise ViolationError(f"{key}: denied to a recovery, and acknowledged after it")
            if code is Code.OK:
                if was_fenced and not is_recovery:
                    raise ViolationError(f"ledger {ledger_id} was fenced before {ids} was sent")
                if was_dropped and not is_recovery:
                    raise ViolationError(f"{ids} of {ledger_id} was sent after its drop and taken")
                last_said = model.fence_answers.get(ledger_id)
                if last_said is not None and not is_recovery and ids[-1] > last_said:
                    raise ViolationError(
                        f"{ids} acknowledged after a fence said {last_said} is the last"
                    )
                if not model.is_undropped(ledger_id, age):
                    # It is unknown whether it was accepted before or after the drop.
                    return
                for key, data in stored.items():
                    model.settle(key, data, sent_at)
                    model.possible[key][ANY_AGE, data] -= 1
            elif code is Code.FENCED and ledger_id not in model.fence_sent:
                raise ViolationError(f"ledger {ledger_id} is fenced, and nobody fenced it")
            elif code is Code.IO_ERROR and code in self.excused:
                return
            elif code is not Code.FENCED and code not in self.excused:
                raise ViolationError(f"add of {ids} answered {code} without any fault")
            else:
                for key, data in stored.items():
                    model.possible[key][ANY_AGE, data] -= 1

        request = add_request(ledger_id, ids, payloads, is_recovery=is_recovery)
        journal = self.machine.serving._journal
        ticket = journal.last_ticket
        call = partial(self.machine.serving.add, request)
        self.requests.send(f"add of {ids} to {ledger_id}", call, done)
        if journal.last_ticket > ticket:
            self.submitted[journal.last_ticket] = Submitted(ledger_id, age, stored)
            for key in stored:
                self.accepted.setdefault(key, set()).add(number)

    def fence(self, ledger_id: int) -> None:
        model = self.model
        model.fence_sent.add(ledger_id)
        # Recovery marks the record before it fences.
        self.machine.metadata.standings[ledger_id] = Standing.NOT_WRITABLE
        age, largest = model.age[ledger_id], model.largest(ledger_id)
        was_unknown = model.may_be_unknown(ledger_id)

        def done(code: Code, data: bytes | None) -> None:
            if code is Code.IO_ERROR and (was_unknown or model.may_be_unknown(ledger_id)):
                model.fenced.add(ledger_id)
                return
            if code is Code.IO_ERROR and self.excused:
                return
            if code is not Code.OK and not code.is_absent:
                raise ViolationError(
                    f"fence of ledger {ledger_id} answered {code} without any fault"
                )
            model.fenced.add(ledger_id)
            last = -1 if data is None else int.from_bytes(data[8:16], "big")
            if last < largest and age == model.age[ledger_id]:
                raise ViolationError(f"a fence of {ledger_id} shows {last}, it holds {largest}")
            model.fence_answers[ledger_id] = min(last, model.fence_answers.get(ledger_id, last))

        request = StoredRead(ledger_id, -1, fence_key=KEY, is_recovery=True)
        call = partial(self.machine.serving.read, request)
        self.requests.send(f"fence of {ledger_id}", call, done)

    def drop(self, ledger_id: int) -> None:
        model = self.model
        had_any = any(key[0] == ledger_id for key in model.acked)
        age = model.drop_sent(ledger_id)
        # A ledger is deleted before it is dropped.
        self.machine.metadata.standings[ledger_id] = Standing.NOT_WRITABLE

        def done(code: Code) -> None:
            if code in self.excused:
                model.being_dropped.discard(ledger_id)
                return
            if code is Code.NO_LEDGER and not had_any:
                model.being_dropped.discard(ledger_id)
                return
            if code is not Code.OK:
                raise ViolationError(f"drop of ledger {ledger_id} answered {code}")
            model.dropped[ledger_id] = max(age, model.dropped[ledger_id])
            model.fenced.add(ledger_id)
            if age == model.age[ledger_id]:
                model.dropping.pop(ledger_id, None)

        call = partial(self.machine.serving.drop, ledger_id)
        self.requests.send(f"drop of {ledger_id}", call, done)

    def release(self, ledger_id: int) -> None:
        """Release a ledger, if all of its adds are durable and some milliseconds old."""
        model, storage = self.model, self.machine.serving
        if not storage.hide(ledger_id):
            # In this listing, another period of adds begins.
            self.machine.host.spawn("candidates", self._list_candidates())
            return
        age = model.release_sent(ledger_id)
        model.hidden.add(ledger_id)

        def done(code: Code) -> None:
            if code is Code.READ_ONLY:
                storage.unhide(ledger_id)
            if code in (Code.OK, Code.READ_ONLY):
                model.hidden.discard(ledger_id)
            if code in self.excused:
                return
            if code is not Code.OK:
                raise ViolationError(f"release of ledger {ledger_id} answered {code}")
            self.seen["releases"] += 1
            model.dropped[ledger_id] = max(age, model.dropped[ledger_id])
            if age == model.age[ledger_id]:
                model.dropping.pop(ledger_id, None)

        call = partial(storage.release, ledger_id)
        self.requests.send(f"release of {ledger_id}", call, done)

    async def _list_candidates(self) -> None:
        await self.machine.serving.releasable()

    def write_lac(self, ledger_id: int) -> None:
        lac = self.random.randrange(100)

        def done(code: Code) -> None:
            # The LAC of a dropped ledger may be forgotten with it.
            if code is Code.OK and not self.model.age[ledger_id]:
                self.model.lac[ledger_id] = max(lac, self.model.lac.get(ledger_id, -1))

        # A larger LAC that was only announced need not be on the disk.
        self.machine.serving.announce_lac(ledger_id, 2 * lac, KEY)
        call = partial(self.machine.serving.write_lac, ledger_id, lac, KEY)
        self.requests.send(f"LAC of {ledger_id}", call, done)

    def read_newest(self) -> None:
        """Read an entry whose add may be pending."""
        ledger_id = self.random.choice(self.ledgers)
        self.read(ledger_id, max(0, self.next_id[ledger_id] - self.random.randrange(1, 3)))

    def read(self, ledger_id: int, entry_id: int | None = None) -> None:
        """Read an entry, or a random one if none is given.

        From then on, the returned bytes must stay.
        """
        if entry_id is None:
            entry_id = self.random.randrange(max(1, self.next_id[ledger_id]))
        before = self.model.acked.get((ledger_id, entry_id))
        dropped, age = self.model.dropped[ledger_id], self.model.age[ledger_id]
        was_hidden = ledger_id in self.model.hidden

        def done(code: Code, data: bytes | None) -> None:
            is_hidden = was_hidden or ledger_id in self.model.hidden
            if code in self.excused or (code is Code.IO_ERROR and is_hidden):
                return
            # The result may or may not include an add that was answered while the read was pending.
            if (before is None and code.is_absent) or (data is not None and data in (before or ())):
                return
            self.model.check_read(ledger_id, entry_id, code, data, dropped)
            if data is not None and age == dropped:
                self.model.show((ledger_id, entry_id), data, age)

        call = partial(self.machine.serving.read, StoredRead(ledger_id, entry_id))
        self.requests.send(f"read of {entry_id} of {ledger_id}", call, done)

    def read_batch(self, ledger_id: int) -> None:
        """Check that the entries are consecutive, and that the first entry is the same as in a
        single read.

        The other entries may be older copies, if an entry was added again with other bytes.
        """
        first = self.random.randrange(max(1, self.next_id[ledger_id]))
        before = self.model.acked.get((ledger_id, first))
        dropped = self.model.dropped[ledger_id]
        was_hidden = ledger_id in self.model.hidden

        def done(code: Code, entries: Sequence[bytes]) -> None:
            is_hidden = was_hidden or ledger_id in self.model.hidden
            if code in self.excused or (code is Code.IO_ERROR and is_hidden):
                return
            data = entries[0] if entries else None
            is_known = before is None and code.is_absent
            if not is_known and (data is None or data not in (before or ())):
                self.model.check_read(ledger_id, first, code, data, dropped)
            for entry_id, data in enumerate(entries, first):
                if data not in self.written.get((ledger_id, entry_id), ()):
                    raise ViolationError(f"a batch of {ledger_id} has other bytes at {entry_id}")

        request = StoredBatchRead(ledger_id, first, 8, 1 << 14)
        call = partial(self.machine.serving.read_batch, request)
        self.requests.send(f"reads from {first} of {ledger_id}", call, done)

    def read_for_recovery(self, ledger_id: int) -> None:
        """Check that this read waits for earlier adds, so it finds each acknowledged entry."""
        entry_id = max(0, self.next_id[ledger_id] - self.random.randrange(1, 4))
        key, age = (ledger_id, entry_id), self.model.age[ledger_id]
        pending = set(self.accepted.get(key, ()))

        def done(code: Code, _data: bytes | None) -> None:
            if code.is_absent and age == self.model.age[ledger_id]:
                self.denied.setdefault(key, set()).update(pending & self.accepted.get(key, set()))

        request = StoredRead(ledger_id, entry_id, is_recovery=True)
        call = partial(self.machine.serving.read, request)
        self.requests.send(f"recovery read of {entry_id} of {ledger_id}", call, done)

    def check_all(self) -> None:
        """Check that all promised entries are there, and that the present entries stay."""
        machine, model = self.machine, self.model
        everything: dict[tuple[int, int], bytes | None] = {}
        for ledger_id in range(self.ledgers_made):
            read: dict[tuple[int, int], bytes | None] = {}
            sent_again: set[tuple[int, int]] = set()
            for entry_id in range(self.next_id[ledger_id] + 2):
                code, data = machine.read(ledger_id, entry_id)
                model.check_read(ledger_id, entry_id, code, data)
                key = (ledger_id, entry_id)
                read[key] = data
                possible = model.possible.pop(key, Counter())
                if any(count > 0 and age == ANY_AGE for (age, _), count in possible.items()):
                    sent_again.add(key)
                if data is not None:
                    model.acked[key] = {data: model.time}
                    model.lost.discard(key)
                elif key in model.acked:
                    model.lost.add(key)
            model.check_whole(ledger_id, read, sent_again)
            everything |= read
        self.check_order(everything)
        for ledger_id in range(self.ledgers_made):
            self.check_ledger(ledger_id)
        machine.check_descriptors()
        machine.check_states()
        check_runs(machine)
        check_files(machine)
        check_origins(machine)

    def check_ledger(self, ledger_id: int) -> None:
        machine, model = self.machine, self.model
        present = {e for ledger, e in model.acked if ledger == ledger_id}
        held = machine.held(ledger_id)
        if not isinstance(held, StorageError):
            listed = {e for first, last in held for e in range(first, last + 1)}
            if listed != present:
                raise ViolationError(f"ledger {ledger_id}: holds {present}, lists {listed}")
        elif not model.in_doubt:
            raise ViolationError("nothing was damaged, and what is held is not known")
        code, lac = machine.ask(lambda done: machine.serving.read_lac(ledger_id, done))
        is_unknown = code is Code.IO_ERROR and model.in_doubt
        if (
            not is_unknown
            and ledger_id in model.lac
            and (code is not Code.OK or lac < model.lac[ledger_id])
        ):
            raise ViolationError(f"ledger {ledger_id}: LAC {model.lac[ledger_id]} became {lac}")
        is_fenced = machine.serving.is_fenced(ledger_id)
        if ledger_id in model.fenced and not is_fenced:
            # A ledger that was dropped long ago is forgotten, but adds to it are still refused.
            late = self.next_id[ledger_id] + 100
            may_be_gone = model.age[ledger_id] or self.losses.epoch
            if not may_be_gone or machine.add(ledger_id, (late,)) is Code.OK:
                raise ViolationError(f"ledger {ledger_id}: its fence was answered and is gone")
            self.seen["forgotten"] += 1

    def check_order(self, read: dict[tuple[int, int], bytes | None]) -> None:
        """Check that a crash lost only the last of the submitted records."""
        lost: Submitted | None = None
        for ticket in sorted(self.submitted):
            one = self.submitted[ticket]
            if one.age != self.model.age[one.ledger_id]:
                continue
            held = [read[key] for key in one.stored]
            if held == list(one.stored.values()) and lost is not None:
                raise ViolationError(f"{lost} is lost, and {one}, which came after it, is held")
            if all(data is None for data in held):
                lost = one


def noticed_by_scrubs(counters: StorageCounters) -> dict[str, int]:
    """The counters of scrubs that stay 0 without damage."""
    names = (
        "files_skipped", "damaged_records", "damaged_indexes", "wrong_pointers", "counts_corrected",
    )  # fmt: skip
    return {name: getattr(counters, f"scrub_{name}") for name in names}
