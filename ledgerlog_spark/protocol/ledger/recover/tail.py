"""Reads the entries after the last safe entry, and writes these entries back.

The last safe entry is the LAC that fencing found, or the entry before the last fragment if that
entry is later. The headers of the entries that are written back contain the last safe entry as
their LAC. So no reader ever sees a LAC after the last entry of the closed ledger (PROTOCOL.md#C10).
Bookies that fail at this time are replaced only in memory. The compare-and-swap that closes the
ledger also writes the replacements to the metadata (PROTOCOL.md#C11). This compare-and-swap fails
if another bookie has taken over the id of a replacement after this replacement got its first entry
(PROTOCOL.md#C25).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ledgerlog_spark.model import (
    NO_ENTRY,
    RUN_ENTRIES_MAX,
    RUN_SIZE_BYTES_MAX,
    Code,
    Fragment,
    LedgerMetadata,
    Versioned,
)
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.identities import IdentitiesRead, Identity, ReadIdentities
from ledgerlog_spark.protocol.ledger.overload import BusyBookies
from ledgerlog_spark.protocol.ledger.recover.fencing import Fencing
from ledgerlog_spark.protocol.ledger.recover.reads import ReadAhead, RecoveryReads, Verdict
from ledgerlog_spark.protocol.ledger.write.add_pipeline import AddPipeline, Window
from ledgerlog_spark.protocol.ledger.write.ensemble_change import (
    FailedBookies,
    fragments_up_to,
    with_fragment,
)
from ledgerlog_spark.protocol.placement.replacement import Replacements
from ledgerlog_spark.protocol.request_numbers import RequestNumbers
from ledgerlog_spark.retry import RetryPolicy

OVERLOAD = RetryPolicy(first_delay_ms=20, delay_max_ms=1_000, attempts_max=16)
"""Delays between retries while a bookie answers BUSY, about 10 s in total.

