"""Sends and confirms the pending runs of one ensemble.

`LedgerWriter` and the `WriteBack` of a recovery each have a pipeline. The pipeline has no reference
to its owner or to the metadata. It sends runs, records answers and confirms runs in order. Its
owner decides what to do about failed bookies, pauses confirmation during an ensemble change, and
names the replacements.

Each run has a bit mask of the indexes that acknowledged it. A bit means that the bookie at this
index stored its part of the run. So a striped run (E > Qw) is confirmed when each of its entries
has Qa bits within its own write set (PROTOCOL.md#A6).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX, RUN_ENTRIES_MAX, Code, Quorum
from ledgerlog_spark.protocol.ledger.messages import (
    AddReplied,
    HoleLeft,
    Payload,
    Run,
    RunConfirmed,
    SendAdd,
)
from ledgerlog_spark.protocol.ledger.quorum import is_acknowledged, owned_entries, write_set_masks
from ledgerlog_spark.protocol.request_numbers import RequestNumbers

ENTRY_OVERHEAD_BYTES = 64
"""Number of bytes of an entry in a run without its payload: header, longest digest, id, length."""

FRAME_OVERHEAD_BYTES = 256
"""Number of bytes reserved for the head of a frame. Every head is smaller."""


def check_run(payloads: Sequence[Payload]) -> None:
    """Raise LocalProtocolError if a run is empty, or has too many entries or bytes."""
    if not 1 <= len(payloads) <= RUN_ENTRIES_MAX:
        raise LocalProtocolError(
            f"a run has {len(payloads)} entries, but must have 1 to {RUN_ENTRIES_MAX}: split it",
            entries=len(payloads),
        )
    size_bytes = sum(map(len, payloads)) + ENTRY_OVERHEAD_BYTES * len(payloads)
    if size_bytes > FRAME_SIZE_BYTES_MAX - FRAME_OVERHEAD_BYTES:
        raise LocalProtocolError(
            f"a run of {size_bytes} bytes with its headers is larger than a frame of "
            f"{FRAME_SIZE_BYTES_MAX} bytes: split it",
            size_bytes=size_bytes,
        )


@dataclass(frozen=True, slots=True)
class Window:
    """Limits for entries that are not on their whole write set yet (PROTOCOL.md#A11).

    A confirmed entry is not counted if only absent bookies lack it.

    Attributes:
        entries_max: Maximum number of entries, at least 1.
        size_bytes_max: Maximum payload bytes, at least 1. The last run may exceed this limit, so
            that any run fits.
    """

    entries_max: int = 65_536
    size_bytes_max: int = 32 << 20


@dataclass(slots=True)
class MemberAnswer:
    """The answer of the bookie at an index about its part of a run."""

    index: int
    bookie_id: str
    code: Code


@dataclass(slots=True, eq=False, repr=False)
class SentRun:
    """A run, and the bookies that have stored it."""

    run: Run
    owners: int  # bits of the indexes that stored their part, or must still store it
    acked: int = 0  # bits of the indexes that stored their part
    requests: dict[int, int] = field(default_factory=dict)  # index -> request number
    is_confirmed: bool = False

    def __repr__(self) -> str:
        return f"SentRun({self.run}, owners={self.owners:b}, acked={self.acked:b})"


class AddPipeline:
    """The pending runs of one ensemble. Each run is confirmed as a whole, and in order."""

    def __init__(
        self,
        *,
        ledger_id: int,
        quorum: Quorum,
        ensemble: tuple[str, ...],
        numbers: RequestNumbers,
        last_add_confirmed: int,
        length: int,
        window: Window,
        # whether all runs have the flag RECOVERY_ADD, and all their headers contain
        # `last_add_confirmed` of this call as their LAC (PROTOCOL.md#C10)
        is_recovery: bool = False,
    ) -> None:
        self.ledger_id = ledger_id
        self.quorum = quorum
        self.ensemble = ensemble  # by index; only `replace` changes it
        # all entries up to and including this entry are confirmed (PROTOCOL.md#A4)
        self.last_add_confirmed = last_add_confirmed
        self.length = length  # payload bytes up to and including last_add_confirmed
        self.next_entry_id = last_add_confirmed + 1  # first entry of the next run
        # number of entries in runs that some bookie has not stored yet, including confirmed runs
        self.entries_in_flight = 0
        self.size_bytes_in_flight = 0  # payload bytes of these entries
        self.is_paused = False  # while this is true, `last_add_confirmed` does not change
        self.is_recovery = is_recovery
        self._lac_found = last_add_confirmed
        self._length_sent = length  # payload bytes up to and excluding `next_entry_id`
        self._numbers = numbers
        self._window = window
        self._suspended = 0  # bits of the indexes that no run is sent to
        self._abandoned = 0  # bits of suspended indexes that own no pending run
        self._absent = 0  # bits of suspended indexes that no confirmed run is kept for
        # by bookie: first and last of the entries that are not sent to it any more
        self._holes: dict[str, tuple[int, int]] = {}
        self._everyone = (1 << quorum.ensemble_size) - 1
        self._is_striped = quorum.is_striped
        self._ack_quorum = quorum.ack_quorum
        # the runs from last_add_confirmed + 1 to next_entry_id - 1, in order, until `withdraw`
        self._unconfirmed: deque[SentRun] = deque()
        self._late: dict[int, SentRun] = {}  # confirmed runs that an owner has not stored
        # by request number: each pending send of a run in `_unconfirmed` or `_late`, with its index
        self._sent: dict[int, tuple[SentRun, int]] = {}

    @property
    def can_add(self) -> bool:
        """Whether the window has room for one more run."""
        return (
            self.entries_in_flight < self._window.entries_max
            and self.size_bytes_in_flight < self._window.size_bytes_max
        )

    @property
    def first_unconfirmed_entry_id(self) -> int | None:
        """First entry of the oldest unconfirmed run; None when all runs are confirmed."""
        return self._unconfirmed[0].run.first_entry_id if self._unconfirmed else None

    @property
    def is_stuck(self) -> bool:
        """Whether the oldest run cannot get an ack quorum, even if all pending sends succeed."""
        if not self._unconfirmed:
            return False
        pending = self._unconfirmed[0]
        possible = pending.acked
        for index in pending.requests:
            possible |= 1 << index
        return not self._has_quorum(pending, possible)

    @property
    def header_last_add_confirmed(self) -> int:
        """The LAC in the headers of the next run."""
        return self._lac_found if self.is_recovery else self.last_add_confirmed

    def add(self, payloads: Sequence[Payload]) -> list[SendAdd]:
        """Send a run to each bookie that stores a part and is not suspended (PROTOCOL.md#A1)."""
        first, entries = self.next_entry_id, len(payloads)
        size_bytes = sum(map(len, payloads))
        run = Run(
            ledger_id=self.ledger_id,
            first_entry_id=first,
            last_entry_id=first + entries - 1,
            payloads=payloads,
            last_add_confirmed=self.header_last_add_confirmed,
            length_before=self._length_sent,
            entries=entries,
            size_bytes=size_bytes,
        )
        assert run.last_add_confirmed < first <= run.last_entry_id
        self.next_entry_id = first + entries
        self._length_sent += size_bytes
        owners = self._owners(run)
        if self._abandoned:
            for index in _indexes(owners & self._abandoned):
                self._note_hole(run, index)
        pending = SentRun(run, owners & ~self._abandoned)
        self._unconfirmed.append(pending)
        self.entries_in_flight += entries
        self.size_bytes_in_flight += size_bytes
        return [self._send(pending, index) for index in _indexes(pending.owners & ~self._suspended)]

    def take_reply(self, reply: AddReplied) -> MemberAnswer | None:
        """Record an answer. An answer to an outdated send changes nothing (PROTOCOL.md#A7)."""
        sent = self._sent.pop(reply.request, None)
        if sent is None:
            return None
        pending, index = sent
        del pending.requests[index]
        if reply.code is Code.OK:
            pending.acked |= 1 << index
            self._release_if_answered(pending)
        return MemberAnswer(index, self.ensemble[index], reply.code)

    def confirm(self) -> list[RunConfirmed]:
        """Confirm runs in order until a run has no ack quorum; while paused, confirm nothing."""
        confirmed: list[RunConfirmed] = []
        while self._unconfirmed and not self.is_paused:
            pending = self._unconfirmed[0]
            if not self._has_quorum(pending, pending.acked):
                break
            self._unconfirmed.popleft()
            confirmed.append(self._confirm(pending))
        return confirmed

    def suspend(self, index: int) -> None:
        """Send nothing to the bookie at `index` until `replace` or `resend`. Its answers count."""
        self._suspended |= 1 << index

    def is_suspended(self, index: int) -> bool:
        """Whether nothing is sent to the bookie at `index` until `replace` or `resend`."""
        return bool(self._suspended >> index & 1)

    def replace(self, ensemble: tuple[str, ...], indexes: Iterable[int]) -> list[SendAdd]:
        """Use a new ensemble for all entries after the last add confirmed.

        Before any run can be confirmed, the acknowledgements of unconfirmed runs at `indexes` are
        dropped (PROTOCOL.md#B12). Then every unconfirmed run is sent to the bookies at `indexes`,
        even to a bookie that did not change (PROTOCOL.md#B17). Confirmed runs stay in the old
        fragment, so answers of replaced bookies to these runs are no longer awaited.
        """
        indexes = tuple(indexes)
        for index in indexes:
            for pending in self._unconfirmed:
                self._forget(pending, index)
            for pending in tuple(self._late.values()):
                self._let_off(pending, index)
            self._end_suspension(index)
        self.ensemble = ensemble
        return [effect for index in indexes for effect in self._send_missing(index)]

    def resend(self, index: int) -> list[SendAdd]:
        """End the suspension of `index`, and send its bookie all runs that it has not stored."""
        self._end_suspension(index)
        return self._send_missing(index)

    def leave_out(self, index: int) -> None:
        """Send nothing to the bookie at `index` until `replace` or `resend`.

        From now on, no confirmed run is kept for this bookie. Only the ids of the confirmed entries
        that it lacks are stored (PROTOCOL.md#A11).
        """
        self.suspend(index)
        self._absent |= 1 << index
        for pending in tuple(self._late.values()):
            self._let_off(pending, index)

    def has_hole(self, index: int) -> bool:
        """Whether the bookie at `index` lacks confirmed entries that are not sent any more."""
        return self.ensemble[index] in self._holes

    def note_holes(self, indexes: Iterable[int]) -> None:
        """Record holes: confirmed entries that bookies at `indexes` lack and no longer get."""
        for index in indexes:
            for pending in tuple(self._late.values()):
                self._let_off(pending, index)

    def note_holes_of_suspended(self) -> None:
        """Record holes: confirmed entries that bookies at suspended indexes have not stored."""
        self.note_holes(_indexes(self._suspended))

    def take_holes(self) -> tuple[HoleLeft, ...]:
        """Return the holes that were recorded since the last call, sorted by bookie."""
        holes = tuple(HoleLeft(*ids, name) for name, ids in sorted(self._holes.items()))
        self._holes.clear()
        return holes

    def abandon(self, index: int) -> None:
        """Send nothing more to the bookie at `index`, because it has no replacement.

        Its answers are not awaited any more.
        """
        self.suspend(index)
        self._abandoned |= 1 << index
        for pending in (*self._late.values(), *self._unconfirmed):
            self._let_off(pending, index)

    def withdraw(self) -> int | None:
        """Drop all pending runs, and return the first entry of the oldest unconfirmed run.

        These runs are never confirmed, and their outcome is unknown.
        """
        first = self.first_unconfirmed_entry_id
        self._unconfirmed.clear()
        self._late.clear()
        self._sent.clear()
        self.entries_in_flight = 0
        self.size_bytes_in_flight = 0
        return first

    def _has_quorum(self, pending: SentRun, acked: int) -> bool:
        if not self._is_striped:
            return acked.bit_count() >= self._ack_quorum
        run = pending.run
        return is_acknowledged(self.quorum, acked, run.first_entry_id, run.entries)

    def _owners(self, run: Run) -> int:
        if not self._is_striped:
            return self._everyone
        size = self.quorum.ensemble_size
        if run.entries >= size:
            return self._everyone
        masks = write_set_masks(self.quorum)
        owners = 0
        for step in range(run.entries):
            owners |= masks[(run.first_entry_id + step) % size]
        return owners

    def _send(self, pending: SentRun, index: int) -> SendAdd:
        numbers = self._numbers
        numbers.last = number = numbers.last + 1
        pending.requests[index] = number
        self._sent[number] = (pending, index)
        run = pending.run
        entry_ids = None
        if self._is_striped:
            owned = owned_entries(self.quorum, index, run.first_entry_id, run.last_entry_id)
            entry_ids = owned if len(owned) < run.entries else None
        return SendAdd(number, self.ensemble[index], index, run, entry_ids, self.is_recovery)

    def _send_missing(self, index: int) -> list[SendAdd]:
        bit = 1 << index
        return [
            self._send(pending, index)
            for pending in (*self._late.values(), *self._unconfirmed)
            if pending.owners & bit and not pending.acked & bit and index not in pending.requests
        ]

    def _confirm(self, pending: SentRun) -> RunConfirmed:
        run = pending.run
        self.last_add_confirmed = run.last_entry_id
        self.length = run.length_before + run.size_bytes
        pending.is_confirmed = True
        self._late[run.first_entry_id] = pending
        if self._absent:
            for index in _indexes(self._absent):
                self._let_off(pending, index)
        self._release_if_answered(pending)
        return RunConfirmed(run.first_entry_id, run.last_entry_id)

    def _forget(self, pending: SentRun, index: int) -> None:
        pending.acked &= ~(1 << index)
        self._drop_request(pending, index)

    def _end_suspension(self, index: int) -> None:
        self._suspended &= ~(1 << index)
        self._absent &= ~(1 << index)

    def _let_off(self, pending: SentRun, index: int) -> None:
        self._drop_request(pending, index)
        if pending.owners & ~pending.acked & 1 << index:
            self._note_hole(pending.run, index)
        pending.owners &= pending.acked | ~(1 << index)
        self._release_if_answered(pending)

    def _note_hole(self, run: Run, index: int) -> None:
        bookie_id = self.ensemble[index]
        first, last = self._holes.get(bookie_id, (run.first_entry_id, run.last_entry_id))
        self._holes[bookie_id] = min(first, run.first_entry_id), max(last, run.last_entry_id)

    def _drop_request(self, pending: SentRun, index: int) -> None:
        number = pending.requests.pop(index, None)
        if number is not None:
            del self._sent[number]

    def _release_if_answered(self, pending: SentRun) -> None:
        """Remove a confirmed run from the window after all its bookies have stored it."""
        if pending.is_confirmed and pending.acked == pending.owners:
            run = pending.run
            if self._late.pop(run.first_entry_id, None) is not None:
                self.entries_in_flight -= run.entries
                self.size_bytes_in_flight -= run.size_bytes


def _indexes(mask: int) -> Iterator[int]:
    index = 0
    while mask:
        if mask & 1:
            yield index
        mask >>= 1
        index += 1
