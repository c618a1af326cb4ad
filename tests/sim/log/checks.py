"""The invariants of a log, checked after every change in its store."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import (
    LogNotFoundError,
    LogTimeoutError,
    MetadataFormatError,
    MetadataUnavailableError,
)
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from ledgerlog_spark.protocol.log.password import PASSWORD_CHECK
from ledgerlog_spark.protocol.log.state import pages as log_pages
from ledgerlog_spark.protocol.log.state.codec import decode_page
from ledgerlog_spark.protocol.log.state.pages import end_key
from ledgerlog_spark.protocol.log.state.records import (
    Item,
    Operation,
    ProducerRecord,
    StagedRange,
    VersionInterval,
    WriteMode,
)
from ledgerlog_spark.protocol.log.state.rows import HISTORY, ITEMS, REFS, SCHEMAS
from ledgerlog_spark.protocol.log.state.walk import ListWalk
from tests.sim.log import rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.protocol.log.commit.restore import RestoreRequest
    from ledgerlog_spark.protocol.log.state.records import Paged
    from tests.sim.log.store import State
    from tests.sim.log.world import World

ENTRY_ROWS = 10
INDEX = 0
"""Name of an index entry, which has no rows; entries with rows count from 1."""
OF_THIS_CALL_ALONE = (
    LogNotFoundError,
    LogTimeoutError,
    MetadataFormatError,
    MetadataUnavailableError,
)
"""Errors with which a commit may end before it has read the producer record.

