"""Named defects of the leader: each replaces some methods of the shipped code while it is applied.

The shipped code has no switches. Each mutation is a known mistake (LOGS.md#leader-logs), and
random schedules, or the counterexample of the same name, must fail while it is on.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import MetadataUnavailableError
from ledgerlog_spark.protocol.leader import list as leader_list
from ledgerlog_spark.protocol.leader import opening as leader_opening
from ledgerlog_spark.protocol.leader import rolling as leader_rolling
from ledgerlog_spark.protocol.leader.appends import LeaderAppends
from ledgerlog_spark.protocol.leader.leader import LeaderLog
from ledgerlog_spark.protocol.leader.messages import LOST, AppendsAcknowledged, LedgerEnd
from ledgerlog_spark.protocol.leader.opening import LeaderOpening
from ledgerlog_spark.protocol.leader.rolling import LeaderLedgers
from ledgerlog_spark.protocol.leader.standing import StandingCheck
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.change.truncate import TruncateMachine
from ledgerlog_spark.protocol.log.claim import with_claim
from ledgerlog_spark.protocol.log.messages import DropLedger, Finished, WriteHead
from ledgerlog_spark.protocol.log.state import rows as log_rows
from ledgerlog_spark.protocol.log.transaction import HeadTransaction
from tests.sim.handlers import replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True)
class Mutation:
    """The replaced methods, and the violation that they cause.

    Attributes:
        rule: The broken rule of docs/LOGS.md; empty for the rule that everything ends.
        caught_by: Pattern of the violation.
        patches: (owner, attribute, replacement) triples.
    """

    rule: str
    caught_by: str
    patches: tuple[tuple[Any, str, Any], ...]


@contextmanager
def applied(name: str, among: Mapping[str, Mutation] | None = None) -> Iterator[None]:
    """Apply one mutation inside the `with` block. By default, it is one of the machine."""
    with ExitStack() as undo:
        for owner, attribute, replacement in (among or MUTATIONS)[name].patches:
            replace(undo, owner, attribute, replacement)
        yield


def _serve_at_once(self: LeaderOpening, head: Any, closed: Any) -> Any:
    """Accept appends when the compare-and-swap is sent, and ignore its outcome."""
    assert self._own is not None
    edit = leader_list.list_change(head, closed, self._own, self._now_ms)
    return Finished(edit.build(self._token, {})[0])


def _last_unsealed(self: LeaderOpening, head: Any) -> list[int]:
    last = [ledger.ledger_id for ledger in head.open_ledgers[-1:]]
    for ledger in head.open_ledgers[:-1]:
        self._ends.setdefault(ledger.ledger_id, LedgerEnd())
    return [ledger_id for ledger_id in last if ledger_id not in self._ends]


def _switch_undrained(self: LeaderLedgers, appends: Any) -> bool:
    del appends
    return self.is_next_listed and (not self.current.is_broken or self.current.end is not None)


def _close_when_drained(self: LeaderLedgers, *, is_closing: bool) -> Any:
    """Close a ledger that was left as soon as nothing is pending in it."""
    ledger: Any = _to_close(self, is_closing=is_closing)
    if ledger is None or ledger.is_broken or ledger.last_confirmed == ledger.entries - 1:
        return ledger
    return None


def _acknowledge_each(self: LeaderAppends, ledger: Any, last_entry_id: int) -> list[Any]:
    """Acknowledge the confirmed entries of this ledger before those of the previous ledger."""
    ledger.last_confirmed = max(ledger.last_confirmed, last_entry_id)
    done = [a for a in self._ordered if a.ledger is ledger and a.entry_id <= last_entry_id]
    for append in done:
        self._ordered.remove(append)
        self._size_bytes -= append.size_bytes
        ledger.confirmed_end_offset = append.first_offset + append.records
        ledger.confirmed_ms = append.append_time_ms
        self.end_offset = max(self.end_offset, ledger.confirmed_end_offset)
    return [
        AppendsAcknowledged(a.number, a.number, ledger.ledger_id, a.entry_id, self.end_offset)
        for a in done
    ]


def _switch_unclosed(self: LeaderLedgers, appends: Any) -> bool:
    return self.is_next_listed and (self.current.is_broken or not appends.has_ordered)


def _unknown_is_failure(self: HeadTransaction[Any], request: Any) -> Any:
    reply = yield from _reply_to(self, request)
    if isinstance(request, WriteHead) and reply.outcome is MetadataOutcome.UNKNOWN:
        raise MetadataUnavailableError("no answer, so it failed", log=self.log)
    return reply


def _relist_own(self: LeaderOpening, head: Any) -> Any:
    """After a lost reply, list the same ledger again, even if the head has changed."""
    self._is_unsure = False
    return _opening_plan(self, head)


def _close_conflict_is_success(self: LeaderLog, event: Any) -> list[Any]:
    if isinstance(event.error, LOST):
        assert self._to_close is not None
        last = self._to_close.last_confirmed
        event = type(event)(event.request, last, 100 * (last + 1))
    return _close_answered(self, event)


def _closed_without_heir(self: LeaderLedgers, *, is_closing: bool) -> Any:
    del is_closing
    return _closed(self, is_closing=True)


def _forget_attempt(self: LeaderLog, error: Any) -> list[Any]:
    """Make another change after a failed change that may still take effect."""
    self._change = None
    return _list_failed(self, error)


def _delete_first(self: TruncateMachine, change: Any) -> Any:
    """Delete the first ledger before the ledgers are removed from the list."""
    for ledger_id in change.unlisted[:1]:
        yield from self._reply_to(DropLedger(ledger_id))
    return (yield from _prepare(self, change))


def _seal_before_claim(self: LeaderOpening) -> Any:
    """Claim the log only by the change that lists the ledger."""
    return HeadTransaction._run(self)


def _list_own_with_claim(self: LeaderOpening, head: Any, closed: Any) -> Any:
    return _list_own(self, with_claim(head, self._claim), closed)


def _ignore_recovered(self: LeaderLog, event: Any) -> list[Any]:
    """Append again what the recovery of a fenced ledger found in this ledger."""
    ledger = self._to_close
    if event.error is None and ledger is not None and ledger.fence is not None:
        event = type(event)(event.request, ledger.last_confirmed, event.size_bytes)
    return _close_answered(self, event)


def _deposed_by_a_fence(self: StandingCheck, head: Any) -> Any:
    del head
    yield from ()
    raise self._deposed("its ledger was fenced")


def _deposed_by_any_claim(self: StandingCheck, rival: str) -> Any:
    del rival
    yield from ()
    raise self._deposed("another client claimed the log")


def _every_rival_is_dead(self: StandingCheck, rival: str) -> Any:
    del self, rival
    yield from ()


_list_own = LeaderOpening._list_own
_prepare = HeadTransaction._prepare
_reply_to = HeadTransaction._reply_to
_opening_plan = LeaderOpening._plan
_close_answered = LeaderLog._on_close_answered
_closed = LeaderLedgers.closed
_to_close = LeaderLedgers.to_close
_list_failed = LeaderLog._on_list_failed
_ALWAYS = property(lambda _: True)
_MANY = 9

MUTATIONS: Mapping[str, Mutation] = {
    "serve_before_cas": Mutation(
        "J1", r"unlisted|LOGS.md#M6", ((LeaderOpening, "_list_own", _serve_at_once),)
    ),
    "seal_last_only": Mutation(
        "J1", r"LOGS.md#M2|LOGS.md#M5|gap|lost", ((LeaderOpening, "_unsealed", _last_unsealed),)
    ),
    "unknown_cas_is_failure": Mutation(
        "J4", "deleted|did not lead", ((HeadTransaction, "_reply_to", _unknown_is_failure),)
    ),
    "relist_after_lost_reply": Mutation(
        "J4",
        "listed again|is listed|LOGS.md#M9",
        (
            (LeaderOpening, "_plan", _relist_own),
            (leader_opening, "check_claim", lambda *_: None),
        ),
    ),
    "forget_attempt": Mutation(
        "J4",
        "deposed by nobody|deleted while|is listed",
        ((LeaderLog, "_on_list_failed", _forget_attempt),),
    ),
    "roll_before_close": Mutation(
        "J5",
        "LOGS.md#M4",
        (
            (LeaderLedgers, "is_listed_alone", _ALWAYS),
            (leader_rolling, "OPEN_LEDGERS_MAX", _MANY),
            (leader_list, "OPEN_LEDGERS_MAX", _MANY),
            (log_rows, "OPEN_LEDGERS_MAX", _MANY),
        ),
    ),
    "ack_across_roll": Mutation(
        "J7",
        r"cut off|gap|#M\d|lost|cannot be",
        (
            (LeaderLedgers, "may_switch", _switch_undrained),
            (LeaderLedgers, "to_close", _close_when_drained),
            (LeaderAppends, "confirm", _acknowledge_each),
        ),
    ),
    "offset_gap_after_seal": Mutation(
        "J7",
        r"gap|lost|LOGS.md#M3|cannot be",
        (
            (LeaderLedgers, "may_switch", _switch_undrained),
            (LeaderLedgers, "to_close", _close_when_drained),
        ),
    ),
    "reappend_without_close": Mutation(
        "J8", r"twice|gap|lost|#M\d", ((LeaderLedgers, "may_switch", _switch_unclosed),)
    ),
    "reappend_after_lost_close": Mutation(
        "J8",
        r"twice|#M\d",
        ((LeaderLog, "_on_close_answered", _close_conflict_is_success),),
    ),
    "list_left_empty": Mutation("J3", ".", ((LeaderLedgers, "closed", _closed_without_heir),)),
    "seals_before_claim": Mutation(
        "J14",
        r"goes on against|LOGS.md#M9",
        (
            (LeaderOpening, "_run", _seal_before_claim),
            (LeaderOpening, "_list_own", _list_own_with_claim),
            (leader_opening, "check_claim", lambda *_: None),
        ),
    ),
    "lists_without_claim": Mutation(
        "J14", "LOGS.md#M9", ((leader_opening, "check_claim", lambda *_: None),)
    ),
    "fence_deposes": Mutation(
        "J15", "deposed by nobody|ends leader", ((StandingCheck, "_plan", _deposed_by_a_fence),)
    ),
    "dead_claimant_deposes": Mutation(
        "J15",
        "ends leader",
        ((StandingCheck, "_check_is_dead", _deposed_by_any_claim),),
    ),
    "leader_ignores_claim": Mutation(
        "J15",
        "goes on against",
        ((StandingCheck, "_check_is_dead", _every_rival_is_dead),),
    ),
    "reappends_recovered": Mutation(
        "J15", r"twice|#M\d", ((LeaderLog, "_on_close_answered", _ignore_recovered),)
    ),
    "truncate_deletes_first": Mutation(
        "J11",
        "deleted while it is listed",
        ((TruncateMachine, "_prepare", _delete_first),),
    ),
}
