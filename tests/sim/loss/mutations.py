"""Named mistakes about losses. Each replaces a function of the shipped rules, or of the model.

A mistake of the model is one that the storage could make. See `tests.sim.mutations`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from bookie_server.core import doubt as rules
from bookie_server.core import ledger_gate
from bookie_server.core import repair as r
from bookie_server.core.doubt import Denial, Doubt, FoundDirectory
from bookie_server.core.repair import LedgerRepair, RepairPass
from bookie_server.service.repair import repairs as shipped
from ledgerlog_spark.model import Code, LedgerMetadata, LedgerState
from ledgerlog_spark.protocol.ledger.recover.recovery import LedgerRecovery
from tests.sim.handlers import replace as replace_in
from tests.sim.loss.apache import accept_any_version
from tests.sim.loss.bookie import LossBookie
from tests.sim.loss.directory import Directory, Manifest, Record
from tests.sim.loss.life import LossLife
from tests.sim.loss.process import LossProcess
from tests.sim.loss.repairs import Repairs
from tests.sim.loss.worker import Worker
from tests.sim.mutations import Mutation


@contextmanager
def applied(name: str) -> Iterator[None]:
    """Apply one mutation inside the `with` block."""
    with ExitStack() as undo:
        for owner, attribute, replacement in {**MUTATIONS, **UNNOTICED}[name].patches:
            assert attribute in vars(owner), (owner, attribute)
            replace_in(undo, owner, attribute, replacement)
        yield


_begin = LossLife._begin
_apply_cleared = LossProcess.apply_cleared
_conclude = LedgerRepair._conclude
_listed = RepairPass.listed
_raises_doubt = rules.raises_doubt
_take_creation = LossBookie._take_creation


def _never_in_limbo(_cleared: int | None, _doubt: Doubt, _compared: int) -> Denial:
    return Denial.ABSENT


def _answer_last(self: LossBookie, ledger_id: int, then: Callable[..., None]) -> None:
    """Answer for the last entry and the LAC from the stored entries."""
    then(ledger_gate.absent(self.states.get(ledger_id), self.health))


def _clear_checks_too(self: LossBookie, record: Record) -> None:
    """Clear a ledger as if its fence could not be lost."""
    _apply_cleared(self, record)
    self.states[record.ledger_id].check_epoch = record.epoch


def _date_by_start(self: LossBookie, epoch: int) -> None:
    """Take the transaction with which the process registered."""
    self.commit(lambda doubt: doubt.dated(epoch, self.registered))


def _newer_by_id(self: LossBookie, ledger_id: int, _created: int, before: Doubt) -> None:
    """Treat a ledger as newer if its id is above all ids on the bookie."""
    others = [one for one in self.states if one != ledger_id]
    self._note_cleared(ledger_id, before.epoch if ledger_id > max(others, default=-1) else 0)


def _newer_by_clock(self: LossBookie, ledger_id: int, _created: int, before: Doubt) -> None:
    """Compare the time of creation in the record with the time of the start."""
    is_newer = self.world.store.created_ms.get(ledger_id, 0) > self.began_ms
    self._note_cleared(ledger_id, before.epoch if is_newer else 0)


def _newer_than_now(self: LossBookie, ledger_id: int, created: int, before: Doubt) -> None:
    """Clear up to the epoch at the answer."""
    epoch = rules.cleared_by_creation(created, before)
    self._note_cleared(ledger_id, self.doubt.epoch if epoch else 0)


_fetch_next = LedgerRepair._fetch_next


def _clear_what_does_not_name_me(
    self: LedgerRepair, metadata: LedgerMetadata
) -> list[r.RepairEffect]:
    """Clear a ledger in recovery too, if its record does not name the bookie."""
    if metadata.state is LedgerState.IN_RECOVERY and not self._is_in(metadata.last_fragment):
        return _conclude(self, replace(metadata, state=LedgerState.OPEN))
    return _conclude(self, metadata)


def _clear_by_the_first_record(self: LedgerRepair) -> list[r.RepairEffect]:
    """Clear by the record that was loaded first."""
    effects = _fetch_next(self)
    return self._conclude(self._metadata) if effects == [r.LoadRecord()] else effects


def _clear_open_ledgers(self: LedgerRepair, metadata: LedgerMetadata) -> list[r.RepairEffect]:
    """Clear an open ledger when the entries up to the LAC are back."""
    if metadata.state is LedgerState.OPEN and not (self._is_incomplete or self._missing):
        return [r.ClearLedger(self._epoch, self._peers_lac)]
    return _conclude(self, metadata)


def _clear_what_waits(self: LedgerRepair, metadata: LedgerMetadata) -> list[r.RepairEffect]:
    """Clear a ledger that cannot be closed otherwise, without an operator."""
    if metadata.state is LedgerState.IN_RECOVERY:
        return [r.ClearLedger(self._epoch, -1)]
    return _conclude(self, metadata)


def _any_listing(self: RepairPass, ledger_ids: Iterable[int], **_: bool) -> r.PassEffect:
    return _listed(self, ledger_ids, is_whole=True)


def _keep_doubt_in_memory(self: LossBookie, manifest: Manifest) -> None:
    before = self.directory.manifest.doubt if self.directory.manifest else Doubt()
    _begin(self, manifest)
    assert self.directory.manifest is not None
    self.directory.manifest = replace(self.directory.manifest, doubt=before)


def _by_settings(found: FoundDirectory) -> bool:
    """Treat the last run as one that syncs first, because this run does."""
    return _raises_doubt(replace(found, owes_sync=False))


def _empty_is_new(found: FoundDirectory) -> bool:
    return found.has_manifest and _raises_doubt(found)


def _check_with_old_record(self: LossBookie, ledger_id: int, then: Any) -> None:
    """Read the record from a server that lacks the last change."""
    store = self.world.store

    def answered(answer: Any) -> None:
        if answer is None:
            then(False, None, 0)
        else:
            then(True, *answer)

    before = store.before if ledger_id in store.records else store.records
    self.ask("load", lambda: (before.get(ledger_id), store.created.get(ledger_id, 0)), answered)


def _old_listing(self: Repairs) -> list[int]:
    """List the ledgers of a server that lacks the newest ledger."""
    return _listing(self)[:-1]


_listing = Repairs.listing


def _as_regular_adds(self: LossBookie, ticket: int, then: Callable[[], None], **_: bool) -> None:
    self.when_acknowledged(ticket, then)


_begin_work = Worker.begin


def _as_apache(self: Worker, number: int, old: str, target: str) -> None:
    self.is_apache = True
    _begin_work(self, number, old, target)


_write_state = Repairs.write_state


def _state_in_memory(self: Repairs, ledger_id: int) -> int:
    """Write the state only if the ledger has no record in this process or before."""
    bookie = self._bookie
    if any(one.ledger_id == ledger_id for one in bookie.directory.records):
        return bookie.states[ledger_id].last_ticket
    return _write_state(self, ledger_id)


_should_recover = r.should_recover


def _recovers_whatever(ended: r.RepairEnded, quiet_ms: int, limits: r.RecoveryLimits) -> bool:
    """Recover an idle ledger even if an ack quorum is in limbo."""
    return _should_recover(replace(ended, silent_peers=0), quiet_ms, limits)


def _recovers_at_once(ended: r.RepairEnded, _quiet_ms: int, limits: r.RecoveryLimits) -> bool:
    return _should_recover(ended, limits.idle_ms, limits)


def _peer_is_silent(self: LedgerRepair, event: r.EntryFetched) -> list[r.RepairEffect]:
    """Treat each answer without the entry as a denial. Stop if all answers are denials."""
    if event.code is not Code.OK and not self._peers:
        self._owed.popleft()
        return self._fetch_next()
    return _on_fetched(self, event)


_on_fetched = LedgerRepair._on_fetched


_decide_close = LedgerRecovery._decide_close


def _close_over_any_record(self: LedgerRecovery, current: LedgerMetadata) -> Any:
    """Compare the last fragment instead of the version of the record."""
    accept_any_version(self, current)
    return _decide_close(self, current)


MUTATIONS: dict[str, Mutation] = {
    "close_over_any_record": Mutation(
        "C13", ((LedgerRecovery, "_decide_close", _close_over_any_record),)
    ),
    "no_limbo": Mutation("ADR 39", ((rules, "denial", _never_in_limbo),)),
    "no_first_add_check": Mutation("ADR 39", ((ledger_gate, "needs_check", lambda *_: False),)),
    "check_reads_old_record": Mutation(
        "ADR 39", ((LossBookie, "load_for_check", _check_with_old_record),)
    ),
    "limbo_answers_lac": Mutation("ADR 39", ((LossBookie, "_deny_more", _answer_last),)),
    "clearing_forgets_fence": Mutation(
        "ADR 39", ((LossProcess, "apply_cleared", _clear_checks_too),)
    ),
    "doubt_judged_by_start": Mutation("ADR 39", ((LossLife, "_date", _date_by_start),)),
    "new_by_id": Mutation("ADR 39", ((LossBookie, "_take_creation", _newer_by_id),)),
    "new_by_clock": Mutation("ADR 39", ((LossBookie, "_take_creation", _newer_by_clock),)),
    "creation_counts_for_later_losses": Mutation(
        "ADR 39", ((LossBookie, "_take_creation", _newer_than_now),)
    ),
    "creation_is_not_compared": Mutation(
        "ADR 39", ((rules, "cleared_by_creation", lambda _created, _before: 0),)
    ),
    "new_states_are_clear": Mutation(
        "ADR 39", ((rules, "first_cleared_epoch", lambda doubt: doubt.epoch),)
    ),
    "cleared_by_old_record": Mutation(
        "ADR 39", ((LedgerRepair, "_conclude", _clear_what_does_not_name_me),)
    ),
    "open_ledgers_are_cleared": Mutation(
        "ADR 39", ((LedgerRepair, "_conclude", _clear_open_ledgers),)
    ),
    "two_limbo_members_close": Mutation(
        "ADR 39", ((LedgerRepair, "_conclude", _clear_what_waits),)
    ),
    "silence_is_a_denial": Mutation("ADR 39", ((LedgerRepair, "_on_fetched", _peer_is_silent),)),
    "partial_listing_clears": Mutation("ADR 39", ((RepairPass, "listed", _any_listing),)),
    "listing_is_old": Mutation("ADR 39", ((Repairs, "listing", _old_listing),)),
    "limbo_state_is_not_written": Mutation("ADR 39", ((Repairs, "write_state", _state_in_memory),)),
    "limbo_state_is_not_durable": Mutation(
        "ADR 39", ((Repairs, "when_kept", lambda _self, _ticket, then: then()),)
    ),
    "recovery_adds_are_not_synced": Mutation(
        "ADR 39", ((LossBookie, "when_stored", _as_regular_adds),)
    ),
    "repair_before_its_node": Mutation(
        "ADR 39", ((Doubt, "may_be_repaired", property(lambda _self: True)),)
    ),
    "worker_checks_no_doubt": Mutation("ADR 39", ((Worker, "begin", _as_apache),)),
    "second_crash_forgets_doubt": Mutation(
        "ADR 39", ((LossLife, "_begin", _keep_doubt_in_memory),)
    ),
    "mode_from_settings": Mutation("ADR 39", ((rules, "raises_doubt", _by_settings),)),
    "empty_directory_is_new": Mutation("ADR 39", ((rules, "raises_doubt", _empty_is_new),)),
    "counter_per_start": Mutation(
        "ADR 39", ((LossLife, "_next_starts", staticmethod(lambda starts: starts)),)
    ),
    "cache_is_not_dropped": Mutation("ADR 39", ((Directory, "drop_cache", lambda _self: False),)),
    "limbo_recovers_always": Mutation("ADR 39", ((shipped, "should_recover", _recovers_at_once),)),
    "limbo_recovers_never": Mutation("ADR 39", ((shipped, "should_recover", lambda *_: False),)),
    "limbo_recovers_without_quorum": Mutation(
        "ADR 39", ((shipped, "should_recover", _recovers_whatever),)
    ),
}
UNNOTICED: dict[str, Mutation] = {
    "cleared_before_sync": Mutation(
        "ADR 39", ((LossBookie, "when_control", LossProcess.when_acknowledged),)
    ),
    "record_is_read_once": Mutation(
        "ADR 39", ((LedgerRepair, "_fetch_next", _clear_by_the_first_record),)
    ),
}
"""Changes that no schedule has noticed (ADR 39). `--mutation` searches with them too.

With `cleared_before_sync`, an unjournaled bookie answers control records when they are written. A
loss of these records begins an epoch of doubt, like the loss of an entry. With
`record_is_read_once`, a repair does not load the record again. Only copies that a re-replication
makes need this, and no schedule has a re-replication.
"""
