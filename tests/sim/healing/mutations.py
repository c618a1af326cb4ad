"""Named mistakes of workers. Each replaces a function of the shipped code, or of a model.

See `tests.sim.mutations`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from ledgerlog_spark.model import Code, Fragment, LedgerMetadata, Version
from ledgerlog_spark.protocol.autorecovery.replicate import copying, job, messages, needs, ranges
from ledgerlog_spark.protocol.autorecovery.replicate.copying import CopyRun
from ledgerlog_spark.protocol.autorecovery.replicate.job import LedgerReplication
from ledgerlog_spark.protocol.ledger.identities import Identity
from ledgerlog_spark.protocol.ledger.messages import StoredEntry
from ledgerlog_spark.protocol.ledger.metadata_update import MetadataUpdate
from ledgerlog_spark.protocol.ledger.quorum import owns
from ledgerlog_spark.protocol.ledger.recover.tail import RecoveryTail
from tests.sim.handlers import replace as replace_in
from tests.sim.healing import jobs
from tests.sim.healing.world import HealingWorld
from tests.sim.late_add import CODEC
from tests.sim.metadata_store import SimMetadataStore
from tests.sim.mutations import Mutation
from tests.sim.release.mutations import MUTATIONS as OF_RELEASES


@contextmanager
def applied(name: str) -> Iterator[None]:
    """Apply one mutation inside the `with` block."""
    with ExitStack() as undo:
        for owner, attribute, replacement in MUTATIONS[name].patches:
            assert attribute in vars(owner), (owner, attribute)
            replace_in(undo, owner, attribute, replacement)
        yield


_healable = ranges.healable_fragments
_replaced = ranges.replaced
_move = LedgerReplication._move
_require_held = LedgerReplication._require_held


def _beyond_the_end(metadata: LedgerMetadata) -> list[tuple[Fragment, int]]:
    """Also copy entries after the end of the last fragment."""
    found = _healable(metadata)
    if not metadata.is_closed:
        return found
    return [*found[:-1], (found[-1][0], found[-1][1] + 2)]


def _with_last(metadata: LedgerMetadata) -> list[tuple[Fragment, int]]:
    """Change the last fragment of an open ledger too."""
    found = _healable(metadata)
    if metadata.is_closed:
        return found
    last = metadata.last_fragment
    return [*found, (last, last.first_entry_id)]


def _list_then_force(
    self: LedgerReplication, need: Any, target: str, copied: Any, *, can_list: bool
) -> Any:
    entry_id = next(self._owed_except(need, copied.holes), None)
    if entry_id is None or not can_list:
        return
    (listed,) = yield (messages.ListEntries(target),)
    if listed.code is not Code.OK:
        raise copying.TargetError(target, listed.code)
    if needs.has_gap(self._record.value, need, listed.ranges, copied.holes):
        raise copying.TargetError(target, Code.NO_ENTRY)
    (forced,) = yield (messages.ForceEntries(target, entry_id),)
    if forced.code is not Code.OK:
        raise copying.TargetError(target, forced.code)


def _any_bookie(self: LedgerReplication, need: Any, tried: frozenset[str]) -> str | None:
    """Choose a target that may be in the ensemble already."""
    names = [n for n in self._registered.writable if n not in (need.member, *tried)]
    return names[0] if names else None


def _replaced_everywhere(
    metadata: LedgerMetadata, fragment: Fragment, end: int, index: int, target: str, _: Any
) -> LedgerMetadata:
    return _replaced(metadata, fragment, end, index, target, ())


def _keep_the_first_list(
    self: LedgerReplication, need: Any, target: str, identity: Any, copying_: Any
) -> Any:
    """After a conflict, name the target with the copies that it got before."""
    kept = self.__dict__.setdefault("_kept", set())
    if target not in kept:
        kept.add(target)
        return (yield from _move(self, need, target, identity, copying_))
    moved = _replaced(self._record.value, need.fragment, need.end, need.index, target, ())
    return (yield from self._name(moved, identity))


def _take_any_code(self: CopyRun, copies: Any, reply: Any) -> None:
    self._copied.connections.add(reply.connection)
    self._copied.last_entry_id = copies[-1].entry_id
    self.entries += len(copies)


def _require_nothing(self: LedgerReplication, *_: Any, **__: Any) -> Any:
    return
    yield


def _unverified(stored: bytes, _ledger_id: int, entry_id: int) -> StoredEntry:
    length = int.from_bytes(stored[24:32], "big")
    return StoredEntry(entry_id, -1, length, stored[CODEC.overhead_bytes :])


def _relative(
    quorum: Any, index: int, first: int, end: int, held: Any
) -> Iterator[tuple[int, int]]:
    """Count the entries of a stripe from the start of the fragment."""
    for low, high in ranges.gaps(first, end, held):
        for entry_id in range(low, high + 1):
            if owns(quorum, index, entry_id - first):
                yield entry_id, entry_id


def _no_floor(floor: int) -> messages.RecoverForCopies:
    del floor
    return messages.RecoverForCopies(-1)


def _any_record(version: Version, record: Version | None) -> messages.DeleteTask:
    del record
    return messages.DeleteTask(version, None)


def _same_cookie(self: SimMetadataStore, identity: Identity) -> bool:
    """Compare only the version of the cookie."""
    found = self.token_of(identity.bookie_id)
    return found is not None and found.cookie == identity.token.cookie  # type: ignore[attr-defined]


_settle = MetadataUpdate._settle


def _forget_the_identities(self: MetadataUpdate, loaded: Any) -> Any:
    """Send a write again without the identities."""
    self.identities = ()
    return _settle(self, loaded)


def _nothing_is_damaged(*_: Any) -> Sequence[tuple[int, int]]:
    return ()


MUTATIONS: dict[str, Mutation] = {
    "mark_deleted_on_new_session": Mutation(
        "X2",
        (
            (HealingWorld, "session_for", lambda _self, one: one.worker.session),
            (HealingWorld, "lost_session", lambda _self, _worker: None),
        ),
    ),
    "task_deleted_over_a_new_record": Mutation("X1", ((job, "DeleteTask", _any_record),)),
    "copies_beyond_end": Mutation("X3", ((needs, "healable_fragments", _beyond_the_end),)),
    "swap_in_last_open": Mutation("X3", ((needs, "healable_fragments", _with_last),)),
    "repair_is_a_repeat": Mutation("X5", ((needs, "damaged_runs", _nothing_is_damaged),)),
    "list_before_force": Mutation("X6", ((LedgerReplication, "_require_held", _list_then_force),)),
    "swap_before_durable": Mutation(
        "X6",
        (
            (CopyRun, "_take_added", _take_any_code),
            (LedgerReplication, "_require_held", _require_nothing),
        ),
    ),
    "stripe_of_relative_ids": Mutation(
        "X4", ((needs, "lacking_runs", _relative), (job, "lacking_runs", _relative))
    ),
    "no_cookie_check": Mutation("X7", ((SimMetadataStore, "is_same", lambda *_: True),)),
    "cookie_made_again": Mutation(
        "X7",
        (
            (
                SimMetadataStore,
                "is_same",
                _same_cookie,
            ),
        ),
    ),
    "recovery_ignores_identities": Mutation(
        "C25", ((RecoveryTail, "identities", property(lambda _: ())),)
    ),
    "resends_without_identities": Mutation(
        "C25", ((MetadataUpdate, "_settle", _forget_the_identities),)
    ),
    "same_bookie_twice": Mutation("X6", ((LedgerReplication, "_target_of", _any_bookie),)),
    "conflict_keeps_copies": Mutation("X6", ((LedgerReplication, "_move", _keep_the_first_list),)),
    "swaps_over_a_hole": Mutation(
        "X8",
        (
            (LedgerReplication, "_may_split", lambda *_: True),
            (job, "replaced", _replaced_everywhere),
        ),
    ),
    "copies_without_naming": Mutation("X8", ((LedgerReplication, "_may_split", lambda *_: False),)),
    "unknown_is_lost": Mutation("X8", ((copying, "is_denial", lambda code: code is not Code.OK),)),
    "limbo_negative_counts": Mutation(
        "X8",
        ((copying, "is_denial", lambda code: code.is_absent or code is Code.IO_ERROR),),
    ),
    "fence_before_grace": Mutation("X9", ((LedgerReplication, "_has_waited", lambda _: True),)),
    "fences_without_spare": Mutation("X9", ((LedgerReplication, "_has_spares", lambda _: True),)),
    "recover_without_floor": Mutation("X9", ((job, "RecoverForCopies", _no_floor),)),
    "no_digest_check": Mutation("X10", ((jobs, "as_entry", _unverified),)),
    "drop_without_touch": OF_RELEASES["drop_without_touch"],
    "drop_without_hide": OF_RELEASES["drop_without_hide"],
}
