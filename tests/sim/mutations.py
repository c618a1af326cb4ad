"""Named defects: each replaces one method or function of the shipped code while it is applied.

The shipped code has no switches. A mutation is a known mistake (docs/PROTOCOL.md). The
counterexample with the name of the same rule must fail while the mutation is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import bookie_server.storage.adds as adds_module
from bookie_server.core import ledger_gate
from bookie_server.core.ledger_gate import admit_add
from bookie_server.core.ledger_state import HeldLedger
from bookie_server.core.record import JournalRecord
from bookie_server.ports import MetadataAnswer, Standing
from bookie_server.service.collector import Collector
from bookie_server.storage import fences
from bookie_server.storage.adds import AddPath
from bookie_server.storage.drops import Drops
from bookie_server.storage.fences import Fences
from ledgerlog_spark.model import Code, Fragment, Version, Versioned
from ledgerlog_spark.protocol.ledger.messages import CasMetadata, Failure, MetadataOutcome
from ledgerlog_spark.protocol.ledger.metadata_update import MetadataUpdate, UpdatePhase
from ledgerlog_spark.protocol.ledger.quorum import is_acknowledged
from ledgerlog_spark.protocol.ledger.read.reader import LedgerReader
from ledgerlog_spark.protocol.ledger.recover import fencing
from ledgerlog_spark.protocol.ledger.recover import reads as recovery_reads
from ledgerlog_spark.protocol.ledger.recover.reads import EntryTally, RecoveryReads
from ledgerlog_spark.protocol.ledger.recover.recovery import LedgerRecovery
from ledgerlog_spark.protocol.ledger.recover.tail import RecoveryTail, TailStep
from ledgerlog_spark.protocol.ledger.write.add_pipeline import AddPipeline, SentRun
from ledgerlog_spark.protocol.ledger.write.writer import LedgerWriter
from tests.sim.absent_mutations import ABSENT_MUTATIONS
from tests.sim.bookie import MetadataFromStore
from tests.sim.disk import SimFile
from tests.sim.handlers import replace as replace_in


@dataclass(frozen=True)
class Mutation:
    """The replaced code, and the rule that this breaks.

    Attributes:
        patches: (owner, attribute, replacement) triples.
        rule: The rule of docs/PROTOCOL.md.
    """

    rule: str
    patches: tuple[tuple[Any, str, Any], ...]


@contextmanager
def applied(name: str) -> Iterator[None]:
    """Apply one mutation inside the `with` block."""
    with ExitStack() as undo:
        for owner, attribute, replacement in MUTATIONS[name].patches:
            assert attribute in vars(owner), (owner, attribute)
            replace_in(undo, owner, attribute, replacement)
        yield


_ask = RecoveryReads._request_members
_recovery_replaced = RecoveryTail.take_identities


def _ask_without_fence(self: RecoveryReads, tally: Any, up_to: int) -> list[Any]:
    return [replace(read, fence=False) for read in _ask(self, tally, up_to)]


def _no_batch_is_absence(self: RecoveryReads) -> list[Any]:
    tally = EntryTally(self._next_to_request, (), 0)
    self._tallies[tally.entry_id] = tally
    self._absent[tally.entry_id] = True
    return []


def _no_floor(self: RecoveryTail, last_add_confirmed: int) -> int:
    return last_add_confirmed


def _read_from_changed(self: RecoveryTail, event: Any) -> TailStep:
    step = _recovery_replaced(self, event)
    if self.write_back.pipeline:
        self._reads.ensemble = self.write_back.pipeline.ensemble
    return step


def _commit_fragments_early(self: RecoveryTail, event: Any) -> TailStep:
    before = self.fragments
    step = _recovery_replaced(self, event)
    if self.fragments == before:
        return step
    fragments = (*self._record.value.fragments[:-1], *self.fragments)
    early = self._record.value.with_fragments(fragments)
    write = CasMetadata(self._numbers.next(), early, self._record.version)
    return replace(step, effects=[*step.effects, write])


def _anything_but_the_entry_is_absent(code: Code) -> bool:
    return code is not Code.OK


_begin_change = LedgerWriter._begin_change
_writer_listed = LedgerWriter._on_bookies_listed


def _confirm_any_order(self: AddPipeline) -> list[Any]:
    confirmed = []
    for pending in [] if self.is_paused else list(self._unconfirmed):
        run = pending.run
        if is_acknowledged(self.quorum, pending.acked, run.first_entry_id, run.entries):
            self._unconfirmed.remove(pending)
            confirmed.append(self._confirm(pending))
    return confirmed


def _first_after_last_pushed(self: LedgerWriter) -> int:
    return self._pipeline.next_entry_id


def _keep_acks(self: AddPipeline, pending: SentRun, index: int) -> None:
    self._drop_request(pending, index)


def _forget_one_by_one(self: AddPipeline, ensemble: Any, indexes: Any) -> list[Any]:
    """Break PROTOCOL.md#B12: forget run by run, and confirm in between, as a known client does."""
    self.ensemble = ensemble
    effects: list[Any] = []
    self.is_paused = False
    for index in tuple(indexes):
        for pending in list(self._unconfirmed):
            if pending in self._unconfirmed:
                self._forget(pending, index)
                effects += self.confirm()
        self._suspended &= ~(1 << index)
        effects += self._send_missing(index)
    return effects