After that, the bookie counts as failed.
"""


LINGER_ENTRIES = 64
LINGER_SIZE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class TailStep:
    """The result of one event. After `is_written` or a failure, the tail takes no more replies."""

    effects: Sequence[m.Effect] = ()
    is_written: bool = False  # all entries are on an ack quorum, so the owner can close
    failure: m.Failure | None = None  # why the attempt has failed
    about: Mapping[str, Any] = field(default_factory=dict)  # fields of the failure's error


def _failed(failure: m.Failure, **about: Any) -> TailStep:
    return TailStep(failure=failure, about=about)


@dataclass(slots=True, eq=False)
class WriteBack:
    """Buffers the recovered entries, and sends them as runs with the RECOVERY_ADD flag.

    Each entry keeps its id, its payload and the ledger's length in its header. All headers contain
    the last safe entry as their LAC (PROTOCOL.md#C10).
    """

    ledger_id: int
    metadata: LedgerMetadata
    found: int  # the last safe entry, which fencing found; later entries are written back
    numbers: RequestNumbers
    window: Window
    buffered_size_bytes_max: int
    # created when the first entry arrives, because the length in its header is needed
    pipeline: AddPipeline | None = None
    _buffered: deque[m.StoredEntry] = field(default_factory=deque)
    _buffered_size_bytes: int = 0
    _measured_length: int | None = None

    @property
    def last_add_confirmed(self) -> int:
        """Last entry on an ack quorum; at first the last safe entry that fencing found."""
        return self.found if self.pipeline is None else self.pipeline.last_add_confirmed

    @property
    def length(self) -> int | None:
        """Payload bytes of the ledger up to `last_add_confirmed`; None if unknown."""
        return self._measured_length if self.pipeline is None else self.pipeline.length

    @property
    def is_finished(self) -> bool:
        """Whether all entries taken so far are on an ack quorum."""
        idle = self.pipeline is None or self.pipeline.first_unconfirmed_entry_id is None
        return idle and not self._buffered

    @property
    def has_room(self) -> bool:
        """Whether the buffer has room, so that recovery may read further ahead."""
        return self._buffered_size_bytes < self.buffered_size_bytes_max

    def set_length(self, length: int) -> None:
        """Set the length of the ledger. This is allowed only before the first entry."""
        assert self.pipeline is None
        self._measured_length = length

    def take(self, entries: Iterable[m.StoredEntry]) -> None:
        """Buffer the next entries, which follow without gaps."""
        for entry in entries:
            if self.pipeline is None:
                self.pipeline = self._begin(entry)
            self._buffered.append(entry)
            self._buffered_size_bytes += len(entry.payload)

    def flush(self, *, is_end: bool) -> list[m.SendAdd]:
        """Send the buffered entries in runs.

        If `is_end` is false, a small run waits while another run is pending.
        """
        effects: list[m.SendAdd] = []
        pipeline = self.pipeline
        while self._buffered and pipeline is not None and pipeline.can_add:
            is_small = (
                len(self._buffered) < LINGER_ENTRIES
                and self._buffered_size_bytes < LINGER_SIZE_BYTES
            )
            if is_small and not is_end and pipeline.first_unconfirmed_entry_id is not None:
                break
            effects += pipeline.add(self._next_run())
        return effects

    def _begin(self, first: m.StoredEntry) -> AddPipeline:
        return AddPipeline(
            ledger_id=self.ledger_id,
            quorum=self.metadata.quorum,
            ensemble=self.metadata.last_fragment.ensemble,
            numbers=self.numbers,
            last_add_confirmed=first.entry_id - 1,
            length=first.length - len(first.payload),
            window=self.window,
            is_recovery=True,
        )

    def _next_run(self) -> list[m.Payload]:
        payloads: list[m.Payload] = []
        size_bytes = 0
        while self._buffered and len(payloads) < RUN_ENTRIES_MAX:
            payload = self._buffered[0].payload
            if payloads and size_bytes + len(payload) > RUN_SIZE_BYTES_MAX:
                break
            self._buffered.popleft()
            size_bytes += len(payload)
            payloads.append(payload)
        self._buffered_size_bytes -= size_bytes
        return payloads


class RecoveryTail:
    """Reads the entries after the last safe entry and writes them back, in one attempt.

    The owner of the tail sets IN_RECOVERY in the metadata, fences the ledger and closes it. After
    every reply, in any order of replies, `_advance` decides the next step. It also checks whether
    an ack quorum is still possible. If no ack quorum is possible, the attempt fails and waits for
    no more replies.
    """

    def __init__(
        self,
        *,
        ledger_id: int,
        record: Versioned[LedgerMetadata],  # the metadata before the attempt fenced the ledger
        fencing: Fencing,  # its state is COVERED
        bookies: FailedBookies,  # no index waits for a replacement
        read_ahead: ReadAhead,
        window: Window,
        numbers: RequestNumbers,
    ) -> None:
        self._record = record
        self._fencing = fencing
        self._bookies = bookies
        self._read_ahead = read_ahead
        self._numbers = numbers
        self._busy = BusyBookies(numbers, OVERLOAD)
        self._listing = 0
        self._reading = 0  # the number of the pending read of identities
        self._chosen: Replacements | None = None  # replacements whose identities are being read
        # identity of each replacement, read before the replacement got its first entry
        self._identities: dict[str, Identity] = {}
        self._hedge_timer = 0
        metadata = record.value
        # the last fragment of `record`, and the fragments that replacements began
        self.fragments: tuple[Fragment, ...] = (metadata.last_fragment,)
        found = self._last_safe_entry(fencing.last_add_confirmed)
        self._reads = RecoveryReads(
            quorum=metadata.quorum,
            ensemble=metadata.last_fragment.ensemble,
            answering=fencing.known,
            first_entry_id=found + 1,
            read_ahead=read_ahead,
            numbers=numbers,
            last_entry_ids=fencing.last_entry_ids,
        )
        self.write_back = WriteBack(
            ledger_id=ledger_id,
            metadata=metadata,
            found=found,
            numbers=numbers,
            window=window,
            buffered_size_bytes_max=read_ahead.size_bytes_max,
        )

    def begin(self) -> list[m.Effect]:
        """Send the first reads, and start the timer for slow reads."""
        self._hedge_timer = self._numbers.next()
        hedge = m.StartTimer(self._hedge_timer, self._read_ahead.slow_member_ms)
        return [*self._reads.fill(), hedge]

    def take_entries(self, event: m.ReadReplied | m.BatchReplied) -> TailStep:
        """Handle a bookie's answer to a read."""
        effects: list[m.Effect] = []
        if isinstance(event, m.BatchReplied):
            effects += self._reads.take_batch_reply(event)
        else:
            self._fencing.take_reply(event)
            effects += self._reads.take_reply(event)
        return self._advance(effects)

    def take_add(self, event: m.AddReplied) -> TailStep:
        """Handle a bookie's answer to a run that was written back."""
        pipeline = self.write_back.pipeline
        answer = None if pipeline is None else pipeline.take_reply(event)
        if pipeline is None or answer is None:
            return TailStep()
        if answer.code is Code.UNAUTHORIZED:
            return _failed(m.Failure.UNAUTHORIZED)
        if answer.code is Code.OK:
            self._busy.stored(answer.index)
            pipeline.confirm()
            return self._advance([])
        if pipeline.is_suspended(answer.index):
            return self._advance([])
        pipeline.suspend(answer.index)
        if answer.code is Code.BUSY:
            self._busy.refused(answer.index)
            timer = self._busy.wait(answer.index)
            if timer is not None:
                return self._advance([timer])
        self._busy.forget(answer.index)
        self._bookies.report(answer.index, answer.bookie_id, answer.code)
        return self._advance(self._list_bookies())

    def take_bookies(self, event: m.BookiesListed) -> TailStep:
        """Choose replacements of failed bookies, and read their identities (PROTOCOL.md#C25)."""
        pipeline = self.write_back.pipeline
        if event.request != self._listing or pipeline is None:
            return TailStep()
        self._listing = 0
        found = self._bookies.choose(self._record.value.quorum, pipeline.ensemble, event)
        self._abandon(pipeline, found.unreplaced)
        if not found.replaced:
            return self._advance([])
        self._chosen = found
        self._reading = self._numbers.next()
        chosen = tuple(found.ensemble[index] for index in found.replaced)
        return self._advance([ReadIdentities(self._reading, chosen)])

    def take_identities(self, event: IdentitiesRead) -> TailStep:
        """Replace failed bookies, in memory (PROTOCOL.md#C11).

        A bookie without an identity counts as failed, and another bookie is chosen. If the
        identities cannot be read, nothing is replaced.
        """
        pipeline, chosen = self.write_back.pipeline, self._chosen
        if event.request != self._reading or pipeline is None or chosen is None:
            return TailStep()
        self._chosen = None
        found = {one.bookie_id: one for one in event.identities or ()}
        effects: list[m.Effect] = []
        if event.identities is None:
            self._abandon(pipeline, chosen.replaced)
        elif all(chosen.ensemble[index] in found for index in chosen.replaced):
            effects += self._replace(pipeline, chosen)
            self._identities = {**found, **self._identities}
        else:
            for index in chosen.replaced:
                if chosen.ensemble[index] not in found:
                    self._bookies.settle(index)  # so that this failure counts too
                    self._bookies.report(index, chosen.ensemble[index], Code.UNAVAILABLE)
        return self._advance([*effects, *(self._list_bookies() if self._bookies else ())])

    @property
    def identities(self) -> tuple[Identity, ...]:
        """Identities of the replacements that the close names (PROTOCOL.md#C25)."""
        kept = fragments_up_to(self.fragments, self.write_back.last_add_confirmed)
        named = {name for fragment in kept for name in fragment.ensemble}
        return tuple(one for name, one in self._identities.items() if name in named)

    def _replace(self, pipeline: AddPipeline, chosen: Replacements) -> list[m.SendAdd]:
        for index in chosen.replaced:
            self._bookies.settle(index)
        new = Fragment(pipeline.last_add_confirmed + 1, chosen.ensemble)
        self.fragments = with_fragment(self.fragments, new)
        effects = pipeline.replace(chosen.ensemble, chosen.replaced)
        pipeline.confirm()
        return effects

    def _abandon(self, pipeline: AddPipeline, indexes: Iterable[int]) -> None:
        for index in indexes:
            self._bookies.settle(index)
            pipeline.abandon(index)

    def take_timer(self, event: m.TimerFired) -> list[m.Effect]:
        """Request slow entries from other bookies, or resend runs that a busy bookie refused.

        A timer of an earlier attempt is ignored.
        """
        index, pipeline = self._busy.fired(event.request), self.write_back.pipeline
        if index is not None and pipeline is not None:
            sent = pipeline.resend(index)
            self._busy.resumed(index, len(sent))
            return [*sent]
        if event.request != self._hedge_timer:
            return []
        self._hedge_timer = self._numbers.next()
        timer = m.StartTimer(self._hedge_timer, self._read_ahead.slow_member_ms)
        return [*self._reads.hedge(), timer]

    def measure(self) -> list[m.Effect]:
        """Read the length of the ledger from the header of the last safe entry.

        This is needed when no entry was written back (PROTOCOL.md#C22).
        """
        last = self.write_back.last_add_confirmed
        if last == NO_ENTRY:
            self.write_back.set_length(0)
            return []
        metadata = self._record.value
        ensemble = metadata.fragment_of(last).ensemble
        self._reads = RecoveryReads(
            quorum=metadata.quorum,
            ensemble=ensemble,
            answering=(1 << len(ensemble)) - 1,
            first_entry_id=last,
            read_ahead=ReadAhead(entries_first=1, entries_max=1),
            numbers=self._numbers,
        )
        return [*self._reads.fill()]

    def take_measured(self, event: m.ReadReplied) -> TailStep:
        """Handle a bookie's answer to the read that `measure` sent."""
        effects: list[m.Effect] = [*self._reads.take_reply(event)]
        if self._reads.is_unauthorized:
            return _failed(m.Failure.UNAUTHORIZED)
        match self._reads.verdict:
            case Verdict.PRESENT:
                (entry,) = self._reads.take_present()
                self.write_back.set_length(entry.length)
                return TailStep(is_written=True)
            case Verdict.UNDECIDED:
                return TailStep(effects)
            case _:
                return _failed(m.Failure.RECOVERY, entry_id=self._reads.next_entry_id)

    def holes(self) -> tuple[m.HoleLeft, ...]:
        """Return the entries of the last fragment that bookies lack (PROTOCOL.md#C24).

        The owner calls this when the attempt has ended.
        """
        first = self._record.value.last_fragment.first_entry_id
        holes = {hole.bookie_id: hole for hole in self._fencing.holes(first, self.write_back.found)}
        pipeline = self.write_back.pipeline
        if pipeline is not None:
            pipeline.note_holes(range(len(pipeline.ensemble)))
            for hole in pipeline.take_holes():
                before = holes.get(hole.bookie_id, hole)
                holes[hole.bookie_id] = replace(hole, first_entry_id=before.first_entry_id)
        return tuple(holes.values())

    def _last_safe_entry(self, last_add_confirmed: int) -> int:
        """Return the LAC, or the last entry before the last fragment if that entry is later.

        The bookies of the last fragment have no earlier entries (PROTOCOL.md#C6).
        """
        return max(last_add_confirmed, self._record.value.last_fragment.first_entry_id - 1)

    def _advance(self, effects: list[m.Effect]) -> TailStep:
        """Write back present entries in order, until the first absent entry (PROTOCOL.md#C9)."""
        if self._reads.is_unauthorized:
            return _failed(m.Failure.UNAUTHORIZED)
        self.write_back.take(self._reads.take_present())
        verdict = self._reads.verdict
        if verdict is Verdict.UNKNOWN:
            return _failed(m.Failure.RECOVERY, entry_id=self._reads.next_entry_id)
        is_end = verdict is Verdict.ABSENT
        effects += self.write_back.flush(is_end=is_end)
        if is_end and self.write_back.is_finished:
            return TailStep(effects, is_written=True)
        if self._is_stuck:
            return self._fail_for_bookies()
        if not is_end and self.write_back.has_room:
            effects += self._reads.fill()
        return TailStep(effects)

    def _list_bookies(self) -> list[m.Effect]:
        if self._is_replacing:
            return []
        self._listing = self._numbers.next()
        return [m.ListBookies(self._listing)]

    @property
    def _is_replacing(self) -> bool:
        return self._listing != 0 or self._chosen is not None

    @property
    def _is_stuck(self) -> bool:
        """Whether the pending replies cannot complete the ack quorum of the oldest run."""
        pipeline = self.write_back.pipeline
        if pipeline is None or self._is_replacing or self._busy.is_waiting:
            return False
        return pipeline.is_stuck

    def _fail_for_bookies(self) -> TailStep:
        """End the attempt, because the bookies that still answer are too few for an ack quorum."""
        pipeline = self.write_back.pipeline
        assert pipeline is not None
        size = len(pipeline.ensemble)
        answering = sum(not pipeline.is_suspended(index) for index in range(size))
        return _failed(m.Failure.NOT_ENOUGH_BOOKIES, wanted=size, available=answering)
