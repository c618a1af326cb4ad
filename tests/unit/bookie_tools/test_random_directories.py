"""The tools on directories of random runs find the entries that the storage returns."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bookie_server.core.manifest_codec import decode_manifest
from ledgerlog_spark.model import Code
from tests.crash.run import Run
from tests.crash.seeds import play_all
from tests.fixtures.examples import examples
from tests.fixtures.resting import written
from tests.unit.bookie_tools.calls import checked, content_of, dumped

SEEDS = examples(8, 400)
MARKS = ("visits", "files", "pieces", "entries", "gaps", "copies")


class VisitedRun(Run):
    """A run whose directory is examined whenever its machine is down."""

    def __init__(self, seed: int, path: Path) -> None:
        super().__init__(seed)
        self.path = path
        self.visits = 0

    def come_up(self) -> None:
        self.visits += 1
        directory = written(self.machine, self.path / f"{self.machine.starts}-{self.visits}")
        before = content_of(directory)
        report = checked(directory)
        assert report.wrong == 0, report.findings
        self.seen["files"] += report.seen["files"]
        manifest = decode_manifest((directory / "MANIFEST").read_bytes())
        self.seen["copies"] += sum(file.is_copies for file in manifest.files)
        self.seen["pieces"] += report.seen["pieces"]
        found = {each: dumped(directory, each) for each in range(self.ledgers_made)}
        assert content_of(directory) == before
        starts = self.machine.starts
        super().come_up()
        if self.machine.starts > starts + 1:
            # The power failed during the start, and data that was only in the page cache is lost.
            return
        for ledger_id, (entries, outcome) in found.items():
            assert outcome.unreadable.count == outcome.files_in_doubt == 0
            last = max(entries, default=-1)
            assert outcome.missing.count == last + 1 - len(entries)
            for entry_id in range(last + 2):
                code, data = self.machine.read(ledger_id, entry_id)
                if entry_id in entries:
                    assert (code, data) == (Code.OK, entries[entry_id]), (ledger_id, entry_id)
                    self.seen["entries"] += 1
                else:
                    assert code.is_absent, (ledger_id, entry_id, code)
            self.seen["gaps"] += outcome.missing.count
            part = range(last // 3, last * 2 // 3 + 1)
            if entries:
                some, _ = dumped(directory, ledger_id, part[0], part[-1])
                assert some == {i: entries[i] for i in part if i in entries}
        self.seen["visits"] += 1


@pytest.mark.parametrize("part", range(2))
def test_check_finds_nothing_and_dump_finds_what_readers_find(part: int, tmp_path: Path) -> None:
    def play(seed: int) -> Counter[str]:
        run = VisitedRun(seed, tmp_path / str(seed))
        run.path.mkdir()
        run.run(3)
        return run.seen

    play_all(range(part, SEEDS, 2), play, MARKS)