def _send_before_commit(self: LedgerWriter, event: Any) -> list[Any]:
    effects = _writer_listed(self, event)
    if self._change is None:
        return effects
    ensemble = self._change.ensemble_after(self._pipeline.ensemble)
    return [*self._pipeline.replace(ensemble, self._change.replacements), *effects]


def _confirm_during_change(self: LedgerWriter) -> list[Any]:
    effects = _begin_change(self)
    self._pipeline.is_paused = False
    return effects


def _confirm_after_choice(self: LedgerWriter, event: Any) -> list[Any]:
    effects = _writer_listed(self, event)
    self._pipeline.is_paused = False
    return effects


def _old_answers_count(self: AddPipeline, pending: SentRun, index: int) -> None:
    pending.requests.pop(index, None)


def _take_any_reply(self: AddPipeline, reply: Any) -> Any:
    sent = self._sent.get(reply.request)
    if sent is not None:
        pending, index = sent
        pending.requests.setdefault(index, reply.request)
    return _take_reply(self, reply)


_take_reply = AddPipeline.take_reply


def _unsuspend_only(self: AddPipeline, index: int) -> list[Any]:
    self._suspended &= ~(1 << index)
    return []


def _close_at_last_pushed(self: LedgerWriter) -> tuple[int, int]:
    return self._pipeline.next_entry_id - 1, self._pipeline._length_sent


def _header_lac_moves(self: AddPipeline) -> int:
    return self.last_add_confirmed


_on_written = MetadataUpdate._on_written


def _write_blindly(self: MetadataUpdate, loaded: Any) -> Any:
    self.current = loaded
    return self._write()


def _unknown_is_success(self: MetadataUpdate, event: Any) -> Any:
    if event.outcome is not MetadataOutcome.UNKNOWN:
        return _on_written(self, event)
    assert self._intended is not None
    version = Version(self.current.version.incarnation, self.current.version.number + 1)
    self.current = Versioned(self._intended, version)
    return self._finish(None)


def _unknown_is_failure(self: MetadataUpdate, event: Any) -> Any:
    if event.outcome is not MetadataOutcome.UNKNOWN:
        return _on_written(self, event)
    self.phase = UpdatePhase.DONE
    return self._finish(Failure.METADATA_UNAVAILABLE)


def _conflict_is_definite(self: MetadataUpdate, event: Any) -> Any:
    before = self.may_be_written
    step = _on_written(self, event)
    if event.outcome is MetadataOutcome.CONFLICT:
        self.may_be_written = before
    return step


_on_close_requested = LedgerWriter._on_close_requested


def _forget_the_first_close(self: LedgerWriter, event: Any) -> list[Any]:
    self._may_be_closed = False
    return _on_close_requested(self, event)


_close_recovered = LedgerRecovery._close


def _floor_from_an_old_record(self: LedgerRecovery) -> list[Any]:
    assert self._tail is not None
    if self._tail.write_back.last_add_confirmed < self._floor_entry_id:
        return self._stop(Failure.NEEDS_OPERATOR, entry_id=self._floor_entry_id)
    return _close_recovered(self)


_see_about_the_head = LedgerReader._see_about_the_head
_reader_replied = LedgerReader._on_read_replied