They do not resolve the unknown outcome of an earlier call (LOGS.md#K7): its transaction may have
taken effect, even if the log was deleted after that.
"""
Place = tuple[int, int]
"""The place of a range: ledger and first entry."""


class Violation(AssertionError):  # noqa: N818 (it is no error of ours to handle)
    """A broken invariant, with the seed that shows it."""


def place_of(staged: StagedRange | Item) -> Place:
    return staged.ledger_id, staged.first_entry_id


@dataclass
class Attempt:
    """The commit of one job, and the result that its caller got."""

    app: str
    batch_id: int
    run: str
    places: tuple[Place, ...]
    mode: WriteMode
    schema: bytes
    password: bytes
    planned_version: int = 0
    overwrite_if_changed: bool = True
    expected_version: int | None = None
    changes_schema: bool = False
    reported_unknown: bool = False
    reported_committed: bool = False
    reported_failed: bool = False


@dataclass
class Checks:
    """The checks of one world, with the facts that they need.

    Attributes:
        truth: Names of the log's entries by offset. The rows at an offset never change, even after
            merges, restores, truncations and sweeps.
    """

    world: World
    truth: list[int] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    places_ever: set[Place] = field(default_factory=set)
    listed_ever: set[int] = field(default_factory=set)
    last_batch: dict[str, int] = field(default_factory=dict)
    restores: dict[str, RestoreRequest] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    failed_tokens: set[str] = field(default_factory=set)

    def require(self, holds: bool, what: str) -> None:
        self.world.require(holds, what)

    def change(self, request: Any, old: State, new: State) -> None:
        if isinstance(request, m.WriteHead):
            self.head(request, old, new)
        if isinstance(request, m.WriteProducer):
            self.producer(request.app, old, new)
        if isinstance(request, (m.WriteHead, m.DeletePages)):
            self.pages(new)
            self.ledgers(new)
        if isinstance(request, (m.WriteHead, m.WriteProducer)):
            self.accounts(new)

    def producer(self, app: str, old: State, new: State) -> None:
        """Check that a run takes over once, with a new epoch (LOGS.md#P2, LOGS.md#P3)."""
        after, found = new.producers[app].value, old.producers.get(app)
        self.require(
            len(set(after.runs)) == len(after.runs), f"{app}: {after.runs} took over twice"
        )
        before = found.value if found is not None else ProducerRecord()
        is_taken = bool(after.runs) and after.runs[-1:] != before.runs[-1:]
        epoch = before.epoch + is_taken
        self.require(after.epoch == epoch, f"{app}: its epoch is {after.epoch}, not {epoch}")

    def head(self, request: m.WriteHead, old: State, new: State) -> None:
        before, after = old.head.value, new.head.value
        self.require(after.token not in self.failed_tokens, "what failed for certain is there")
        self.require(
            after.start_offset >= before.start_offset and after.end_offset >= before.end_offset,
            "an interval moved back",
        )
        stored = before.properties.get(PASSWORD_CHECK)
        named = after.properties.get(PASSWORD_CHECK)
        self.require(stored in {None, named}, f"the password changed from {stored} to {named}")
        items = self.items(new)
        self.passwords(named, items)
        self.require(not rows.leaks(after), "the head shows a password")
        added = [i for i in items if i.first_offset >= before.end_offset]
        if after.version == before.version:
            self.require(not added, "items without a version")
            self.counts["merges"] += request.app is not None
        else:
            self.version(request, old, new, added)
        self.require(after.end_offset == len(self.truth) * ENTRY_ROWS, "rows without an item")
        self.rows(new, items)
        self.schemas(new, items)
        self.history(new)
        self.listed_ever.update(item.ledger_id for item in items)

    def version(self, request: m.WriteHead, old: State, new: State, added: Sequence[Item]) -> None:
        """Check that a new version has the content of its operation."""
        before, after = old.head.value, new.head.value
        self.require(after.version == before.version + 1, "a version was skipped")
        self.require(after.commit_time_ms > before.commit_time_ms, "commit times do not rise")
        latest_ms = max(self.world.now, before.commit_time_ms + 1)
        self.require(after.commit_time_ms <= latest_ms, "a version is dated ahead of the store")
        operation = self.versions(new)[-1].operation
        is_new = operation in {Operation.OVERWRITE, Operation.RESTORE}
        begins = before.end_offset if is_new else before.start_offset
        is_right = after.start_offset == begins or operation is Operation.TRUNCATE
        self.require(is_right, f"{operation} begins at {after.start_offset}, not {begins}")
        if operation is Operation.TRUNCATE:
            self.require(not added, "a truncation added rows")
            self.counts["truncations"] += 1
            return
        if operation is Operation.RESTORE:
            self.counts["restores"] += 1
            self.restored(request, old, new, added)
        else:
            self.batch(request, old, new, tuple(place_of(item) for item in added))
        self.truth += [name for item in added for name in self.names(item)]

    def batch(
        self, request: m.WriteHead, old: State, new: State, places: tuple[Place, ...]
    ) -> None:
        """Check that a version has one job's ranges, no batch twice (LOGS.md#K2, LOGS.md#K5)."""
        assert request.app is not None
        assert request.producer is not None
        app, batch_id, run = (
            request.app,
            request.producer.last_batch_id,
            request.producer.current_run,
        )
        if places:
            app, batch_id, run = self.world.owners[places[0]]
        batch = (app, batch_id)
        wanted = (places, app, run, batch_id)
        jobs = [a for a in self.attempts if (a.places, a.app, a.run, a.batch_id) == wanted]
        self.require(bool(jobs), f"a part of batch {batch} was committed")
        self.require(batch not in self.committed, f"batch {batch} was committed twice")
        last = self.last_batch.get(app, -1)
        self.require(batch_id > last, f"batch {batch} after batch {last}")
        self.require(request.producer.current_run == run, f"zombie {run} committed")
        self.columns(jobs[0], old, new)
        is_planned = jobs[0].planned_version == old.head.value.version
        may_replace = jobs[0].mode is WriteMode.APPEND or jobs[0].overwrite_if_changed
        self.require(is_planned or may_replace, f"{batch} replaced what it had not seen")
        self.expected(jobs[0].expected_version, old)
        named = request.head.properties.get(PASSWORD_CHECK)
        if places and named is not None:
            is_right = rows.is_password(named, jobs[0].password)
            self.require(is_right, f"{batch} was committed with a wrong password")
        self.committed[batch] = self.world.store.state.head.value.version
        self.last_batch[app] = batch_id
        self.places_ever.update(places)
        for attempt in self.attempts:
            if attempt.reported_failed:
                self.failed(attempt)

    def expected(self, version: int | None, old: State) -> None:
        """Check that a commit with an expected version follows this version (LOGS.md#K17)."""
        before = old.head.value.version
        self.require(version in {None, before}, f"version {before} is not the expected {version}")
        self.counts["expected versions"] += version is not None

    def columns(self, job: Attempt, old: State, new: State) -> None:
        """Check that a commit that adds rows keeps all columns, unless it is the first commit."""
        current, before, after = self.schemas_of(new), old.head.value, new.head.value
        stored = current.get(after.schema_id)
        self.require(stored == job.schema, f"the columns are {stored!r}, not {job.schema!r}")
        if job.mode is WriteMode.OVERWRITE or before.version == 0:
            self.counts["columns replaced"] += current.get(before.schema_id) not in {None, stored}
            return
        self.counts["columns added alone"] += job.changes_schema and not job.places
        lost = rows.columns_of(current.get(before.schema_id, b"")) - rows.columns_of(job.schema)
        self.require(not lost, f"{job} took the columns {sorted(lost)} away")

    def schema_of(self, state: State) -> bytes | None:
        """Return the current schema."""
        return self.schemas_of(state).get(state.head.value.schema_id)

    def schemas_of(self, state: State) -> dict[int, bytes]:
        """Return all schemas of the log, by id."""
        paged = state.head.value.schemas
        found = self.walk(state, ListWalk(SCHEMAS, paged, 0, end_key(SCHEMAS, paged)))
        return {record.schema_id: record.schema for record in found}

    def schemas(self, state: State, items: Sequence[Item]) -> None:
        """Check that every range is listed with the schema of its rows."""
        known = self.schemas_of(state)
        for item in items:
            written = self.world.ledgers[item.ledger_id].schema
            self.require(
                known.get(item.schema_id, b"") == written,
                f"ledger {item.ledger_id} is listed under schema {item.schema_id} of "
                f"{sorted(known.items())}, and its rows have {written!r}",
            )

    def passwords(self, named: str | None, items: Sequence[Item]) -> None:
        """Check that all listed ledgers have one password: that of the head (LOGS.md#G11)."""
        self.require(
            not items or named is not None or self.world.is_old_release,
            "ledgers without a word of their password",
        )
        for password in {self.world.ledgers[item.ledger_id].password for item in items}:
            is_right = named is None or rows.is_password(named, password)
            self.require(is_right, "ledgers of two passwords are listed together")

    def restored(self, request: m.WriteHead, old: State, new: State, added: Sequence[Item]) -> None:
        """Check that a restore has the rows of its version, and replaces no commit unseen."""
        assert request.app is not None
        planned = self.restores[request.app]
        versions = {v.version: v for v in self.versions(old)}
        self.require(planned.version in versions, "a version was restored that is not retained")
        wanted = versions[planned.version]
        names = [name for item in added for name in self.names(item)]
        self.require(names == self.true_names(wanted), "other rows were restored")
        made = self.versions(new)[-1]
        stored = (made.schema_id, new.head.value.schema_id)
        self.require(
            stored == (wanted.schema_id,) * 2, f"{wanted} was restored with columns {stored}"
        )
        is_planned = planned.planned_version == old.head.value.version
        self.require(
            is_planned or planned.overwrite_if_changed, "a restore replaced what it had not seen"
        )
        self.expected(planned.expected_version, old)

    def rows(self, state: State, items: Sequence[Item]) -> None:
        """Check that the list has no gap, and that the rows at each offset never changed."""
        head = state.head.value
        offset = items[0].first_offset if items else head.end_offset
        begins = offset <= head.oldest_offset or head.oldest_offset == head.end_offset
        self.require(begins, "the list begins too late")
        for item in items:
            self.require(item.first_offset == offset, "offsets have a gap")
            self.index(item)
            first, end = offset // ENTRY_ROWS, item.end_offset // ENTRY_ROWS
            self.require(self.names(item) == self.truth[first:end], "offsets have other rows")
            offset = item.end_offset
        self.require(offset == head.end_offset, "rows at the end are not listed")

    def history(self, state: State) -> None:
        """Check that every retained version is listed, and that its first rows are listed."""
        head = state.head.value
        versions = self.versions(state)
        numbers = [v.version for v in versions]
        self.require(numbers == list(range(head.oldest_version, head.version + 1)), "no history")
        starts = min(v.start_offset for v in versions)
        self.require(starts >= head.oldest_offset, "a retained version lost its rows")

    def accounts(self, state: State) -> None:
        """Check that every existing ledger is listed, marked or registered, so none leaks."""
        known = {item.ledger_id for item in self.items(state)} | set(state.marks)
        for registered in state.registered.values():
            known |= set(registered)
        for ledger_id, ledger in self.world.ledgers.items():
            self.require(
                ledger.is_deleted or ledger_id in known, f"ledger {ledger_id} is forgotten"
            )

    def failed(self, attempt: Attempt) -> None:
        appeared = set(attempt.places) & self.places_ever
        self.require(not appeared, f"{attempt} was said to have failed, and it is in the log")

    def failed_for_certain(self, tokens: set[str]) -> None:
        """Check that a failed change of the head, with these tokens, left nothing, now or later."""
        there = {state.head.value.token for state in self.world.store.states} & tokens
        self.require(not there, f"{there} were said to have failed, and are in the log")
        self.failed_tokens |= tokens

    def reported(self, attempt: Attempt, result: Any) -> None:
        batch = (attempt.app, attempt.batch_id)
        if result.status is CommitStatus.NOTHING_TO_COMMIT:
            is_nothing = not attempt.places and attempt.mode is WriteMode.APPEND
            has_columns = self.world.store.state.head.value.version > 0
            self.require(is_nothing and has_columns, f"{batch} has something to commit")
            if attempt.changes_schema:
                self.counts["columns added by others"] += 1
                states = reversed(self.world.store.states)
                is_there = any(self.schema_of(state) == attempt.schema for state in states)
                self.require(is_there, f"{batch} has columns to commit")
        elif result.status is CommitStatus.COMMITTED:
            is_there = set(attempt.places) <= self.places_ever and batch in self.committed
            self.require(is_there, f"{batch} was said to be committed, and it is not")
        else:
            last = self.last_batch.get(attempt.app, -1)
            self.require(last >= attempt.batch_id, f"{batch} was never committed")

    def pages(self, state: State) -> None:
        """Check that every page that the head names exists."""
        head = state.head.value
        self.items(state)
        self.versions(state)
        self.schemas_of(state)
        for kind, paged in ((ITEMS, head.items), (HISTORY, head.history), (SCHEMAS, head.schemas)):
            self.sizes(state, kind, paged)

    def sizes(self, state: State, kind: Any, paged: Paged[Any]) -> None:
        """Check that the head describes its pages correctly, and that head and pages fit limits."""
        share = log_pages.SHARES[kind.name]
        recent = kind.size_bytes(paged.recent)
        self.require(recent <= share.recent_size_bytes_max, f"{recent} bytes in a head")
        self.require(len(paged.pages) <= share.pages_max, f"{len(paged.pages)} pages in a head")
        for kind_of, refs in ((REFS, paged.index), (kind, paged.pages)):
            for ref in refs:
                data = state.pages[ref.token][1][ref.number]
                records = decode_page(kind_of, data)
                size_bytes = kind_of.size_bytes(records)
                is_small = size_bytes <= log_pages.PAGE_BODY_SIZE_BYTES_MAX or len(records) == 1
                self.require(is_small, f"a page of {size_bytes} bytes")
                self.require(ref.size_bytes == size_bytes, f"{ref} has {size_bytes} bytes")
                count = sum(r.count for r in records) if kind_of is REFS else len(records)
                self.require(ref.count == count, f"{ref} has {count} records")
                keys = kind_of.first_key(records[0]), kind_of.end_key(records[-1])
                self.require((ref.first_key, ref.end_key) == keys, f"{ref} has the keys {keys}")

    def no_pages_left(self, state: State) -> None:
        """Check that the head names every existing page."""
        named: set[tuple[str, int]] = set()
        head = state.head.value
        for paged in (head.items, head.history, head.schemas):
            named |= {(ref.token, ref.number) for ref in (*paged.index, *paged.pages)}
            for ref in paged.index:
                refs = decode_page(REFS, state.pages[ref.token][1][ref.number])
                named |= {(each.token, each.number) for each in refs}
        there = {(token, n) for token, (_, held) in state.pages.items() for n in held}
        self.require(there <= named, f"pages {sorted(there - named)} stay for ever")

    def ledgers(self, state: State) -> None:
        """Check that every listed ledger exists, up to the listed end."""
        for item in self.items(state):
            ledger = self.world.ledgers[item.ledger_id]
            self.require(not ledger.is_deleted, f"listed ledger {item.ledger_id} was deleted")
            sealed = ledger.sealed_at
            whole = sealed is None or sealed >= item.last_entry_id
            self.require(whole, f"ledger {item.ledger_id} was closed below its listed end")

    def read(self, item: Item, interval: VersionInterval) -> None:
        """Check that a reader with a recent plan can read a range of the plan."""
        self.counts["ranges read"] += 1
        ledger = self.world.ledgers[item.ledger_id]
        self.require(not ledger.is_deleted, f"ledger {item.ledger_id} went while it was read")
        first, end = item.first_offset // ENTRY_ROWS, item.end_offset // ENTRY_ROWS
        self.require(self.names(item) == self.truth[first:end], f"other rows in {interval}")

    def names(self, item: Item) -> list[int]:
        """Return the names of the entries that an item lists."""
        entries = self.world.ledgers[item.ledger_id].entries
        return [i for i in entries[item.first_entry_id - 1 : item.last_entry_id] if i != INDEX]

    def index(self, item: Item) -> None:
        """Check that a range has at most one index entry: its last one, as its item states."""
        entries = self.world.ledgers[item.ledger_id].entries
        first = item.first_entry_id
        held = [i for i in range(first, item.last_entry_id + 1) if entries[i - 1] == INDEX]
        stored = [item.index_entry_id] if item.index_entry_id >= 0 else []
        self.require(held == stored, f"{item} names {stored} as index, and that is at {held}")
        self.require(stored in ([], [item.last_entry_id]), f"the index of {item} is not its last")

    def true_names(self, interval: VersionInterval) -> list[int]:
        """Return the names of the entries of a version."""
        return self.truth[interval.start_offset // ENTRY_ROWS : interval.end_offset // ENTRY_ROWS]

    def items(self, state: State) -> tuple[Item, ...]:
        head = state.head.value
        return self.walk(state, ListWalk(ITEMS, head.items, head.oldest_offset, head.end_offset))

    def versions(self, state: State) -> tuple[VersionInterval, ...]:
        head = state.head.value
        return self.walk(
            state, ListWalk(HISTORY, head.history, head.oldest_version, head.version + 1)
        )

    def walk(self, state: State, walk: ListWalk[Any]) -> tuple[Any, ...]:
        while walk.wanted:
            pages = []
            for page in walk.wanted:
                data = state.pages.get(page.ref.token, (0, {}))[1].get(page.ref.number)
                if data is None:
                    raise self.world.violation(
                        f"page {page.ref.token}/{page.ref.number} is missing"
                    )
                pages.append(decode_page(page.kind, data))
            walk.feed(pages)
        return walk.records()
