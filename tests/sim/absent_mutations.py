"""Defects of writers with absent bookies, and of the reports of holes (`mutations.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ledgerlog_spark.protocol.ledger.metadata_update import Refusal
from ledgerlog_spark.protocol.ledger.recover import recovery
from ledgerlog_spark.protocol.ledger.recover.tail import RecoveryTail
from ledgerlog_spark.protocol.ledger.write import ensemble_change
from ledgerlog_spark.protocol.ledger.write.absences import Absences
from ledgerlog_spark.protocol.ledger.write.add_pipeline import AddPipeline, SentRun
from ledgerlog_spark.protocol.ledger.write.ensemble_change import FragmentChange
from ledgerlog_spark.protocol.placement import absent_members

_change_call = FragmentChange.__call__
_has_quorum = AddPipeline._has_quorum
_let_off = AddPipeline._let_off
_replace = AddPipeline.replace
_take_holes = AddPipeline.take_holes


def _widen_the_record(self: FragmentChange, current: Any) -> Any:
    decided = _change_call(self, current)
    if isinstance(decided, Refusal):
        return decided
    wide = replace(current.last_fragment, ensemble=decided.last_fragment.ensemble)
    return current.with_fragments((*current.fragments[:-1], wide))


def _absent_counts_as_stored(self: AddPipeline, pending: SentRun, acked: int) -> bool:
    return _has_quorum(self, pending, acked | self._absent & pending.owners)


def _keep_what_is_let_off(self: AddPipeline, pending: SentRun, index: int) -> None:
    kept: list[tuple[SentRun, int]] = vars(self).setdefault("kept", [])
    if pending.owners & ~pending.acked & 1 << index:
        kept.append((pending, index))
    _let_off(self, pending, index)


def _send_older_entries(self: AddPipeline, ensemble: Any, indexes: Any) -> list[Any]:
    before = self.ensemble
    effects = _replace(self, ensemble, indexes)
    older = [
        self._send(pending, index)
        for pending, index in vars(self).pop("kept", [])
        if index in indexes and ensemble[index] == before[index]
    ]
    return [*older, *effects]


def _forget_holes(self: AddPipeline) -> tuple[Any, ...]:
    _take_holes(self)
    return ()


ABSENT_MUTATIONS: dict[str, tuple[str, tuple[tuple[Any, str, Any], ...]]] = {
    "widens_the_record": ("B20", ((FragmentChange, "__call__", _widen_the_record),)),
    "absent_counts_as_stored": ("B20", ((AddPipeline, "_has_quorum", _absent_counts_as_stored),)),
    "older_entries_to_the_returned": (
        "B20",
        (
            (AddPipeline, "_let_off", _keep_what_is_let_off),
            (AddPipeline, "replace", _send_older_entries),
        ),
    ),
    "returns_in_the_old_fragment": ("B20", ((AddPipeline, "has_hole", lambda *_: False),)),
    "absent_bookie_ends_the_writer": ("B9", ((Absences, "leave_out", lambda *_: False),)),
    "holes_are_forgotten": ("B23", ((AddPipeline, "take_holes", _forget_holes),)),
    "recovery_reports_no_holes": ("C24", ((RecoveryTail, "holes", lambda _self: ()),)),
    "names_too_many_absent": (
        "B21",
        ((absent_members, "absent_indexes", lambda _quorum, count: tuple(range(count))),),
    ),
    "closes_with_an_empty_fragment": (
        "D4",
        (
            (ensemble_change, "fragments_up_to", lambda fragments, _last: fragments),
            (recovery, "fragments_up_to", lambda fragments, _last: fragments),
        ),
    ),
}
"""The rule of docs/PROTOCOL.md, and (owner, attribute, replacement) triples."""