def _absent_at_once(self: LedgerReader) -> list[Any]:
    self._is_confirmed_by_reload = self._is_absence_confirmed = True
    return _see_about_the_head(self)


def _late_answer_is_dropped(self: LedgerReader, event: Any) -> list[Any]:
    tally, _ = self._reads[event.request]
    if self._tallies.get(tally.entry_id) is tally:
        return _reader_replied(self, event)
    del self._reads[event.request]
    return []


_measure = RecoveryTail.measure


def _measure_in_last_fragment(self: RecoveryTail) -> list[Any]:
    record, metadata = self._record, self._record.value
    last_only = (Fragment(0, metadata.last_fragment.ensemble),)
    self._record = replace(record, value=metadata.with_fragments(last_only))
    effects = _measure(self)
    self._record = record
    return effects


_finish_update = MetadataUpdate._finish


def _gone_is_definite(
    self: MetadataUpdate, failure: Failure | None, *, is_definite: bool = True, **rest: Any
) -> Any:
    is_definite = is_definite or failure is Failure.NOT_FOUND
    return _finish_update(self, failure, is_definite=is_definite, **rest)


_admit = AddPath._admit


def _fenced_rejects_recovery(request: Any, state: Any, *rest: Any) -> Any:
    if state is not None and state.is_fenced:
        return Code.FENCED
    return admit_add(request, state, *rest)


def _admitted_before_fence(self: AddPath, *add: Any, is_compared: bool = False) -> None:
    """Store an add that was admitted before a wait, even if a fence was set during the wait."""
    if is_compared:
        self._store(*add)
    else:
        _admit(self, *add)


def _fence_in_memory(
    self: Fences, ledger_id: int, key: bytes, then: Callable[[Code], None]
) -> None:
    """Fence a ledger in memory and answer, but never write the fence."""
    self._shared.state_of(ledger_id, key).is_fenced = True
    then(Code.OK)


async def _entry_log_is_never_synced(self: SimFile, offset: int, buffers: Any) -> None:
    """Write entry-log files without a sync. Other files are still synced."""
    await self.write(offset, buffers)
    if not self.name.startswith("slot-"):
        await self.datasync()


def _fence_skips_queue(_state: Any) -> int:
    """Answer a fence without a wait for the adds that were accepted before it."""
    return 0


_dropped = Drops.on_durable


def _gc_forgets_fence(self: Drops, record: JournalRecord) -> None:
    """Forget a dropped ledger completely, so that its next add creates it again."""
    _dropped(self, record)
    self._shared.states[record.ledger_id] = HeldLedger(record.ledger_id)


_check_metadata = MetadataFromStore.check


async def _replaced_is_not_writable(self: MetadataFromStore, ledger_id: int) -> MetadataAnswer:
    checked = await _check_metadata(self, ledger_id)
    is_replaced = checked.standing is Standing.OPEN_WITHOUT_ME
    return replace(checked, standing=Standing.NOT_WRITABLE) if is_replaced else checked


async def _every_unlisted_is_deleted(_self: Collector, unlisted: Any) -> Any:
    return unlisted


