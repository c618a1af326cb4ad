"""Compares every positive answer in a trace with the earlier writes and syncs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct

from tests.ack_audit.trace import Moment

WRITES = frozenset(("pwritev", "pwritev2", "pwrite64"))
SYNCS = frozenset(("fdatasync", "fsync"))
SENDS = frozenset(("write", "writev", "sendto", "sendmsg"))
ADD, READ, ADD_RUN = 1, 2, 64
ID = Struct(">q")
ANSWER = Struct(">IIiqq")
"""The beginning of each answer: length, packet header, code, ledger id, entry id."""


@dataclass
class Findings:
    """The results of the audit.

    Attributes:
        answers: Positive answers to adds, runs and fences.
        syncs: Number of syncs that returned 0.
        early: Answers before the write and the sync, as (kind, ledger id, entry id).
    """

    answers: int = 0
    syncs: int = 0
    early: list[tuple[str, int, int]] = field(default_factory=list)


class Auditor:
    """Reads the moments in order, and computes which entries and fences are durable at each moment.

    Args:
        entry_ledgers: Ids of ledgers with entries.
        fenced_ledgers: Ids of ledgers that are only fenced.
        runs: From (ledger id, first entry id) to all entry ids of a run, which has one answer.
    """

    def __init__(
        self,
        entry_ledgers: Iterable[int],
        fenced_ledgers: Iterable[int],
        runs: dict[tuple[int, int], range],
    ) -> None:
        self.findings = Findings()
        self._entry_ledgers = tuple(entry_ledgers)
        self._fenced_ledgers = frozenset(fenced_ledgers)
        self._runs = runs
        self._written: dict[int, set[tuple[int, int]]] = {}
        self._synced: set[tuple[int, int]] = set()
        self._covered_by: dict[int, set[tuple[int, int]]] = {}
        self._streams: dict[int, bytearray] = {}

    def take(self, moment: Moment) -> None:
        """Process the next moment of the trace."""
        if moment.name in WRITES and moment.is_end and moment.result > 0:
            found = self._stored(moment.content[: moment.result])
            self._written.setdefault(moment.descriptor, set()).update(found)
        elif moment.name in SYNCS and not moment.is_end:
            # A sync covers only bytes that were written before it began.
            self._covered_by[moment.call] = set(self._written.get(moment.descriptor, ()))
        elif moment.name in SYNCS and moment.result == 0:
            self.findings.syncs += 1
            self._synced |= self._covered_by.pop(moment.call, set())
        elif moment.name in SENDS and not moment.is_end and moment.target.startswith("TCP"):
            stream = self._streams.setdefault(moment.descriptor, bytearray())
            stream += moment.content
            self._check_answers(stream)

    def _stored(self, content: bytes) -> set[tuple[int, int]]:
        """For the written bytes: (ledger, entry) of each entry, and (ledger, -1) of each fence."""
        found: set[tuple[int, int]] = set()
        for ledger_id in self._entry_ledgers:
            mark, at = ID.pack(ledger_id), -1
            while (at := content.find(mark, at + 1)) >= 0:
                if at + 16 <= len(content):
                    found.add((ledger_id, ID.unpack_from(content, at + 8)[0]))
        found.update((i, -1) for i in self._fenced_ledgers if ID.pack(i) in content)
        return found

    def _check_answers(self, stream: bytearray) -> None:
        while len(stream) >= 4 and len(stream) >= (size := int.from_bytes(stream[:4]) + 4):
            if size >= ANSWER.size:
                _, header, code, ledger_id, entry_id = ANSWER.unpack_from(stream)
                self._check(header >> 16 & 0xFF, code, ledger_id, entry_id)
            del stream[:size]

    def _check(self, opcode: int, code: int, ledger_id: int, entry_id: int) -> None:
        if opcode in (ADD, ADD_RUN) and code == 0:
            entries = self._runs.get((ledger_id, entry_id), range(entry_id, entry_id + 1))
            what = {(ledger_id, e) for e in entries}
        elif opcode == READ and ledger_id in self._fenced_ledgers:
            what = {(ledger_id, -1)}  # every answer to a fencing read confirms the fence
        else:
            return
        self.findings.answers += 1
        if not what <= self._synced:
            kind = "fence" if opcode == READ else "add"
            self.findings.early.append((kind, ledger_id, entry_id))
