"""Each way to read gets the newest copy of an entry, and the live bytes of all files are exact."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from bookie_server.core.requests import StoredReads
from bookie_server.storage.files.entry_log_file import FinishedFile, all_pieces, read_header
from bookie_server.storage.reading.readings import finish
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, entry

LEDGERS = (1, 2, 3)
FILLER = 99


class History:
    """Random requests of one bookie, and the newest copy of each entry."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        settings = replace(SMALL, recent_bytes_max=1, pool_files_max=2, compaction_bytes_per_s=0)
        self.machine = Machine(seed, settings=settings)
        self.machine.disk.cold_part = self.random.choice((0.0, 0.3, 1.0))
        self.machine.start()
        self.newest: dict[tuple[int, int], bytes] = {}
        self.ends = dict.fromkeys((*LEDGERS, FILLER), 0)

    def step(self) -> None:
        random, machine = self.random, self.machine
        ledger_id = random.choice(LEDGERS)
        do = random.randrange(10)
        if do < 3:
            first = self.ends[ledger_id]
            self.add(ledger_id, range(first, first + random.randint(1, 12)), is_recovery=False)
        elif do < 5:
            end = self.ends[ledger_id] + 3
            self.add(ledger_id, sorted(random.sample(range(end), random.randint(1, 3))))
        elif do < 7:
            for _ in range(random.randint(1, 20)):
                self.add(FILLER, (self.ends[FILLER],), is_recovery=False, size=3_000)
        elif do == 7:
            machine.compact(random.choice((100, 80)))
        elif do == 8 and random.random() < 0.5:
            if machine.drop(ledger_id) is Code.OK:
                for key in [key for key in self.newest if key[0] == ledger_id]:
                    del self.newest[key]
        elif do == 9:
            self.restart()

    def add(
        self, ledger_id: int, ids: list[int] | range | tuple[int], *,
        is_recovery: bool = True, size: int = 0,
    ) -> None:  # fmt: skip
        payload = self.random.randbytes(1) * (size or self.random.choice((0, 10, 300)))
        code = self.machine.add(ledger_id, ids, payload, is_recovery=is_recovery)
        if code is Code.OK:
            self.ends[ledger_id] = max(self.ends[ledger_id], ids[-1] + 1)
            for one in ids:
                self.newest[ledger_id, one] = entry(ledger_id, one, payload)

    def restart(self) -> None:
        machine = self.machine
        machine.scheduler.run_for(400)
        before = {file.entry.file_id: file.live_bytes for file in self.files}
        getattr(machine, self.random.choice(("stop", "crash", "lose_power")))()
        machine.start()
        after = {file.entry.file_id: file.live_bytes for file in self.files}
        assert {each: after[each] for each in before if each in after} == {
            each: size for each, size in before.items() if each in after
        }

    @property
    def files(self) -> list[FinishedFile]:
        return list(self.machine.serving._keeper.finished)

    def check(self) -> None:
        for ledger_id in LEDGERS:
            ids = range(self.ends[ledger_id] + 2)
            wanted = [self.newest.get((ledger_id, one)) for one in ids]
            assert [self.machine.read(ledger_id, one)[1] for one in ids] == wanted
            assert self.read_together(ledger_id, ids) == wanted
            start = self.random.choice(ids)
            _, batch = self.machine.read_batch(ledger_id, start)
            assert list(batch) == wanted[start : start + len(batch)]
            requested = [(one, [(0, 1 << 20)]) for one in ids[start:]]
            _, slices = self.machine.read_slices(ledger_id, requested)
            assert list(slices) == wanted[start : start + len(slices)]
        self.machine.scheduler.run_for(1_000)  # until all files without live entries are freed
        for file in self.files:
            assert file.live_bytes == file.live.total() == self.live_bytes(file)

    def read_together(self, ledger_id: int, ids: range) -> list[bytes | None]:
        found: dict[int, bytes | None] = {}
        at = 0
        while at < len(ids):
            at += self.machine.serving.read_together(
                StoredReads(ledger_id, ids[at:]),
                lambda code, some, entries: found.update(
                    zip(some, entries, strict=True) if code is Code.OK else dict.fromkeys(some)
                ),
            )
        self.machine.scheduler.run_until(lambda: len(found) == len(ids))
        return [found[one] for one in ids]

    def live_bytes(self, file: FinishedFile) -> int:
        """The bytes of all entries in the index of a file that no tombstone deletes."""
        tombstone_of = self.machine.serving._states.tombstone_of

        async def count() -> int:
            size = 0
            for total in file.totals():
                for piece in await finish(all_pieces(file, total.ledger_id)):
                    if piece.origin > tombstone_of(total.ledger_id):
                        record = await finish(read_header(file.handle, file.identity, piece.target))
                        end = piece.place + piece.last - piece.first + 1
                        size += sum(record.lengths[piece.place : end])
            return size

        return self.machine.scheduler.run(count(), self.machine.host)


@pytest.mark.parametrize("seed", range(12))
def test_newest_copies_are_read_and_live_bytes_are_exact(seed: int) -> None:
    history = History(seed)
    for _ in range(6):
        for _ in range(8):
            history.step()
        history.check()
