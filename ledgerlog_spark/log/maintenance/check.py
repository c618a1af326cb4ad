"""Checks that all listed entries exist, and finds the owner of every ledger (LOGS.md#U17).

A check changes nothing. A leader creates a mark `made` for a ledger that is not listed yet. The
check reads in this order: the ids of the log's ledgers, the registrations, the marks `made`, the
list, and all marks. Because of this order, concurrent work does not look like damage. If a ledger
has a fault, the list is read again. The fault is reported only if the list still contains the same
ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import itemgetter

from ledgerlog_spark.errors import LedgerNotFoundError, MetadataFormatError
from ledgerlog_spark.log.host import LogHost
from ledgerlog_spark.metadata.logs.nodes import read_each
from ledgerlog_spark.model import NO_ENTRY, Code, LedgerMetadata
from ledgerlog_spark.protocol.log.read.versions import ListingMachine, StateMachine
from ledgerlog_spark.protocol.log.seal import LOG_ID_KEY
from ledgerlog_spark.protocol.log.state.records import Item

YOUNG_MS = 60_000
LOOKS_MAX = 5
"""Maximum number of times that a ledger is checked again while its ranges change.

The result of the last check is used."""


@dataclass(frozen=True, slots=True)
class CheckedLedger:
    """One listed ledger.

    Attributes:
        ledger_id: Id of the ledger.
        state: The state of the ledger in its metadata; `missing` if the ledger has no metadata.
        ranges: Number of the ledger's ranges in the list.
        last_entry_id: The highest entry of the ledger that the log lists. NO_ENTRY for an open
            ledger of a leader log, because its entries are not listed yet.
        entries: Number of entries that were checked.
        copies: Number of copies of the checked entry that has the fewest copies.
        copies_wanted: Number of copies that each entry should have (the write quorum).
        is_damaged: Whether the metadata is missing, or a listed entry has fewer copies than the ack
            quorum.
        finding: A description of the fault; empty if the ledger has no fault.
    """

    ledger_id: int
    state: str
    ranges: int
    last_entry_id: int
    entries: int = 0
    copies: int = 0
    copies_wanted: int = 0
    is_damaged: bool = False
    finding: str = ""


@dataclass(frozen=True, slots=True)
class LogCheck:
    """The result of a check of one log.

    Attributes:
        log: Name of the log.
        ledgers: Every listed ledger, in ascending order of ids.
        staged: Ledgers of uncommitted jobs, and unlisted ledgers of leaders.
        marked: Ledgers that no version lists, and that the sweeper will delete.
        orphans: Ledgers with the id of this log in their metadata, but without an item, a
            registration or a mark. Ledgers that were created in the last minute are omitted,
            because a leader may list them soon.
    """

    log: str
    ledgers: tuple[CheckedLedger, ...]
    staged: tuple[int, ...]
    marked: tuple[int, ...]
    orphans: tuple[int, ...]

    @property
    def findings(self) -> tuple[CheckedLedger, ...]:
        """Listed ledgers with a fault."""
        return tuple(ledger for ledger in self.ledgers if ledger.finding)

    @property
    def is_damaged(self) -> bool:
        """Whether listed rows are missing, or are on fewer bookies than the ack quorum."""
        return any(ledger.is_damaged for ledger in self.ledgers)


class LogChecker:
    """Checks one log, which may be transactional or a leader log."""

    def __init__(self, host: LogHost, own: Collection[int] | None = None) -> None:
        """Create a checker.

        `own` contains the ids of all ledgers with the log's id in their metadata. If `own` is None,
        the check reads the metadata of all ledgers to find these ids.
        """
        self._host = host
        self._producers = host.store.producers
        self._own = own
        self._reads_entries = True

    async def check(
        self,
        *,
        every_entry: bool,
        on_progress: Callable[[int, int], None],
        reads_entries: bool = True,
    ) -> LogCheck:
        """Implements `Log.check`."""
        self._reads_entries = reads_entries
        listed, staged, marked, strangers = await self._known()
        checked: dict[int, CheckedLedger] = {}
        for done, ledger_id in enumerate(sorted(listed)):
            on_progress(done, len(listed))
            checked[ledger_id] = await self._check_ledger(ledger_id, listed[ledger_id], every_entry)
        on_progress(len(listed), len(listed))
        await self._confirm(checked, listed, every_entry)
        return LogCheck(
            log=self._host.name,
            ledgers=tuple(checked.values()),
            staged=tuple(sorted(staged.difference(listed))),
            marked=tuple(sorted(marked.difference(listed))),
            orphans=await self._older(strangers, YOUNG_MS),
        )

    async def orphans(self, age_ms: int) -> tuple[int, ...]:
        """Return the orphans that are older than `age_ms`. Listed ledgers are not checked."""
        *_, strangers = await self._known()
        return await self._older(strangers, max(YOUNG_MS, age_ms))

    async def _older(self, ledger_ids: Sequence[int], age_ms: int) -> tuple[int, ...]:
        """Return the ledgers that exist and are older than `age_ms` by the store's clock."""
        if not ledger_ids:
            return ()
        now_ms = await self._host.store.now_ms(self._host.log_id)
        made = zip(ledger_ids, await self._producers.created_ms(ledger_ids), strict=True)
        return tuple(i for i, at_ms in made if at_ms is not None and now_ms - at_ms > age_ms)

    async def _known(self) -> tuple[Mapping[int, Sequence[Item]], set[int], set[int], list[int]]:
        """Return four groups of the log's ledgers: listed, staged, marked, and all others."""
        log_id = self._host.log_id
        own = await self.own_ledgers() if self._own is None else set(self._own)
        staged: set[int] = set()
        for app in await self._producers.names(log_id):
            staged.update(await self._producers.registered(log_id, app))
        before = await self._producers.marked(log_id)
        staged |= {mark.ledger_id for mark in before if mark.is_made}
        listed = await self._listed()
        after = await self._producers.marked(log_id)
        marked = {mark.ledger_id for mark in after if not mark.is_made}
        return listed, staged, marked, sorted(own - staged - marked - set(listed))

    async def _listed(self) -> dict[int, list[Item]]:
        """Return every listed ledger with its ranges. An open ledger has no ranges yet."""
        state = await self._host.run(StateMachine(self._host.name))
        items = await self._host.run(ListingMachine(self._host.name))
        listed: dict[int, list[Item]] = {o.ledger_id: [] for o in state.head.open_ledgers}
        for item in items:
            listed.setdefault(item.ledger_id, []).append(item)
        return listed

    async def _confirm(
        self,
        checked: dict[int, CheckedLedger],
        listed: Mapping[int, Sequence[Item]],
        every_entry: bool,
    ) -> None:
        """Check each faulty ledger again while its ranges in the list change.

        A deleted ledger is no fault if the list no longer contains it. A leader deletes an empty
        ledger immediately. A sweeper deletes an unlisted ledger after a grace period, and a check
        may take longer than this grace period.
        """
        suspects = {
            ledger_id: listed[ledger_id] for ledger_id in checked if checked[ledger_id].finding
        }
        for _ in range(LOOKS_MAX):
            if not suspects:
                return
            newer = await self._listed()
            changed = [i for i, items in suspects.items() if newer.get(i) != items]
            suspects = {}
            for ledger_id in changed:
                if ledger_id not in newer:
                    del checked[ledger_id]
                    continue
                again = await self._check_ledger(ledger_id, newer[ledger_id], every_entry)
                checked[ledger_id] = again
                if again.finding:
                    suspects[ledger_id] = newer[ledger_id]

    async def own_ledgers(self) -> set[int]:
        """Read the metadata of all ledgers, and return the ids of the ledgers with the log's id."""
        ids = [ledger_id async for ledger_id in self._host.ledgers.list_ledgers()]
        own = self._host.log_id.encode()

        async def is_own(ledger_id: int) -> bool:
            metadata = await self._metadata(ledger_id)
            return metadata is not None and metadata.custom.get(LOG_ID_KEY) == own

        return set(compress(ids, await read_each(is_own, ids)))

    async def _metadata(self, ledger_id: int) -> LedgerMetadata | None:
        """Return the metadata of a ledger; None if it does not exist or cannot be decoded."""
        try:
            return await self._host.ledgers.ledger_metadata(ledger_id)
        except (LedgerNotFoundError, MetadataFormatError):
            return None

    async def _check_ledger(
        self, ledger_id: int, items: Sequence[Item], every_entry: bool
    ) -> CheckedLedger:
        last = max((item.last_entry_id for item in items), default=NO_ENTRY)
        metadata = await self._metadata(ledger_id)
        if metadata is None:
            return CheckedLedger(
                ledger_id, "missing", len(items), last, is_damaged=True,
                finding="the log lists the ledger, but its metadata is missing or unreadable",
            )  # fmt: skip
        read = items if self._reads_entries else ()
        entry_ids = sorted(
            {entry_id for item in read for entry_id in _entries_to_check(item, every_entry)}
        )
        fewest, finding = await self._copies(ledger_id, metadata, entry_ids)
        needed = metadata.quorum.ack_quorum
        if metadata.is_closed and metadata.last_entry_id < last:
            finding = f"closed at entry {metadata.last_entry_id}, but listed up to {last}"
            fewest = 0
        return CheckedLedger(
            ledger_id=ledger_id,
            state=metadata.state.name.lower(),
            ranges=len(items),
            last_entry_id=last,
            entries=len(entry_ids),
            copies=fewest,
            copies_wanted=metadata.quorum.write_quorum,
            is_damaged=bool(items) and fewest < needed,
            finding=finding,
        )

    async def _copies(
        self, ledger_id: int, metadata: LedgerMetadata, entry_ids: Sequence[int]
    ) -> tuple[int, str]:
        """Return the smallest number of copies of an entry, and its fault; `""` without a fault."""
        wanted = metadata.quorum.write_quorum

        async def counted(entry_id: int) -> tuple[int, str]:
            answers = await self._host.ledgers.entry_copies(ledger_id, metadata, entry_id)
            copies = sum(code is Code.OK for code in answers.values())
            fault = f"entry {entry_id}: {_answers_text(answers.items())}"
            return copies, fault if copies < wanted else ""

        found = await read_each(counted, entry_ids)
        return min(found, key=itemgetter(0), default=(wanted, ""))


def _entries_to_check(item: Item, every_entry: bool) -> Iterable[int]:
    if every_entry:
        return range(item.first_entry_id, item.last_entry_id + 1)
    return (item.first_entry_id, item.last_entry_id)


def _answers_text(answers: Iterable[tuple[str, Code]]) -> str:
    words = {Code.UNAVAILABLE: "cannot be reached", Code.TIMEOUT: "does not answer"}
    parts = [
        f"{bookie} {'does not have it' if code.is_absent else words.get(code, code.name.lower())}"
        for bookie, code in answers
        if code is not Code.OK
    ]
    return ", ".join(parts)
