"""Random runs in which a bit of an entry-log file or of a journal file flips.

Sometimes a bit of the index behind the damaged record flips too, a start is cut, or a read fails.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from bookie_server.core.group_copy import MAGIC as COPY_MAGIC
from bookie_server.core.manifest_codec import FileState
from bookie_server.core.record_codec import MAGIC
from bookie_server.core.requests import StoredAdd, StoredRead
from ledgerlog_spark.model import NO_ENTRY, Code
from tests.crash.machine import add_request, entry
from tests.crash.model import ViolationError
from tests.crash.modes import JOURNAL
from tests.crash.run import Run
from tests.sim.disk import SECTOR

STARTS = 3
"""Number of starts after the damage."""
HEAD_SIZE = 64
ASKED_MIN = 30
ASKED_MAX = 200
"""Maximum number of reads that are sent one after the other while a file is in doubt."""
EVERY_FILE_PERCENT = 101
"""Files without a deleted entry are compacted too."""
START_EVENTS = 200
"""Approximate number of events of a start."""
REPAIR_MS = 1_000
LAST_BYTES = 80
"""Number of bytes of the last heads of a file that are damaged most often."""


class RotRun:
    """A run without power losses, a flipped bit, and then starts, drops and repeated adds.

    Attributes:
        run: The entries that are written before the damage, and their model.
        seen: Situations that occurred.
        is_repairable: Whether only an index is damaged, so that a rebuild ends the doubt about its
            file.
        is_proved: Whether a MANIFEST proves that all records are synced.
        may_show_older: Whether the index that points to the damaged record is damaged too, or does
            not exist yet. If the record is not found, an older copy of the entry may be read.
    """

    def __init__(self, seed: int) -> None:
        self.run = Run(seed)
        self.is_proved = self.is_repairable = self.may_show_older = False
        self.random = self.run.random
        self.machine = self.run.machine
        self.seen: Counter[str] = Counter()

    def play(self) -> None:
        run, machine = self.run, self.machine
        machine.start()
        for _ in range(self.random.randrange(30, 150)):
            run.operate()
            run.let_run(self.random.randrange(25))
        machine.scheduler.run_for(500)
        self.settle()
        if self.random.random() < 0.4:
            self.prove_all()
        if not self.rot():
            return
        for number in range(STARTS):
            self.restart()
            self.ask_at_once()
            self.check()
            self.check_repaired()
            if self.random.random() < 0.5:
                machine.compact(EVERY_FILE_PERCENT)
                self.check()
            if number < STARTS - 1:
                self.add_again()
                self.drop_one()
                machine.scheduler.run_for(1_500)
                machine.reclaim()
                self.check()

    def prove_all(self) -> None:
        """Have a MANIFEST that proves the last records, without a watermark after them."""
        for _ in range(self.random.randrange(1, 6)):
            self.run.operate()
            self.run.let_run(self.random.randrange(25))
        self.settle()
        journal, keeper = self.machine.serving._journal, self.machine.serving._keeper
        self.machine.scheduler.run_until(lambda: journal.durable_ticket == journal.last_ticket)
        self.machine.scheduler.run(keeper.commit_soon(), self.machine.host)
        self.is_proved = True

    def settle(self) -> None:
        """Let everything be answered."""
        self.machine.scheduler.run_until(lambda: not self.machine.serving._health.in_flight_bytes)

    def restart(self) -> None:
        if self.random.random() < 0.5:
            self.machine.stop()
        else:
            if not self.is_proved:
                self.machine.scheduler.run_for(200)
            self.machine.crash()
        self.is_proved = False
        while self.random.random() < 0.5:
            self.cut_start()
        self.machine.start()
        counters = self.machine.serving.counters
        self.seen["rebuilt"] += counters.boot_rebuilt_indexes
        self.seen["damaged"] += counters.boot_damaged_records
        self.note_doubt()
        self.seen["in doubt"] += self.run.model.in_doubt

    def note_doubt(self) -> None:
        """Note whether the bookie may have lost a record of an unknown ledger."""
        self.run.model.in_doubt |= self.machine.serving._health.doubt.epoch > 0

    def cut_start(self) -> None:
        """End the process during its start."""
        self.machine.host.spawn("start", self.run.opening())
        self.run.let_run(self.random.randrange(1, START_EVENTS))
        (self.machine.lose_power if self.random.random() < 0.5 else self.machine.crash)()
        self.seen["cut starts"] += 1

    def rot(self) -> bool:
        """Flip a bit of a file at a place where it cannot look like a torn write.

        The bit is often in the headers of the records, or in the index after them. Sometimes, one
        bit flips in a record and another bit in the index.
        """
        where = self.random.choice(("anywhere", "heads", "index"))
        disk = self.machine.disk
        places: list[tuple[str, int]] = []
        for file in self.machine.manifest().files:
            content = disk.durable_names[file.slot]
            is_finished = file.state is FileState.FINISHED
            is_proved = is_finished or self.is_proved
            end = len(content.durable) if is_proved else content.vouched_end
            start = file.finish_offset if is_finished and where == "index" else 0
            used = [at for at in range(start, end) if content.durable[at]]
            if where == "heads":
                used = [at for at in used if is_in_head(content.durable, at)]
                if self.is_proved:
                    used = used[-LAST_BYTES:]
            places += [(file.slot, at) for at in used]
        if not places:
            return False
        slot, at = self.random.choice(places)
        disk.flip_bit(slot, at, self.random.randrange(8))
        self.seen["rot"] += 1
        (file,) = (file for file in self.machine.manifest().files if file.slot == slot)
        self.may_show_older = file.state is FileState.OPEN
        if file.state is FileState.FINISHED:
            self.is_repairable = at >= file.finish_offset
            if not self.is_repairable and self.random.random() < 0.5:
                durable = disk.durable_names[slot].durable
                index = [at for at in range(file.finish_offset, len(durable)) if durable[at]]
                disk.flip_bit(slot, self.random.choice(index), self.random.randrange(8))
                self.may_show_older = True
                self.seen["rot of both"] += 1
        return True

    def check_repaired(self) -> None:
        """Check that no file is in doubt after all reads, if only an index was damaged."""
        self.machine.scheduler.run_for(REPAIR_MS)
        doubts = self.machine.serving._health.files_in_doubt
        if self.is_repairable and doubts:
            raise ViolationError(f"only an index is damaged, and these are in doubt: {doubts}")

    def check(self) -> None:
        """Check that no answer has wrong bytes, or denies that a written entry exists."""
        run, machine, model = self.run, self.machine, self.run.model
        for ledger_id in range(run.ledgers_made):
            for entry_id in range(run.next_id[ledger_id] + 2):
                self.judge(ledger_id, entry_id, *machine.read(ledger_id, entry_id))
                code, batch = machine.read_batch(ledger_id, entry_id, 3)
                self.judge(ledger_id, entry_id, code, batch[0] if batch else None)
            code, data = machine.read(ledger_id, NO_ENTRY)
            last = NO_ENTRY if data is None else int.from_bytes(data[8:16], "big")
            if (code is Code.OK or code.is_absent) and last < model.largest(ledger_id):
                raise ViolationError(f"{last} is named the last of {ledger_id}: {code}")
            code, lac = machine.ask(partial(machine.serving.read_lac, ledger_id))
            if (code is Code.OK or code.is_absent) and lac < model.lac.get(ledger_id, NO_ENTRY):
                raise ViolationError(f"the LAC of {ledger_id} became {lac}")
            if ledger_id in model.fenced:
                late = (run.next_id[ledger_id] + 100,)
                if machine.add(ledger_id, late) is Code.OK:
                    raise ViolationError(f"the fence of {ledger_id} is gone")

    def ask_at_once(self) -> None:
        """Send reads that run while an index is found to be damaged and is rebuilt."""
        run, machine = self.run, self.machine
        keys = list(run.model.acked)
        doubts = machine.serving._health.files_in_doubt
        read_errors = self.random.choice((0, 0, 1, 3))
        for number in range(ASKED_MAX if keys else 0):
            if number >= ASKED_MIN and not doubts:
                break
            if doubts:  # often, the rebuild meets them
                machine.disk.faults.read_errors += read_errors
                read_errors = 0
            key = self.random.choice(keys)
            call = partial(machine.serving.read, StoredRead(*key))
            run.requests.send(f"read of {key}", call, partial(self.judge, *key))
            run.let_run(self.random.randrange(4))
        machine.scheduler.run_until(lambda: not run.requests.open)
        machine.disk.faults.read_errors = 0

    def judge(self, ledger_id: int, entry_id: int, code: Code, data: bytes | None) -> None:
        if code is Code.IO_ERROR:
            self.seen["unknown"] += 1
            return
        # The damaged record may be a tombstone. The next collection drops its ledger again.
        self.note_doubt()
        health = self.machine.serving._health
        in_doubt = health.files_in_doubt or health.damaged_files
        older = self.run.written.get((ledger_id, entry_id), ())
        if in_doubt and self.may_show_older and data in older:
            return
        self.run.model.check_read(ledger_id, entry_id, code, data, 0 if in_doubt else None)

    def add_again(self) -> None:
        """Let recovery add stored entries again, damaged or not."""
        model = self.run.model
        for (ledger_id, entry_id), stored in list(model.acked.items()):
            if self.random.random() < 0.3:
                (data, *_) = stored
                code = self.add(add_request(ledger_id, (entry_id,), data[32:], is_recovery=True))
                if code is Code.OK:
                    model.acked[ledger_id, entry_id] = {entry(ledger_id, entry_id, data[32:]): 0}
                    self.seen["added again"] += 1
        left = self.machine.serving._health.in_flight_bytes
        if left:
            raise ViolationError(f"{left} bytes are in flight, and everything is answered")

    def add(self, request: StoredAdd) -> Code:
        code: Code = self.machine.ask(lambda done: self.machine.serving.add(request, done))[0]
        return code

    def drop_one(self) -> None:
        """Drop a ledger, and let recovery add one of its entries again."""
        run, machine = self.run, self.machine
        ledger_id = self.random.randrange(run.ledgers_made)
        run.drop(ledger_id)
        machine.scheduler.run_for(100)
        if self.random.random() < 0.5 and run.next_id[ledger_id]:
            entry_id = self.random.randrange(run.next_id[ledger_id])
            if self.add(add_request(ledger_id, (entry_id,), b"back", is_recovery=True)) is Code.OK:
                stored = entry(ledger_id, entry_id, b"back")
                run.model.acked[ledger_id, entry_id] = {stored: 0}
                self.seen["brought back"] += 1


class JournalRotRun(Run):
    """A run with a journal: the process is killed or the power fails, and a journal bit flips.

    After a kill, the entry-log files have everything that was acknowledged, so nothing is lost.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, JOURNAL)

    def play(self, rounds: int = 4) -> None:
        """Play rounds with kills, or end with a power loss."""
        self.take_mode()
        self.machine.start()
        for _ in range(rounds):
            self.use_files_again()
            for _ in range(self.random.randrange(1, 25)):
                self.operate()
                self.let_run(self.random.randrange(1, 25))
            is_killed = self.random.random() < 0.7
            (self.machine.crash if is_killed else self.machine.lose_power)()
            self.seen["rot"] += self.rot(is_killed=is_killed)
            while self.random.random() < 0.3:
                self.cut_start(is_killed=is_killed)
            self.take_mode()
            self.machine.start()
            self.requests.forget()
            self.model.process_ended()
            self.check_held(is_killed=is_killed)
            for noted in (self.submitted, self.accepted, self.denied):
                noted.clear()
            if not is_killed or self.machine.serving._keeper.is_in_doubt:
                return

    def cut_start(self, *, is_killed: bool) -> None:
        """End the process during its start. A power loss would take what only the cache has."""
        self.take_mode()
        self.machine.host.spawn("start", self.opening())
        self.let_run(self.random.randrange(1, START_EVENTS))
        has_power = is_killed or self.random.random() < 0.5
        (self.machine.crash if has_power else self.machine.lose_power)()
        self.seen["cut starts"] += 1

    def use_files_again(self) -> None:
        """Fill a file, and delete it, so that the next file gets its slot."""
        if self.random.random() < 0.5:
            return
        ledger_id = self.ledgers_made
        self.ledgers_made += 1
        for number in range(20):
            self.next_id[ledger_id] = number + 1
            self.number += 1
            payload = b"%d." % self.number * 1_000
            self.send_add(ledger_id, (number,), [payload], is_recovery=False)
            self.let_run(30)
        self.drop(ledger_id)
        self.machine.scheduler.run_for(200)
        self.machine.reclaim()
        self.seen["recycled"] += bool(self.machine.manifest().free_slots)

    def rot(self, *, is_killed: bool) -> bool:
        """Flip a bit of a copy, often of its head.

        After a power loss, the last copy is not chosen, because its damage would look like a torn
        write.
        """
        disk = self.machine.journal_disk
        copies = [
            (int.from_bytes(content.seen[at + 16 : at + 24], "big"), name, at)
            for name, content in sorted(disk.seen_names.items())
            for at in range(0, len(content.seen), SECTOR)
            if content.seen[at : at + 4] == COPY_MAGIC
        ]
        if not is_killed:
            copies = sorted(copies)[:-1]
        if not copies:
            return False
        _, name, at = self.random.choice(copies)
        size = int.from_bytes(disk.seen_names[name].seen[at + 72 : at + 76], "big")
        is_head = self.random.random() < 0.5
        at += (
            self.random.randrange(112) if is_head else SECTOR + self.random.randrange(max(1, size))
        )
        disk.flip_bit(name, at, self.random.randrange(8))
        return True

    def check_held(self, *, is_killed: bool) -> None:
        """No answer is wrong; after a kill, each acknowledged entry is read."""
        machine, model = self.machine, self.model
        for ledger_id in range(self.ledgers_made):
            for entry_id in range(self.next_id[ledger_id] + 2):
                code, data = machine.read(ledger_id, entry_id)
                key = ledger_id, entry_id
                if not is_killed and data in self.written.get(key, ()):
                    pass  # a power loss and a damaged copy may leave older bytes of an entry
                elif code is not Code.IO_ERROR:
                    model.check_read(ledger_id, entry_id, code, data)
                elif is_killed and key in model.acked:
                    raise ViolationError(f"{key}: acknowledged, and answered {code} after a kill")
                if data is not None:
                    model.acked[key] = {data: model.time}
            code, lac = machine.ask(partial(machine.serving.read_lac, ledger_id))
            if (code is Code.OK or code.is_absent) and lac < model.lac.get(ledger_id, NO_ENTRY):
                raise ViolationError(f"the LAC of {ledger_id} became {lac}")
            late = (self.next_id[ledger_id] + 100,)
            if ledger_id in model.fenced and machine.add(ledger_id, late) is Code.OK:
                raise ViolationError(f"the fence of {ledger_id} is gone")


def is_in_head(data: bytes | bytearray, at: int) -> bool:
    """Whether a byte belongs to the header of a record."""
    start = at // SECTOR * SECTOR
    return data[start : start + len(MAGIC)] == MAGIC and at - start < HEAD_SIZE
