"""Starts the storage of a bookie with a damaged directory, and judges the answers."""

from __future__ import annotations

from enum import Enum
from functools import partial

from bookie_server.core.requests import StoredRead
from bookie_server.errors import StorageError
from bookie_server.ports import Standing
from ledgerlog_spark.errors import StartupError
from ledgerlog_spark.model import NO_ENTRY, Code
from tests.corruption.damage import Case, damaged
from tests.corruption.scenarios import JOURNAL, SETTINGS, Scenario, Stored, Truth
from tests.crash.machine import Machine
from tests.sim.disk import Content, SimDisk

LATE = 10_000
"""The id of an add that comes after the damage."""
SECOND_STARTS = 8
"""In one of this number of cases, the reads are repeated after another start."""


EntryAnswer = tuple[int, int, Code, bytes | None]
"""Ledger, entry, code and bytes of the answer to a read."""


class Verdict(Enum):
    """The result of one case."""

    HARMLESS = "harmless"
    """All answers are right."""
    DETECTED = "detected"
    """The start was refused, or an answer was `unknown`. All other answers are right."""
    WRONG = "wrong"
    """An answer is wrong, or the start failed with an error of another class."""


class WrongAnswerError(AssertionError):
    """The bookie gave an answer that it must not give."""


def judge(scenario: Scenario, case: Case | None, number: int = 0) -> tuple[Verdict, str]:
    """Damage a directory, start the bookie, and read. Return the verdict and its reason."""
    machine = machine_of(scenario, case)
    try:
        try:
            was_detected = _ask_after_start(machine, scenario.truth)
            if number % SECOND_STARTS == 0:
                machine.crash()
                was_detected |= _ask_after_start(machine, scenario.truth)
        except (StartupError, StorageError) as error:
            return Verdict.DETECTED, type(error).__name__
        except Exception as error:  # noqa: BLE001 - whatever a start raises is judged here
            return Verdict.WRONG, f"{case}: {type(error).__name__}: {error}"
        return (Verdict.DETECTED, "unknown") if was_detected else (Verdict.HARMLESS, "")
    finally:
        machine.scheduler.close()


def machine_of(scenario: Scenario, case: Case | None) -> Machine:
    """A machine that is down, with the files of a scenario after the damage."""
    is_journal = bool(scenario.journal)
    machine = Machine(7, settings=JOURNAL if is_journal else SETTINGS)
    machine.is_new = False
    for disk, files in ((machine.disk, scenario.files), (machine.journal_disk, scenario.journal)):
        disk.cold_part = 0.0
        for name, stored in files.items():
            is_damaged = case is not None and case.file == name
            _put(disk, name, damaged(stored, case) if is_damaged and case else stored)
    machine.metadata.standings = dict.fromkeys(scenario.truth.fenced, Standing.NOT_WRITABLE)
    return machine


def _put(disk: SimDisk, name: str, stored: Stored) -> None:
    content = Content()
    content.seen[:] = stored.data
    content.durable[:] = stored.data
    content.allocated = stored.allocated
    disk.seen_names[name] = disk.durable_names[name] = content


def _ask_after_start(machine: Machine, truth: Truth) -> bool:
    """Start, and read everything. Return whether any answer was `unknown`."""
    machine.start()
    asked = _Asked(machine, truth)
    asked.entries()
    asked.lacs_and_ends()
    asked.fences()
    machine.scheduler.run_for(20)
    return asked.was_unknown


class _Asked:
    """Reads from a running bookie.

    Attributes:
        was_unknown: Whether an answer was `unknown`.
    """

    def __init__(self, machine: Machine, truth: Truth) -> None:
        self.machine = machine
        self.truth = truth
        self.was_unknown = self._is_in_doubt

    @property
    def _is_in_doubt(self) -> bool:
        health = self.machine.serving._health
        return bool(health.files_in_doubt) or not health.doubt.is_over

    def _is_unknown(self, code: Code) -> bool:
        self.was_unknown |= code is Code.IO_ERROR
        return code is Code.IO_ERROR

    def entries(self) -> None:
        answers: list[EntryAnswer] = []
        ids = {ledger: {LATE + 1} for ledger in (*self.truth.ledgers, self.truth.unknown)}
        for ledger_id, entry_id in self.truth.entries:
            ids[ledger_id] |= {entry_id, entry_id + 1}
        for ledger_id, gone in self.truth.dropped.items():
            ids[ledger_id] = set(gone)
        for ledger_id, some in ids.items():
            for entry_id in sorted(some):
                self._send_read(ledger_id, entry_id, answers)
        count = sum(map(len, ids.values()))
        self.machine.scheduler.run_until(lambda: len(answers) == count)
        for answer in answers:
            self._judge_entry(*answer)

    def _send_read(self, ledger_id: int, entry_id: int, answers: list[EntryAnswer]) -> None:
        def on_done(code: Code, data: bytes | None) -> None:
            answers.append((ledger_id, entry_id, code, data))

        self.machine.serving.read(StoredRead(ledger_id, entry_id), on_done)

    def _judge_entry(self, ledger_id: int, entry_id: int, code: Code, data: bytes | None) -> None:
        if self._is_unknown(code):
            return
        wanted = self.truth.entries.get((ledger_id, entry_id))
        is_right = (code, data) == (Code.OK, wanted) if wanted is not None else code.is_absent
        # A deleted entry may come back with a damaged tombstone, until it is deleted again.
        is_deleted = entry_id in self.truth.dropped.get(ledger_id, ())
        if not is_right and not (is_deleted and self._is_in_doubt):
            raise WrongAnswerError(f"entry {entry_id} of {ledger_id} is {code.name}, {data!r}")

    def lacs_and_ends(self) -> None:
        for ledger_id in self.truth.ledgers:
            code, lac = self.machine.ask(partial(self.machine.serving.read_lac, ledger_id))
            if not self._is_unknown(code) and (code, lac) != (Code.OK, self.truth.lac[ledger_id]):
                raise WrongAnswerError(f"the LAC of {ledger_id} is {lac}, {code.name}")
            wanted = max((i for led, i in self.truth.entries if led == ledger_id), default=NO_ENTRY)
            code, data = self.machine.read(ledger_id, NO_ENTRY)
            last = NO_ENTRY if data is None else int.from_bytes(data[8:16], "big")
            if not self._is_unknown(code) and last != wanted:
                raise WrongAnswerError(f"{last} is named the last entry of {ledger_id}")

    def fences(self) -> None:
        for ledger_id in self.truth.fenced:
            code = self.machine.add(ledger_id, (LATE,))
            if code is Code.OK:
                raise WrongAnswerError(f"the fence of {ledger_id} is gone")
            self._is_unknown(code)
        others = set(self.truth.ledgers) - self.truth.fenced
        for ledger_id in sorted(others)[:1]:
            code = self.machine.add(ledger_id, (LATE,), key=bytes(20))
            if code is Code.OK:
                raise WrongAnswerError(f"ledger {ledger_id} takes another key")
            self._is_unknown(code)
