"""The state of one leader log in the store, and its invariants."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.claim import claim_of
from ledgerlog_spark.protocol.log.properties import LogProperties
from tests.sim.leader.checks import LeaderChecks
from tests.sim.log.hosts.view import read_state

if TYPE_CHECKING:
    from ledgerlog_spark.protocol.log.state.records import LogHead
    from tests.sim.leader.hosts.world import LeaderHosts
    from tests.sim.log.checks import Violation
    from tests.sim.log.store import State


class LeaderView:
    """The newest state of one log, with its checks. It is the `world` of the checks.

    Attributes:
        marked_at_ms: Time at which each ledger was marked, including ledgers never listed.
        head_changes: Number of changes of the head.
        oldest_moved: Whether the log was truncated.
        claims: All claims that the log has had.
        deleted_at_ms: Time of the deletion; None while the log exists.
        runs_of: All runs of producers; always empty, because a leader log has no producers.
    """

    def __init__(self, host: LeaderHosts, log_id: str) -> None:
        self.host = host
        self.log_id = log_id
        self.ledgers = host.quorums
        self.checks = LeaderChecks(self)
        self.marked_at_ms: dict[int, int] = {}
        self.head_changes = 0
        self.oldest_moved = False
        self.deleted_at_ms: int | None = None
        self.runs_of: dict[str, list[str]] = {}
        self.claims: set[str] = set()
        self.made_at_ms = host.now_ms()
        state = self._read()
        assert state is not None
        self.store = SimpleNamespace(state=state)

    def violation(self, what: str) -> Violation:
        return self.host.violation(f"log {self.log_id[:4]}: {what}")

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            self.host.require(False, f"log {self.log_id[:4]}: {what}")

    @property
    def head(self) -> LogHead:
        head: LogHead = self.store.state.head.value
        return head

    @property
    def properties(self) -> LogProperties:
        return LogProperties.from_mapping(self.head.properties)

    def _read(self) -> State | None:
        return read_state(self.host.nodes.current, self.host.paths, self.log_id)

    def changed(self) -> None:
        """Read and check the new state after a change in the store."""
        new = self._read()
        if new is None:
            return  # the log is being removed
        old: State = self.store.state
        self.store.state = new
        if new.head.value.deleted_ms:
            self.deleted_at_ms = self.deleted_at_ms or self.host.now_ms()
            return
        for ledger_id in new.marks:
            self.marked_at_ms.setdefault(ledger_id, self.host.now_ms())
        if new.head.version == old.head.version:
            return
        self.head_changes += 1
        before, after = old.head.value, new.head.value
        self.claims |= {claim_of(after)} - {""}
        self.oldest_moved |= after.start_offset > before.start_offset
        unlisted = tuple(ledger_id for ledger_id in new.marks if ledger_id not in old.marks)
        request: Any = m.WriteHead(after.token, after, old.head.version, unlisted=unlisted)
        self.checks.change(request, old, new)
        listed = self.checks.listed_now(new)
        gone = self.checks.listed_now(old) - listed
        self.require(gone <= set(new.marks), f"ledgers {sorted(gone)} have no mark")
        ahead_ms = after.commit_time_ms - self.host.now_ms()
        self.require(ahead_ms <= 0, f"the head is dated {ahead_ms} ms ahead")

    def deleting(self, ledger_id: int) -> None:
        """Check that the metadata of this ledger may be deleted now."""
        now_ms, keeps_ms = self.host.now_ms(), self.properties.deleted_retention_ms
        if self.deleted_at_ms is not None:
            is_listed = ledger_id in self.checks.listed_now(self.store.state)
            age_ms = now_ms - self.deleted_at_ms
            kept = not is_listed or age_ms >= keeps_ms
            self.require(kept, f"ledger {ledger_id} went {age_ms} ms after its log was deleted")
            return
        is_listed = ledger_id in self.checks.listed_now(self.store.state)
        self.require(not is_listed, f"listed ledger {ledger_id} was deleted")
        if self.ledgers.by_id[ledger_id].stored:
            age_ms = now_ms - self.marked_at_ms[ledger_id]
            self.require(
                age_ms >= keeps_ms, f"ledger {ledger_id} went {age_ms} ms after it was unlisted"
            )