MUTATIONS: dict[str, Mutation] = {
    "recovery_reads_do_not_fence": Mutation(
        "C2", ((RecoveryReads, "_request_members", _ask_without_fence),)
    ),
    "short_batch_is_absence": Mutation(
        "C8", ((RecoveryReads, "_request_frontier", _no_batch_is_absence),)
    ),
    "no_floor_at_last_fragment": Mutation("C6", ((RecoveryTail, "_last_safe_entry", _no_floor),)),
    "recovery_reads_from_changed_ensemble": Mutation(
        "C11", ((RecoveryTail, "take_identities", _read_from_changed),)
    ),
    "recovery_commits_fragments_early": Mutation(
        "C11", ((RecoveryTail, "take_identities", _commit_fragments_early),)
    ),
    "timeouts_are_negatives": Mutation(
        "C8", ((EntryTally, "counts_as_absent", staticmethod(_anything_but_the_entry_is_absent)),)
    ),
    "one_negative_is_enough": Mutation(
        "C8", ((recovery_reads, "negative_quorum", lambda _quorum: 1),)
    ),
    "floor_from_an_old_record": Mutation(
        "C14", ((LedgerRecovery, "_close", _floor_from_an_old_record),)
    ),
    "fence_one_is_enough": Mutation(
        "C3", ((fencing, "is_covered", lambda _quorum, known: known != 0),)
    ),
    "recovery_moves_the_lac": Mutation(
        "C10", ((AddPipeline, "header_last_add_confirmed", property(_header_lac_moves)),)
    ),
    "lac_not_contiguous": Mutation("A4", ((AddPipeline, "confirm", _confirm_any_order),)),
    "old_answers_count": Mutation(
        "A7",
        (
            (AddPipeline, "_drop_request", _old_answers_count),
            (AddPipeline, "take_reply", _take_any_reply),
        ),
    ),
    "change_from_last_pushed": Mutation(
        "B3", ((LedgerWriter, "_first_of_new_fragment", _first_after_last_pushed),)
    ),
    "keep_acks_of_replaced": Mutation("B12", ((AddPipeline, "_forget", _keep_acks),)),
    "forget_one_by_one": Mutation("B12", ((AddPipeline, "replace", _forget_one_by_one),)),
    "send_before_commit": Mutation(
        "B19", ((LedgerWriter, "_on_bookies_listed", _send_before_commit),)
    ),
    "lac_moves_during_change": Mutation(
        "B2",
        (
            (LedgerWriter, "_begin_change", _confirm_during_change),
            (LedgerWriter, "_on_bookies_listed", _confirm_after_choice),
        ),
    ),
    "same_bookie_is_not_sent_again": Mutation("B17", ((AddPipeline, "resend", _unsuspend_only),)),
    "close_at_last_pushed": Mutation("D2", ((LedgerWriter, "_close_at", _close_at_last_pushed),)),
    "blind_metadata_write": Mutation("B6", ((MetadataUpdate, "_settle", _write_blindly),)),
    "unknown_write_is_success": Mutation(
        "B18", ((MetadataUpdate, "_on_written", _unknown_is_success),)
    ),
    "unknown_write_is_failure": Mutation(
        "B18", ((MetadataUpdate, "_on_written", _unknown_is_failure),)
    ),
    "conflict_is_definite": Mutation(
        "B18", ((MetadataUpdate, "_on_written", _conflict_is_definite),)
    ),
    "second_close_forgets_the_first": Mutation(
        "B18", ((LedgerWriter, "_on_close_requested", _forget_the_first_close),)
    ),
    "absent_without_reload": Mutation(
        "E2", ((LedgerReader, "_see_about_the_head", _absent_at_once),)
    ),
    "late_answer_makes_no_room": Mutation(
        "E5", ((LedgerReader, "_on_read_replied", _late_answer_is_dropped),)
    ),
    "length_of_other_fragment": Mutation(
        "C22", ((RecoveryTail, "measure", _measure_in_last_fragment),)
    ),
    "gone_is_definite": Mutation("B18", ((MetadataUpdate, "_finish", _gone_is_definite),)),
    "no_fsync": Mutation(
        "F4",
        ((SimFile, "write_synced", _entry_log_is_never_synced),),
    ),
    "fence_not_durable": Mutation("F1", ((Fences, "fence", _fence_in_memory),)),
    "fence_skips_queue": Mutation("F2", ((fences, "barrier_of", _fence_skips_queue),)),
    "admitted_before_fence": Mutation("F2", ((AddPath, "_admit", _admitted_before_fence),)),
    "gc_forgets_fence": Mutation("F5", ((Drops, "on_durable", _gc_forgets_fence),)),
    "gc_trusts_stale_listing": Mutation(
        "F6", ((Collector, "_look_up", _every_unlisted_is_deleted),)
    ),
    "replaced_bookie_fences": Mutation(
        "F7", ((MetadataFromStore, "check", _replaced_is_not_writable),)
    ),
    "state_is_not_checked": Mutation("F7", ((ledger_gate, "needs_check", lambda *_: False),)),
    "stuck_runs_are_missed": Mutation(
        "C23", ((RecoveryTail, "_is_stuck", property(lambda _self: False)),)
    ),
    "fenced_rejects_recovery": Mutation(
        "F3", ((adds_module, "admit_add", _fenced_rejects_recovery),)
    ),
    **{name: Mutation(*defect) for name, defect in ABSENT_MUTATIONS.items()},
}
