"""Checks the metadata of ledgers, and whether bookies list the entries that they must have.

A check changes nothing. It requests only lists of entries from bookies, and reads no entry. If a
ledger has a finding that is not a note, the ledger is checked once more, after a sync and with new
lists, because a writer or a bookie may have changed the ledger during the check.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from ledgerlog_spark.errors import LedgerLogError, LedgerNotFoundError, MetadataFormatError
from ledgerlog_spark.metadata.ledgers.store import LedgerStore
from ledgerlog_spark.metadata.ledgers.walk import WalkedLedger
from ledgerlog_spark.metadata.logs.nodes import read_each
from ledgerlog_spark.metadata.registration import Registration
from ledgerlog_spark.model import Code, LedgerMetadata, LedgerState, Quorum, Versioned
from ledgerlog_spark.protocol.autorecovery.replicate.ranges import joined
from ledgerlog_spark.tools.findings import Severity, ToolFinding
from ledgerlog_spark.tools.held_copies import Ranges, ShortRange, fragments_to_check, short_ranges
from ledgerlog_spark.tools.record_check import KnownMembers, check_record
from ledgerlog_spark.transport.port import EntryLister
from ledgerlog_spark.waits import forever

RANGES_MAX = 10
"""Maximum number of ranges of entries that are reported for one ledger."""

LEDGERS_AT_ONCE = 64
LISTS_AT_ONCE = 16
LIST_TIMEOUT_MS = 30_000

Found = Versioned[LedgerMetadata] | MetadataFormatError
"""The record of a ledger, or the error that states why the record cannot be decoded."""

GivenUp = Callable[[int], Awaitable[Ranges]]
"""A function that returns the entries of a ledger that an operator gave up, as ascending ranges."""

OnProgress = Callable[[int], object]
"""A function that is called with the number of ledgers that have been checked so far."""


@dataclass(slots=True)
class LedgersReport:
    """The result of a check of one ledger or all ledgers.

    Attributes:
        findings: The first findings. They include notes only if notes were requested.
        states: Maps each state, such as `CLOSED`, to the number of ledgers in this state. The state
            is `unreadable` if the metadata of a ledger cannot be decoded.
        counts: Maps each severity to the number of all findings with this severity.
        sound: Number of ledgers that have no findings other than notes.
        copies_checked: Number of ledgers whose copies were checked.
    """

    findings: list[ToolFinding] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    counts: Counter[Severity] = field(default_factory=Counter)
    sound: int = 0
    copies_checked: int = 0

    @property
    def is_wrong(self) -> bool:
        """Whether a finding is `WRONG`."""
        return bool(self.counts[Severity.WRONG])


@dataclass(frozen=True, slots=True)
class _Checked:
    """The result for one ledger. `state` is empty if the ledger no longer exists."""

    state: str
    findings: Sequence[ToolFinding] = ()
    has_lists: bool = False


class LedgerCheck:
    """Checks ledgers, and gathers the findings in `report`."""

    def __init__(
        self,
        ledgers: LedgerStore,
        registration: Registration,
        lister: EntryLister | None,
        given_up: GivenUp,
        *,
        findings_max: int,
        notes: bool,
    ) -> None:
        """Create a check. If `lister` is None, only metadata is checked.

        `given_up` returns the entries that an operator gave up. Bookies need not have these
        entries.

        `findings_max` limits the findings in the report. If `notes` is false, the report counts
        notes, but does not contain them.
        """
        self.report = LedgersReport()
        self._ledgers = ledgers
        self._registration = registration
        self._lister = lister
        self._given_up = given_up
        self._places = asyncio.Semaphore(LISTS_AT_ONCE)
        self._findings_max = findings_max
        self._notes = notes

    async def one(self, ledger_id: int) -> None:
        """Check one ledger.

        Raises:
            LedgerNotFoundError: The ledger does not exist.
        """
        await self._ledgers.sync()
        checked = await self._look(ledger_id, await self._found(ledger_id), await self._members())
        if _needs_another_look(checked):
            checked = await self._look_again(ledger_id)
        if not checked.state:
            await self._ledgers.load(ledger_id)  # raises LedgerNotFoundError
        self._count(checked)

    async def all(self, on_progress: OnProgress) -> None:
        """Check all ledgers that exist."""
        await self._ledgers.sync()
        done = 0
        async for some in self._walked():
            members = await self._members()

            async def look(walked: WalkedLedger) -> _Checked:
                checked = await self._look(walked.ledger_id, walked.found, members)  # noqa: B023
                if _needs_another_look(checked):
                    return await self._look_again(walked.ledger_id)
                return checked

            for checked in await read_each(look, some):
                self._count(checked)
            done += len(some)
            on_progress(done)

    async def _walked(self) -> AsyncIterator[list[WalkedLedger]]:
        """Yield all ledgers with their metadata, as lists of at most LEDGERS_AT_ONCE ledgers."""
        some: list[WalkedLedger] = []
        try:
            async for walked in self._ledgers.walk():
                some.append(walked)
                if len(some) >= LEDGERS_AT_ONCE:
                    yield some
                    some = []
        except MetadataFormatError as error:
            advice = "another program made this node: delete it, and run the check again"
            what = f"the listing of ledgers ends here, so later ledgers are not checked: {error}"
            self._add(ToolFinding(Severity.WRONG, what, advice))
        if some:
            yield some

    async def _members(self) -> KnownMembers:
        registration = self._registration
        registered = {*await registration.writable(), *await registration.read_only()}
        return KnownMembers(frozenset(await registration.known()), frozenset(registered))

    async def _found(self, ledger_id: int) -> Found | None:
        try:
            return await self._ledgers.load(ledger_id)
        except LedgerNotFoundError:
            return None
        except MetadataFormatError as error:
            return error

    async def _look_again(self, ledger_id: int) -> _Checked:
        await self._ledgers.sync()
        return await self._look(ledger_id, await self._found(ledger_id), await self._members())

    async def _look(self, ledger_id: int, found: Found | None, members: KnownMembers) -> _Checked:
        if found is None:
            return _Checked("")
        if isinstance(found, MetadataFormatError):
            path = self._ledgers.path(ledger_id)
            advice = (
                "replace the record by an exported one with `ledgerlog ledgers import`, or look at "
                f"it with ZooKeeper's tools: {path}"
            )
            what = found.message
            return _Checked("unreadable", [ToolFinding(Severity.WRONG, what, advice, ledger_id)])
        metadata = found.value
        findings = list(check_record(ledger_id, metadata, members))
        has_lists = self._lister is not None
        if has_lists:
            findings += await self._check_copies(ledger_id, metadata)
        return _Checked(metadata.state.name, findings, has_lists)

    async def _check_copies(self, ledger_id: int, metadata: LedgerMetadata) -> list[ToolFinding]:
        fragments = [fragment for fragment, _ in fragments_to_check(metadata)]
        names = sorted({name for fragment in fragments for name in fragment.ensemble})
        lists = await asyncio.gather(*(self._list(name, ledger_id) for name in names))
        given_up = await self._given_up(ledger_id)
        owed = [each if each is None else joined([*each, *given_up]) for each in lists]
        short = short_ranges(metadata, dict(zip(names, owed, strict=True)))
        findings = [_short_finding(ledger_id, metadata.quorum, each) for each in
                    islice(short, RANGES_MAX)]  # fmt: skip
        if given_up:
            count = sum(last - first + 1 for first, last in given_up)
            what = f"an operator accepted that {count:,} entries are lost"
            findings.append(ToolFinding(Severity.NOTE, what, ledger_id=ledger_id))
        rest = list(short)
        if rest:
            lost = sum(each.is_lost(metadata.quorum) for each in rest)
            severity = Severity.WRONG if lost else Severity.WARNING
            what = f"{len(rest):,} further ranges of entries lack copies; {lost:,} ranges are lost"
            findings.append(ToolFinding(severity, what, ledger_id=ledger_id))
        return findings

    async def _list(self, bookie_id: str, ledger_id: int) -> Ranges | None:
        """Return the entries that a bookie lists.

        The result is None if the bookie is down or in limbo, or cannot list entries.
        """
        assert self._lister is not None
        answered: asyncio.Future[Ranges | None] = asyncio.get_running_loop().create_future()

        def on_reply(code: Code, ranges: Sequence[tuple[int, int]]) -> None:
            if not answered.done():
                is_known = code is Code.OK or code.is_absent
                answered.set_result(ranges if is_known else None)

        async with self._places:
            try:
                info = await self._registration.info(bookie_id)
            except LedgerLogError:
                return None
            if info.grpc_port is None:  # a bookie of Apache
                return None
            self._lister.list_entries(bookie_id, ledger_id, LIST_TIMEOUT_MS, on_reply)
            return await forever(answered, "the transport answers each request by its deadline")

    def _count(self, checked: _Checked) -> None:
        if not checked.state:
            return  # the ledger was deleted during the check
        report = self.report
        report.states[checked.state] += 1
        report.copies_checked += checked.has_lists
        report.sound += all(each.severity is Severity.NOTE for each in checked.findings)
        for finding in checked.findings:
            self._add(finding)

    def _add(self, finding: ToolFinding) -> None:
        report = self.report
        report.counts[finding.severity] += 1
        is_shown = self._notes or finding.severity is not Severity.NOTE
        if is_shown and len(report.findings) < self._findings_max:
            report.findings.append(finding)


def _needs_another_look(checked: _Checked) -> bool:
    return any(each.severity is not Severity.NOTE for each in checked.findings)


def _short_finding(ledger_id: int, quorum: Quorum, short: ShortRange) -> ToolFinding:
    first, last = short.first_entry_id, short.last_entry_id
    entries = f"entry {first}" if first == last else f"entries {first} to {last}"
    lacking = f"; missing on {', '.join(short.lacking)}" if short.lacking else ""
    unknown = f"; unknown on {', '.join(short.unknown)}" if short.unknown else ""
    what = f"{entries}: at least {short.copies} of {quorum.write_quorum} copies{lacking}{unknown}"
    show = f"`ledgerlog ledgers show {ledger_id} --replicas` reads the copies"
    if short.is_lost(quorum):
        return ToolFinding(
            Severity.WRONG,
            f"{what}. This is fewer than the ack quorum, {quorum.ack_quorum}",
            f"{show}; start all bookies that ever had the ledger",
            ledger_id,
        )
    if short.lacking:
        advice = "auto-recovery copies the entries to the bookies that lack them"
        return ToolFinding(Severity.WARNING, what, f"{advice}; {show}", ledger_id)
    advice = "start these bookies, or wait for the end of their repair; " + show
    severity = Severity.NOTE if short.copies >= quorum.ack_quorum else Severity.WARNING
    return ToolFinding(severity, what, advice, ledger_id)


def states_text(states: Counter[str]) -> str:
    """Return a text with the number of ledgers in each state."""
    names = [*(state.name for state in LedgerState), "unreadable"]
    return ", ".join(f"{states[name]:,} {name}" for name in names if states[name]) or "none"
