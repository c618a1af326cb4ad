"""Small directories of a bookie, with each kind of file, and the acknowledged state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

from bookie_server.core.bookie_run import BookieWriteMode
from bookie_server.core.manifest_codec import FileState, decode_manifest
from bookie_server.core.settings import ModeSettings
from ledgerlog_spark.model import Code
from tests.crash.machine import KEY, SMALL, Machine, entry

SETTINGS = replace(SMALL, pieces_max=8, pool_files_max=1)
JOURNAL = replace(
    SETTINGS,
    mode_settings=ModeSettings(
        write_mode=BookieWriteMode.JOURNAL, journal_directory="/journal", journal_files=2
    ),
)
IDLE_MS = 500
"""After this time without records, a watermark proves that all of them were synced."""


@dataclass
class Truth:
    """The state that a bookie acknowledged.

    Attributes:
        entries: The stored bytes of each entry, by ledger and id.
        lac: The last add confirmed of each ledger.
        fenced: Ledgers that are fenced, including deleted ones.
        dropped: Ids of the entries of deleted ledgers.
        unknown: A ledger that the bookie never had.
    """

    entries: dict[tuple[int, int], bytes] = field(default_factory=dict)
    lac: dict[int, int] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    dropped: dict[int, range] = field(default_factory=dict)
    unknown: int = 99

    @property
    def ledgers(self) -> list[int]:
        return sorted({ledger for ledger, _ in self.entries} | self.lac.keys())


@dataclass(frozen=True)
class Stored:
    """One file: its bytes, and its allocated size."""

    data: bytes
    allocated: int = 0


@dataclass(frozen=True)
class Scenario:
    """The files of a directory, and of its journal, after the bookie ended.

    Attributes:
        name: The name of the scenario.
        files: The files of the directory, by name.
        journal: The files of the journal directory, by name.
        roles: The roles of the files in the table of outcomes, by name.
        truth: What the bookie acknowledged.
    """

    name: str
    files: dict[str, Stored]
    journal: dict[str, Stored]
    roles: dict[str, str]
    truth: Truth


class _Writer:
    """Adds entries to a machine, and records the truth."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.truth = Truth()

    def add(self, ledger_id: int, ids: range, payload: bytes) -> None:
        assert self.machine.add(ledger_id, ids, payload) is Code.OK
        for entry_id in ids:
            self.truth.entries[ledger_id, entry_id] = entry(ledger_id, entry_id, payload)
        self.truth.lac[ledger_id] = max(self.truth.lac.get(ledger_id, -1), ids[-1] - 1)

    def fence(self, ledger_id: int) -> None:
        assert self.machine.fence(ledger_id)[0] is Code.OK
        self.truth.fenced.add(ledger_id)

    def announce(self, ledger_id: int, lac: int) -> None:
        answer = self.machine.ask(
            lambda done: self.machine.serving.write_lac(ledger_id, lac, KEY, done)
        )
        assert answer == (Code.OK,)
        self.truth.lac[ledger_id] = lac

    def drop(self, ledger_id: int) -> None:
        assert self.machine.drop(ledger_id) is Code.OK
        gone = [i for ledger, i in self.truth.entries if ledger == ledger_id]
        self.truth.dropped[ledger_id] = range(min(gone), max(gone) + 1)
        for entry_id in gone:
            del self.truth.entries[ledger_id, entry_id]
        self.truth.fenced.add(ledger_id)
        self.truth.lac.pop(ledger_id, None)


def _fill(writer: _Writer) -> None:
    """One finished file and one open one, each with entries, control records and a deletion."""
    writer.add(1, range(3), b"one" * 20)
    writer.add(2, range(1), b"two" * 250)
    writer.add(5, range(2), b"five")
    writer.fence(2)
    writer.drop(5)
    writer.announce(1, 2)
    writer.add(1, range(3, 5), b"more")
    machine = writer.machine
    while not list(machine.serving._keeper.finished):
        machine.scheduler.run_for(20)
        next_id = max(i for ledger, i in writer.truth.entries if ledger == 1) + 1
        writer.add(1, range(next_id, next_id + 1), b"%d" % next_id)
    machine.scheduler.run_for(20)
    writer.add(3, range(2), b"three" * 30)
    writer.add(6, range(2), b"six")
    writer.fence(3)
    writer.announce(4, 7)
    writer.drop(6)
    writer.add(1, range(100, 102), b"last")
    machine.scheduler.run_for(IDLE_MS)


def _killed() -> _Writer:
    machine = Machine(1, settings=SETTINGS)
    machine.start()
    writer = _Writer(machine)
    _fill(writer)
    machine.crash()
    return writer


def _stopped() -> _Writer:
    machine = Machine(2, settings=SETTINGS)
    machine.start()
    writer = _Writer(machine)
    _fill(writer)
    machine.stop()
    return writer


def _journal() -> _Writer:
    """After a power loss, the newest entries are only in the journal."""
    machine = Machine(3, settings=JOURNAL)
    machine.start()
    writer = _Writer(machine)
    writer.add(1, range(3), b"one" * 20)
    writer.add(2, range(1), b"two" * 250)
    writer.fence(2)
    writer.announce(4, 7)
    writer.add(1, range(3, 5), b"more")
    machine.scheduler.run_for(IDLE_MS)
    for content in machine.disk.seen_names.values():
        content.unsynced = []
    machine.lose_power()
    return writer


MAKERS: dict[str, Callable[[], _Writer]] = {
    "killed": _killed,
    "stopped": _stopped,
    "journal": _journal,
}


@cache
def scenario(name: str) -> Scenario:
    """Build a scenario; all processes build the same bytes."""
    writer = MAKERS[name]()
    machine = writer.machine
    files = {
        each: Stored(bytes(content.seen), content.allocated)
        for each, content in sorted(machine.disk.seen_names.items())
    }
    journal = {
        each: Stored(bytes(content.seen), content.allocated)
        for each, content in sorted(machine.journal_disk.seen_names.items())
    }
    manifest = decode_manifest(files["MANIFEST"].data)
    roles = {"MANIFEST": "MANIFEST", manifest.state_file: "ledger states"}
    for file in manifest.files:
        is_unused = len(files[file.slot].data) <= 8_192
        is_open = file.state is FileState.OPEN
        roles[file.slot] = (
            "unused entry log" if is_unused else "open entry log" if is_open else "entry log, index"
        )
    roles |= dict.fromkeys(journal, "journal")
    return Scenario(name, files, journal, roles, writer.truth)
