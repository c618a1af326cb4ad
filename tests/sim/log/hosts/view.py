"""The state of one log in the store, read from its nodes, and its invariants."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ledgerlog_spark.metadata.logs.nodes import LogPaths
from ledgerlog_spark.model import Versioned
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.properties import JOB_APP_PREFIX, LogProperties
from ledgerlog_spark.protocol.log.state.codec import decode_head, decode_producer
from ledgerlog_spark.protocol.log.state.records import NO_BATCH, LogHead, Operation
from tests.sim.log.checks import ENTRY_ROWS, Checks, Place, Violation
from tests.sim.log.store import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.protocol.log.state.records import VersionInterval
    from ledgerlog_spark.testing.memory.nodes import NodeMap
    from tests.sim.log.hosts.world import HostWorld
    from tests.sim.log.world import Ledger


def read_state(nodes: NodeMap, paths: LogPaths, log_id: str) -> State | None:
    """Return the state of a log in the store, or None if it has no head."""
    found = nodes.nodes.get(paths.head(log_id))
    if found is None:
        return None

    def below(path: str) -> list[str]:
        return sorted(nodes.names.get(path, ()))

    producers, registered = {}, {}
    for segment in below(paths.producers(log_id)):
        app = unquote(segment)
        node = nodes.nodes[paths.producer(log_id, app)]
        producers[app] = Versioned(decode_producer(node.data), node.version)
        above = paths.registration(log_id, app)
        registered[app] = {int(i): nodes.nodes[f"{above}/{i}"].created_ms for i in below(above)}
    pages = {}
    for token in below(paths.pages(log_id)):
        above = paths.pages(log_id, token)
        held = {int(number): nodes.nodes[f"{above}/{number}"].data for number in below(above)}
        pages[token] = nodes.nodes[above].version.number, held
    marks = {
        int(i): nodes.nodes[paths.mark(log_id, int(i))].changed_ms
        for i in below(paths.marks(log_id))
        if nodes.nodes[paths.mark(log_id, int(i))].data != b"made"  # it is not unlisted
    }
    head = Versioned(decode_head(found.data), found.version)
    return State(head, producers, registered, pages, marks)


@dataclass
class LogView:
    """The newest state of one log, with its checks. It is the `world` of the checks.

    Attributes:
        committed_at_ms: Time of each version, by the clock of the store.
        unlisted_at_ms: Time at which each ledger was last removed from the list.
        truncated_to: The largest offset of all requested truncations.
        runs_of: All runs that took over each producer, in order.
        last_query: For each producer, the query that committed its last batch.
        oldest_moved: Whether a version may have been dropped.
        is_old_release: Always False here: all heads store what they know about the password.
        deleted_at_ms: Time of the deletion; None while the log exists.
    """

    host: HostWorld
    log_id: str
    committed_at_ms: dict[int, int] = field(default_factory=dict)
    unlisted_at_ms: dict[int, int] = field(default_factory=dict)
    truncated_to: int = 0
    runs_of: dict[str, list[str]] = field(default_factory=dict)
    last_query: dict[str, str] = field(default_factory=dict)
    oldest_moved: bool = False
    deleted_at_ms: int | None = None
    head_changes: int = 0
    is_old_release: bool = False

    def __post_init__(self) -> None:
        self.checks = Checks(self)  # type: ignore[arg-type]
        self.checks.restores = self.host.restores
        state = self._read()
        assert state is not None
        self.store = SimpleNamespace(state=state)
        self.made_with = state.head.value.token
        self.made_at_ms = self.committed_at_ms[0] = self.host.now_ms()

    # --- what the checks ask their world for ---

    @property
    def owners(self) -> dict[Place, tuple[str, int, str]]:
        return self.host.owners

    @property
    def ledgers(self) -> dict[int, Ledger]:
        """The ledgers of this log."""
        return {
            i: each for i, each in self.host.ledgers.items() if self.host.log_of[i] == self.log_id
        }

    @property
    def now(self) -> int:
        return self.host.now_ms()

    def violation(self, what: str) -> Violation:
        return self.host.violation(f"log {self.log_id[:4]}: {what}")

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            self.host.require(False, f"log {self.log_id[:4]}: {what}")

    # --- changes ---

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
            if self.deleted_at_ms is None and self.log_id not in self.host.deleting:
                self._check_unused(old)
            self.deleted_at_ms = self.deleted_at_ms or self.host.now_ms()
            return
        self._forgotten(old, new)
        for app in sorted(new.producers):
            self._producer(app, old, new)
            self._registrations(app, old, new)
        if new.head.version != old.head.version:
            self._head(old, new)
        elif new.pages != old.pages:
            self.checks.pages(new)
        self.checks.accounts(new)

    def _check_unused(self, old: State) -> None:
        """Check that a failed first write deletes its log only if it is not used (LOGS.md#K19)."""
        head, jobs = old.head.value, [found.value for found in old.producers.values()]
        self.require(head.version == 0, f"version {head.version} was deleted by a failed write")
        self.require(head.token == self.made_with, "a changed log was deleted by a failed write")
        names = sorted(old.producers)
        self.require(len(jobs) <= 1, f"a failed write deleted the log of {names}")
        is_own = all(len(job.runs) == 1 and job.last_batch_id == NO_BATCH for job in jobs)
        self.require(is_own, f"a failed write deleted the log of another run of {names}")
        self.host.counts["new logs deleted"] += 1

    def _producer(self, app: str, old: State, new: State) -> None:
        before, after = old.producers.get(app), new.producers[app]
        if before is not None and before.version == after.version:
            return
        runs = after.value.runs
        self.checks.producer(app, old, new)
        self._take_over(app, before.value.runs if before is not None else (), runs)
        if before is None:
            return
        self.require(bool(runs), f"{app}: the last run is forgotten")
        self.require(
            after.value.last_batch_id >= before.value.last_batch_id, f"{app}: batch ids fell"
        )
        self.require(after.value.epoch >= before.value.epoch, f"{app}: the epoch fell")
        self.require(after.value.time_ms <= self.host.now_ms(), f"{app}: its record is dated ahead")
        dropped = [run for run in before.value.runs if run not in runs]
        idle_ms = self.host.now_ms() - before.value.time_ms
        due = not dropped or idle_ms > self.properties.txn_retention_ms
        self.require(due, f"{app}: runs are forgotten after {idle_ms} ms")

    def _forgotten(self, old: State, new: State) -> None:
        """Check that a producer is deleted only if its name cannot be used again (LOGS.md#P5).

        Records are compared by version number, so a new record of the same name must not exist. A
        generated name is never used again. Producers with other names stay as long as the log.
        """
        gone = {app for app in old.producers if not app.startswith(JOB_APP_PREFIX)}
        gone -= set(new.producers)
        self.require(not gone, f"producers {sorted(gone)} are forgotten")

    def _take_over(self, app: str, known: Sequence[str], runs: Sequence[str]) -> None:
        """Check that a run that the record names does not take over again (LOGS.md#P2).

        The sweeper drops replaced runs from the record. A dropped run counts as a new one.
        `_producer` checks that runs are dropped only after `txnRetentionMs`.
        """
        if not runs or runs[-1:] == known[-1:]:
            return
        self.require(runs[-1] not in known, f"{app}: run {runs[-1]} took over twice")
        seen = self.runs_of.setdefault(app, [])
        self.host.counts["runs that came back"] += runs[-1] in seen
        seen.append(runs[-1])

    def _registrations(self, app: str, old: State, new: State) -> None:
        """Check that no ledger is registered for a replaced run (LOGS.md#K1)."""
        made = set(new.registered.get(app, ())) - set(old.registered.get(app, ()))
        epoch = new.producers[app].value.epoch
        for ledger_id in made:
            path = self.host.paths.registration(self.log_id, app, ledger_id)
            of = int(self.host.nodes.current.nodes[path].data)
            self.require(of == epoch, f"ledger {ledger_id} of epoch {of} was made in {epoch}")

    def _head(self, old: State, new: State) -> None:
        self.head_changes += 1
        moved = [
            app
            for app, found in new.producers.items()
            if app in old.producers and old.producers[app].version != found.version
        ]
        app = moved[0] if moved else None
        producer = new.producers[app].value if app else None
        request: Any = m.WriteHead(
            new.head.value.token, new.head.value, old.head.version, app=app, producer=producer
        )
        before, after = old.head.value, new.head.value
        self.checks.head(request, old, new)
        self.checks.pages(new)
        self.checks.ledgers(new)
        self._times(old, new)
        self._unlisted(old, new)
        if after.version > before.version:
            self.committed_at_ms[after.version] = self.host.now_ms()
        if app == "stream" and after.version > before.version:
            self._query(app, new.producers[app].value.current_run or "")
        self.oldest_moved |= after.oldest_version > before.oldest_version

    def _query(self, app: str, run: str) -> None:
        """Check that the batch ids of a query do not affect another query (LOGS.md#P4)."""
        query = run.rpartition("/")[0]
        known = self.last_query.setdefault(app, query)
        self.require(known == query, f"{app}: query {query} committed after {known}")

    def _times(self, old: State, new: State) -> None:
        """Check that no time is after the store's clock, and that versions are dropped in time."""
        before, after = old.head.value, new.head.value
        now_ms = self.host.now_ms()
        if after.version > before.version:
            ahead = after.commit_time_ms - max(now_ms, before.commit_time_ms + 1)
            self.require(ahead <= 0, f"version {after.version} is dated {ahead} ms ahead")
            late = now_ms - after.commit_time_ms
            self.require(late < LATE_MS_MAX, f"version {after.version} is dated {late} ms back")
        newest = self.checks.versions(new)[-1]
        by_truncation = after.version > before.version and newest.operation is Operation.TRUNCATE
        if by_truncation:
            self._retention(before, after, now_ms)
        elif after.oldest_version > before.oldest_version:
            self._expiry(old, after, now_ms)

    def _retention(self, before: LogHead, after: LogHead, now_ms: int) -> None:
        keeps_ms = self.properties.retention_ms
        if after.start_offset <= self.truncated_to:
            return
        self.require(keeps_ms != -1, "rows were dropped that are to be kept")
        first = max(before.start_offset, self.truncated_to) // ENTRY_ROWS
        for place in range(first, after.start_offset // ENTRY_ROWS):
            age_ms = now_ms - self.host.born_ms[self.checks.truth[place]]
            self.require(age_ms >= keeps_ms, f"rows of {age_ms} ms were dropped")

    def _expiry(self, old: State, after: LogHead, now_ms: int) -> None:
        versions: list[VersionInterval] = list(self.checks.versions(old))
        for version, following in itertools.pairwise(versions):
            # A truncation drops versions that begin before it, even if no row goes (LOGS.md#U7).
            is_cut = version.start_offset < self.truncated_to or self._has_old_rows(version)
            if version.version < after.oldest_version and not is_cut:
                age_ms = now_ms - following.commit_time_ms
                self.require(
                    age_ms >= self.properties.version_retention_ms,
                    f"version {version.version} expired {age_ms} ms after it was replaced",
                )

    def _has_old_rows(self, version: VersionInterval) -> bool:
        """Whether retention may have dropped rows of this version."""
        place, keeps_ms = version.start_offset // ENTRY_ROWS, self.properties.retention_ms
        if keeps_ms == -1 or version.start_offset == version.end_offset:
            return keeps_ms != -1
        return self.host.now_ms() - self.host.born_ms[self.checks.truth[place]] >= keeps_ms

    def _unlisted(self, old: State, new: State) -> None:
        gone = {i.ledger_id for i in self.checks.items(old)}
        gone -= {i.ledger_id for i in self.checks.items(new)}
        for ledger_id in gone:
            self.unlisted_at_ms[ledger_id] = self.host.now_ms()
            self.require(ledger_id in new.marks, f"ledger {ledger_id} has no mark")

    def deleting(self, ledger_id: int) -> None:
        """Check that the metadata of this ledger may be deleted now."""
        if self.deleted_at_ms is not None:
            age_ms = self.host.now_ms() - self.deleted_at_ms
            is_listed = ledger_id in {i.ledger_id for i in self.checks.items(self.store.state)}
            kept = not is_listed or age_ms >= self.properties.deleted_retention_ms
            self.require(kept, f"ledger {ledger_id} went {age_ms} ms after its log was deleted")
            return
        since_ms = self.unlisted_at_ms.get(ledger_id)
        if since_ms is not None:
            age_ms = self.host.now_ms() - since_ms
            self.require(
                age_ms >= self.properties.deleted_retention_ms,
                f"ledger {ledger_id} was deleted {age_ms} ms after it was unlisted",
            )
        self.require(
            self.host.ledgers[ledger_id].sealed_at is not None,
            f"ledger {ledger_id} was deleted while it was open",
        )


LATE_MS_MAX = 10_000
"""Maximum age of a version's time at its commit, which waits in the queue and for lost replies."""
