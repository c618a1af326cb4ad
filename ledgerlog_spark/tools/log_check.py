"""Checks the head, the pages and the ledgers of logs, and finds the ledgers that no log lists.

A check changes nothing, and seals no ledger. The ids of all ledgers are read once for all logs,
before the lists of the logs are read (LOGS.md#U17). If a log has a finding, it is checked once
more, because commits and the sweeper may have changed it during the check.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from ledgerlog_spark.errors import LedgerNotFoundError, MetadataFormatError, WireFormatError
from ledgerlog_spark.metadata.logs.nodes import read_each
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import LedgerMetadata
from ledgerlog_spark.protocol.log.seal import LOG_ID_KEY
from ledgerlog_spark.protocol.log.state.pages import PageRequest
from ledgerlog_spark.protocol.log.state.records import LogHead, Paged
from ledgerlog_spark.protocol.log.state.rows import HISTORY, ITEMS, REFS, SCHEMAS, RecordKind
from ledgerlog_spark.tools.findings import Severity, ToolFinding
from ledgerlog_spark.tools.listing_check import (
    RESTORE,
    LogListing,
    check_listing,
    check_page,
    check_ranges,
)

PROGRESS_LEDGERS = 1_000
"""Number of ledgers between two calls of `on_progress`."""


@dataclass(frozen=True, slots=True)
class CheckedLog:
    """The result for one log.

    Attributes:
        name: The name of the log.
        log_id: The id of the log.
        is_readable: Whether the head and all pages could be read.
        items: Number of listed ranges.
        pages: Number of pages that the head names.
        ledgers: Number of listed ledgers.
        findings: The findings about the log.
    """

    name: str
    log_id: str
    is_readable: bool = False
    items: int = 0
    pages: int = 0
    ledgers: int = 0
    findings: Sequence[ToolFinding] = ()


@dataclass(slots=True)
class Owners:
    """The logs that own ledgers, according to the metadata of all ledgers.

    Attributes:
        by_log: Maps each log id to the ids of the log's ledgers.
        unreadable: Number of ledgers whose metadata cannot be decoded.
    """

    by_log: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    unreadable: int = 0


class LogListings:
    """Checks the metadata of logs."""

    def __init__(self, stores: MetadataStores) -> None:
        self._stores = stores
        self._logs = stores.logs

    async def owners(self, on_progress: Callable[[int], object]) -> Owners:
        """Read the metadata of all ledgers, and return the owners of the ledgers.

        `on_progress` is called with the number of ledgers that have been read so far.
        """
        owners = Owners()
        await self._stores.ledgers.sync()
        done = 0
        async for walked in self._stores.ledgers.walk():
            if isinstance(walked.found, MetadataFormatError):
                owners.unreadable += 1
            elif (log_id := walked.found.value.custom.get(LOG_ID_KEY)) is not None:
                owners.by_log[log_id.decode(errors="replace")].add(walked.ledger_id)
            done += 1
            if done % PROGRESS_LEDGERS == 0:
                on_progress(done)
        return owners

    async def strangers(self, owners: Owners) -> list[ToolFinding]:
        """Return findings about ledgers whose log does not exist, and about logs without a head."""
        await self._logs.sync()
        ids = set(await self._logs.ids())
        found = []
        for log_id in sorted(set(owners.by_log) - ids):
            ledgers = sorted(owners.by_log[log_id])
            found.append(
                ToolFinding(
                    Severity.WARNING,
                    f"{len(ledgers):,} ledgers, such as {ledgers[0]}, belong to the log {log_id}, "
                    "which does not exist",
                    "if no backup has this log, delete them, for example with `ledgerlog ledgers "
                    f"delete {ledgers[0]}`",
                    ledgers[0],
                )
            )
        return found

    async def check(self, name: str) -> CheckedLog:
        """Check the metadata of one log.

        Raises:
            LogNotFoundError: The log does not exist.
        """
        checked = await self._look(name)
        return await self._look(name) if checked.findings else checked

    async def _look(self, name: str) -> CheckedLog:
        await self._logs.sync()
        log_id = await self._logs.find(name)
        try:
            read = await self._logs.read_head(log_id)
        except (MetadataFormatError, WireFormatError) as error:
            what = f"the head of the log cannot be decoded: {error.message}"
            return CheckedLog(name, log_id, findings=[_wrong(name, what, RESTORE)])
        if read is None:
            what = f"the log has the id {log_id}, but this id has no head"
            return CheckedLog(name, log_id, findings=[_wrong(name, what, RESTORE)])
        head = read.value
        if (head.log_id, head.name, head.deleted_ms) != (log_id, name, 0):
            what = f"the name leads to the head of log {head.name!r} with the id {head.log_id}"
            if head.deleted_ms:
                what += ", which is deleted"
            return CheckedLog(name, log_id, findings=[_wrong(name, what, RESTORE)])
        return await self._look_at(head)

    async def _look_at(self, head: LogHead) -> CheckedLog:
        pages = _Pages(self._stores, head)
        items = await pages.all(ITEMS, head.items)
        history = await pages.all(HISTORY, head.history)
        schemas = await pages.all(SCHEMAS, head.schemas)
        findings = pages.findings
        listed: set[int] = {item.ledger_id for item in items}
        listed |= {opened.ledger_id for opened in head.open_ledgers}
        is_readable = not findings
        if is_readable:
            listing = LogListing(head, items, history, {each.schema_id for each in schemas})
            ids = sorted(listed)
            records = dict(zip(ids, await read_each(self._record, ids), strict=True))
            findings = list(chain(check_listing(listing), check_ranges(listing, records)))
        return CheckedLog(
            name=head.name,
            log_id=head.log_id,
            is_readable=is_readable,
            items=len(items),
            pages=pages.count,
            ledgers=len(listed),
            findings=findings,
        )

    async def _record(self, ledger_id: int) -> LedgerMetadata | None:
        try:
            return (await self._stores.ledgers.load(ledger_id)).value
        except (LedgerNotFoundError, MetadataFormatError):
            return None


class _Pages:
    """Reads all pages that a head names, one by one. After a bad page, it reads the other pages."""

    def __init__(self, stores: MetadataStores, head: LogHead) -> None:
        self._logs = stores.logs
        self._head = head
        self.findings: list[ToolFinding] = []
        self.count = 0

    async def all(self, kind: RecordKind[Any], paged: Paged[Any]) -> list[Any]:
        """Return the records of a paged sequence. Omit the records of pages that cannot be read."""
        refs = [ref for index in paged.index for ref in await self._page(REFS, index)]
        records = [each for ref in (*refs, *paged.pages) for each in await self._page(kind, ref)]
        return [*records, *paged.recent]

    async def _page(self, kind: RecordKind[Any], ref: Any) -> Sequence[Any]:
        self.count += 1
        where = f"page {ref.number} of {ref.token} ({kind.name})"
        try:
            found = await self._logs.read_pages(self._head.log_id, [PageRequest(kind, ref)])
        except (MetadataFormatError, WireFormatError) as error:
            what = f"{where} cannot be decoded: {error.message}"
            self.findings.append(_wrong(self._head.name, what, RESTORE))
            return ()
        if found is None:
            what = f"{where} is missing"
            self.findings.append(_wrong(self._head.name, what, RESTORE))
            return ()
        (records,) = found
        self.findings += check_page(self._head.name, kind, ref, records)
        return records


def _wrong(log: str, what: str, advice: str) -> ToolFinding:
    return ToolFinding(Severity.WRONG, what, advice, None, log)
