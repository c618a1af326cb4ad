"""One schedule: a growing log, and the operations on it."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

from ledgerlog_spark.log.committing.job import plan_job
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.change import expiry as log_expiry
from ledgerlog_spark.protocol.log.change import retention as log_retention
from ledgerlog_spark.protocol.log.change.expiry import ExpiryMachine
from ledgerlog_spark.protocol.log.change.retention import KEPT, RetentionMachine
from ledgerlog_spark.protocol.log.change.truncate import TruncateMachine
from ledgerlog_spark.protocol.log.commit.commit import CommitMachine
from ledgerlog_spark.protocol.log.commit.merge import MergeMachine, MergeRequest
from ledgerlog_spark.protocol.log.commit.plan import CommitRequest
from ledgerlog_spark.protocol.log.commit.restore import RestoreMachine, RestoreRequest, cut_ranges
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from ledgerlog_spark.protocol.log.machine import LogMachine
from ledgerlog_spark.protocol.log.password import PASSWORD_CHECK
from ledgerlog_spark.protocol.log.read.versions import StateMachine
from ledgerlog_spark.protocol.log.state import pages as log_pages
from ledgerlog_spark.protocol.log.state.records import StagedRange, WriteMode
from ledgerlog_spark.protocol.log.state.rows import REFS
from ledgerlog_spark.protocol.log.sweep import PagesSweep
from tests.sim.log import rows
from tests.sim.log.checks import Checks, Violation
from tests.sim.log.jobs import OldCommit
from tests.sim.log.store import State
from tests.unit.log.log_values import OneLog, new_head, token

if TYPE_CHECKING:
    from ledgerlog_spark.protocol.log.change.retention import PageSizes
    from ledgerlog_spark.protocol.log.state.pages import PageRequest
    from ledgerlog_spark.protocol.log.state.records import Item, LogHead, VersionInterval

PAGE_SIZE_BYTES = 170
"""Size of a few records, so that a list with some dozens of records has many pages."""

STEPS_MAX = 300
ROW_BYTES = 10

MOST_READS: dict[type[LogMachine[Any]], int] = {
    ExpiryMachine: 1,
    TruncateMachine: 1,
    RetentionMachine: 3,
}
"""Maximum number of reads of one page by machines that search a part of the list. Retention may
search three times: by age, by size, and for the ranges to drop."""


class Store(OneLog):
    """The records of the log, with swept pages, and with counts of the reads of each page."""

    def __init__(self) -> None:
        head, pages = new_head(schema=rows.schema_of("a"))
        super().__init__(head, pages)
        self.read: Counter[tuple[str, int]] = Counter()
        self.unsure: set[str] = set()
        """Tokens with an unknown outcome of the touch of their pages."""

    def reply(self, request: Any) -> Any:
        if isinstance(request, m.TouchPages):
            is_unsure = request.token in self.unsure
            outcome = MetadataOutcome.UNKNOWN if is_unsure else MetadataOutcome.OK
            return m.Written(request.request, outcome)
        if isinstance(request, m.ReadPassword):
            return m.PasswordRead(request.request, MetadataOutcome.OK, b"")
        if isinstance(request, m.DeletePages):
            gone = [p for p in self.pages if p[0] == request.token and p[1] not in request.kept]
            for place in gone:
                del self.pages[place]
            return m.Written(request.request, MetadataOutcome.OK)
        return super().reply(request)

    def page(self, page: PageRequest) -> tuple[Any, ...]:
        if page.kind is not REFS:
            self.read[page.ref.token, page.ref.number] += 1
        return super().page(page)

    @property
    def state(self) -> State:
        pages: dict[str, tuple[int, dict[int, bytes]]] = {}
        for (of, number), data in self.pages.items():
            pages.setdefault(of, (0, {}))[1][number] = data
        return State(self.head, pages=pages)


class ListWorld:
    """One log, and the operations on it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random = Random(seed)
        self.log = Store()
        self.checks = Checks(self)  # type: ignore[arg-type]
        self.counts: Counter[str] = Counter()
        self.events = 0
        self.page_sizes: PageSizes = {}
        self._numbers = itertools.count(1)
        self._long = next(self._numbers)
        """A ledger that gets ranges repeatedly."""
        self._entries: Counter[int] = Counter()
        self._is_old = random.random() < 0.4
        """Whether the first ranges have no times."""
        self._replaces = random.choice((0, 0.1, 0.7))

    def violation(self, what: str) -> Violation:
        return Violation(f"lists, seed {self.seed}: {what}")

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            raise self.violation(what)

    @property
    def head(self) -> LogHead:
        return self.log.head.value

    @property
    def items(self) -> tuple[Item, ...]:
        return self.checks.items(self.log.state)

    @property
    def versions(self) -> tuple[VersionInterval, ...]:
        return self.checks.versions(self.log.state)

    def token(self) -> str:
        return token(self.random.getrandbits(100) << 16)

    def run(self, machine: LogMachine[Any]) -> Any:
        """Run a machine and return its result. Each page is read once, and the log stays whole."""
        self.log.read.clear()
        before = self.head
        done = self.log.run(machine)
        self.events += 1
        kind = type(machine).__name__
        most = MOST_READS.get(type(machine), STEPS_MAX)
        again = [place for place, times in self.log.read.items() if times > most]
        self.require(not again, f"{kind} read pages {again} again")
        after = self.head
        is_later = after.version == before.version or after.commit_time_ms > before.commit_time_ms
        self.require(is_later, f"{kind} made a version of {after.commit_time_ms}")
        if isinstance(machine, StateMachine) or (
            isinstance(machine, CommitMachine) and self.events % 4
        ):
            return done
        self.checks.pages(self.log.state)
        items = self.items
        gaps = [a for a, b in itertools.pairwise(items) if a.end_offset != b.first_offset]
        self.require(not gaps, f"{kind} left gaps behind {gaps}")
        return done

    # --- what is done ---

    def wait(self) -> None:
        """Change the time, perhaps backwards, as with another server of the store."""
        self.log.now_ms += self.random.choice((1, 5, 40, 40, 300, -150))

    def staged(self, ledger_id: int, count: int) -> StagedRange:
        first = self._entries[ledger_id] + 1
        self._entries[ledger_id] += 1
        return StagedRange(ledger_id, first, first, -1, rows=count, size_bytes=count * ROW_BYTES)

    def clear(self) -> None:
        """Overwrite the log twice, perhaps with other columns, and then restore it."""
        self.commit(is_empty=True)
        self.commit(is_empty=True)
        self.restore()

    def commit(self, *, is_empty: bool = False) -> None:
        random, log = self.random, self.log
        self.wait()
        replaces = is_empty or random.random() < self._replaces
        mode = WriteMode.OVERWRITE if replaces else WriteMode.APPEND
        state = self.run(StateMachine("flights"))
        schema = state.schema or rows.schema_of("a")
        if mode is WriteMode.OVERWRITE and random.random() < 0.4:
            schema = rows.drawn_schema(random)
        fewest = random.choice((-3, 0)) if mode is WriteMode.OVERWRITE else 1
        ranges = [
            self.staged(random.choice((self._long, next(self._numbers))), random.randint(1, 9))
            for _ in range(0 if is_empty else random.randint(fewest, 3))
        ]
        plan = plan_job(state, schema=schema, mode=mode, overwrite_if_changed=False, password=b"")
        self._is_old &= random.random() < 0.95 and PASSWORD_CHECK not in self.head.properties
        app = f"app-{next(self._numbers)}"
        log.producer(app, "run")
        log.register(app, *(staged.ledger_id for staged in ranges))
        request = CommitRequest(
            app,
            "run",
            0,
            tuple(ranges),
            mode=mode,
            schema=schema,
            schema_id=plan.schema_id,
            base_schema_id=plan.base_schema_id,
            planned_version=self.head.version,
            is_first=self.head.version == 0,
        )
        kind = OldCommit if self._is_old else CommitMachine
        before = set(log.pages.values())
        self.run(kind("flights", request, token=self.token()))
        same = [place for place, page in list(log.pages.items()) if page in before]
        self.require(len(same) == len(before), "a page is written again as it was")

    def expire(self) -> None:
        """Drop versions that were replaced long ago, and their ledgers (LOGS.md#W5, LOGS.md#Q5)."""
        versions = self.versions
        replaced = [version.commit_time_ms for version in versions[1:]] or [self.log.now_ms]
        keeps_ms = max(1, self.log.now_ms - self.random.choice(replaced))
        since_ms = self.log.now_ms - keeps_ms
        left = [
            version
            for version, following in itertools.pairwise(versions)
            if following.commit_time_ms > since_ms
        ]
        oldest = (*left, versions[-1])[0]
        machine = self._dropped(oldest, keeps_ms, 0)
        later = [v.commit_time_ms + keeps_ms for v in self.versions[1:]]
        due_ms = min(machine.next_due_ms, self.log.now_ms + keeps_ms)
        is_early = all(due_ms <= at_ms for at_ms in later)
        self.require(is_early, f"it looks again at {due_ms}, and versions expire at {later[:1]}")

    def _dropped(self, oldest: VersionInterval, keeps_ms: int | None, steps: int) -> ExpiryMachine:
        """Make steps until `oldest` is the oldest version. `steps` steps were made before."""
        due = len(self.versions), [i for i in self.items if i.end_offset <= oldest.start_offset]
        number = 0
        while True:
            self.require((number := number + 1) < STEPS_MAX, "versions expire for ever")
            machine = ExpiryMachine("flights", version_retention_ms=keeps_ms, token=self.token())
            step = self.run(machine)
            steps += step.is_changed
            if step.is_complete:
                break
        head = self.head
        is_right = head.oldest_version == oldest.version
        self.require(is_right, f"{oldest} is to be the oldest version, not {head.oldest_version}")
        left = [item for item in self.items if item.end_offset <= oldest.start_offset]
        self.require(not left, f"{left} are of no version")
        self._steps(steps, len(due[1]), due[0])
        self.counts["versions expired"] += due[0] - len(self.versions)
        return machine

    def _steps(self, steps: int, items: int, versions: int) -> None:
        """Check that the number of steps is not larger than these items and versions need."""
        wanted = max(1, -(-items // log_expiry.STEP_ITEMS_MAX))
        is_short = versions <= log_expiry.VERSIONS_AT_ONCE
        self.require(steps <= wanted or not is_short, f"{steps} steps for {items} items")

    def truncate(self) -> None:
        """Truncate to a random offset, or to the start of an older version (LOGS.md#U4-U7)."""
        before, versions = self.head, self.versions
        offset = self.random.randint(before.oldest_offset, before.end_offset)
        if self.random.random() < 0.5:
            offset = self.random.choice(versions).start_offset
        due = [item for item in self.items if item.end_offset <= offset]
        self.run(TruncateMachine("flights", offset=offset, token=self.token()))
        is_made = offset > before.start_offset
        self.require(self.head.start_offset == max(before.start_offset, offset), "begins elsewhere")
        self.require(self.head.version == before.version + is_made, "a version too many, or few")
        oldest = next(v for v in (*versions, self.versions[-1]) if v.start_offset >= offset)
        self._dropped(oldest, None, 0)
        self.counts["truncations"] += bool(due)

    def retain(self) -> None:
        """Check that retention drops exactly the ranges that are due (LOGS.md#U8)."""
        random, head = self.random, self.head
        by_age, by_size = random.choice(((True, False), (False, True), (True, True)))
        timed = [item.newest_ms for item in self.items if item.newest_ms] or [self.log.now_ms]
        bytes_of_all = sum(item.size_bytes for item in self.items)
        keeps_ms = max(1, self.log.now_ms - random.choice(timed)) if by_age else KEPT
        keeps_bytes = random.randint(0, bytes_of_all) if by_size else KEPT
        start, untimed_to, versions = head.start_offset, 0, self.versions
        due = max(self._due_by_age(keeps_ms, self.log.now_ms), self._due_by_size(keeps_bytes))
        number = 0
        while True:
            self.require((number := number + 1) < STEPS_MAX, "retention goes on for ever")
            machine = self._retention(keeps_ms, keeps_bytes, untimed_to)
            self.run(machine)
            untimed_to = machine.untimed_to
            self._dropped(self.versions[0], None, 0)
            if by_age:
                self._looks_in_time(machine, keeps_ms)
            if not machine.is_more_due:
                break
        after = self.head.start_offset
        self.require(after <= max(start, due), f"{after} is behind {due}, the end of what is due")
        ended = [v for v in versions if v.version < self.head.oldest_version]
        is_right = all(version.start_offset < due for version in ended)
        self.require(is_right, f"{ended[-1:]} ended, and what is due ends at {due}")
        left = max(self._due_by_age(keeps_ms, self.log.now_ms), self._due_by_size(keeps_bytes))
        self.require(not self._frees(left), f"rows up to {left} stay, which are due")
        if by_size:
            self._read_little(keeps_bytes)
        self.counts["retentions"] += after > start

    def _retention(self, keeps_ms: int, keeps_bytes: int, untimed_to: int) -> RetentionMachine:
        return RetentionMachine(
            "flights",
            retention_ms=keeps_ms,
            retention_bytes=keeps_bytes,
            token=self.token(),
            page_sizes=self.page_sizes,
            untimed_to=untimed_to,
        )

    def _looks_in_time(self, machine: RetentionMachine, keeps_ms: int) -> None:
        """Check that no range is due by age before the reported time of the next look."""
        next_ms = machine.next_due_ms
        if next_ms is not None and next_ms > self.log.now_ms:
            missed = self._due_by_age(keeps_ms, next_ms - 1)
            self.require(not self._frees(missed), f"rows up to {missed} are due before {next_ms}")

    def _due_by_age(self, keeps_ms: int, now_ms: int) -> int:
        if keeps_ms == KEPT:
            return 0
        ends = [i.end_offset for i in self.items if 0 < i.newest_ms < now_ms - keeps_ms]
        return max(ends, default=0)

    def _due_by_size(self, keeps_bytes: int) -> int:
        """Return the offset up to which items are due by size: enough bytes remain after it."""
        due = 0
        if keeps_bytes == KEPT:
            return due
        newest = [item for item in self.items if item.end_offset > self.head.start_offset]
        left = sum(item.size_bytes for item in newest)
        for item in newest[:-1]:
            left -= item.size_bytes
            if left < keeps_bytes:
                break
            due = item.end_offset
        return due

    def _frees(self, offset: int) -> bool:
        """Whether the truncation of the rows before `offset` frees a ledger."""
        items = self.items
        gone = {item.ledger_id for item in items if item.end_offset <= offset}
        return bool(gone - {item.ledger_id for item in items if item.end_offset > offset})

    def _read_little(self, keeps_bytes: int) -> None:
        """Check that the sizes of pages are counted once: the next pass reads few pages."""
        self.run(self._retention(KEPT, keeps_bytes, 0))
        most = 2 * (log_retention.ITEMS_AT_ONCE + 2)
        self.require(len(self.log.read) <= most, f"{len(self.log.read)} pages are read again")

    def restore(self) -> None:
        """Restore the rows and the columns of an older version (LOGS.md#U10-U12)."""
        before, versions = self.head, self.versions
        wanted = self.random.choice((self.random.choice(versions), versions[-2:][0]))
        items = [
            item
            for item in self.items
            if max(item.first_offset, wanted.start_offset) < min(item.end_offset, wanted.end_offset)
        ]
        copies = {}
        for part in cut_ranges(wanted, items):
            first, end = part.offsets
            copies[part.offsets] = self.staged(next(self._numbers), end - first)
        app = f"restore-{next(self._numbers)}"
        self.log.producer(app, app)
        self.log.register(app, *(each.ledger_id for each in copies.values()))
        self.wait()
        request = RestoreRequest(wanted.version, app, app, before.version, copies)
        done = self.run(RestoreMachine("flights", request, token=self.token()))
        place = (wanted.start_offset, wanted.end_offset), wanted.schema_id
        is_there = place == (before.interval, before.schema_id)
        is_nothing = done.status is CommitStatus.NOTHING_TO_COMMIT
        self.require(is_there == is_nothing, f"a restore of {wanted} ended with {done.status}")
        after = self.head
        is_right = after.schema_id == wanted.schema_id
        self.require(is_right, f"{wanted} was restored with columns {after.schema_id}")
        count = after.end_offset - after.start_offset
        self.require(count == wanted.end_offset - wanted.start_offset, f"{count} rows of {wanted}")
        self.counts["restores"] += not is_nothing

    def merge(self) -> None:
        """Merge several ranges into one, which gets the time of the newest (LOGS.md#U13)."""
        items = self.items
        if len(items) < 2:
            return
        first = self.random.randrange(len(items) - 1)
        some = items[first : first + self.random.randint(2, 5)]
        run = tuple(itertools.takewhile(lambda i: i.schema_id == some[0].schema_id, some))
        if len(run) < 2:
            return
        staged = self.staged(next(self._numbers), sum(item.rows for item in run))
        app = f"merge-{staged.ledger_id}"
        self.log.producer(app, app)
        self.log.register(app, staged.ledger_id)
        self.run(MergeMachine("flights", MergeRequest(app, app, run, staged), token=self.token()))
        (merged,) = [item for item in self.items if item.ledger_id == staged.ledger_id]
        newest_ms = max(item.newest_ms for item in run)
        is_right = merged.newest_ms == newest_ms
        self.require(is_right, f"rows of {newest_ms} are listed as of {merged.newest_ms}")
        self.counts["merges"] += 1

    def sweep_pages(self) -> None:
        """Sweep pages. Pages whose touch has an unknown outcome stay (LOGS.md#W2)."""
        log, tokens = self.log, tuple(dict.fromkeys(of for of, _ in self.log.pages))
        log.unsure = {of for of in tokens if self.random.random() < 0.2}
        before = [place for place in log.pages if place[0] in log.unsure]
        self.run(PagesSweep("flights", tokens))
        gone = [place for place in before if place not in log.pages]
        self.require(not gone, f"pages {gone} went, which a commit may name")
        log.unsure = set()
        self.run(PagesSweep("flights", tokens))
        self.checks.no_pages_left(log.state)


def list_schedule(seed: int) -> ListWorld:
    """Run one random schedule to its end, or raise `Violation`."""
    world = ListWorld(seed)
    random = world.random
    with mock.patch.object(log_pages, "PAGE_BODY_SIZE_BYTES_MAX", PAGE_SIZE_BYTES):
        try:
            for _ in range(random.randint(2, 4)):
                for _ in range(random.randint(10, 25)):
                    world.commit()
                for _ in range(random.randint(2, 5)):
                    world.wait()
                    random.choice(
                        (
                            *(world.expire, world.truncate, world.retain, world.retain),
                            *(world.restore, world.merge, world.merge, world.sweep_pages),
                            world.clear,
                        )
                    )()
        except Violation:
            raise
        except Exception as error:
            raise world.violation(repr(error)) from error
    return world
