"""Reads each copy of the entries of a ledger, verifies the digests, and compares the copies.

The reads neither fence nor change the ledger. The headers of two copies of an entry may have
different last adds confirmed, because a recovery writes entries again with a new header. But the
id, the length and the payload of all copies must be the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from ledgerlog_spark.client.handles.ledger_bytes import LedgerBytes
from ledgerlog_spark.model import Code, DigestType, LedgerMetadata
from ledgerlog_spark.protocol.ledger.messages import StoredEntry
from ledgerlog_spark.protocol.ledger.quorum import write_set
from ledgerlog_spark.transport.port import BookieTransport, ReadEntry
from ledgerlog_spark.waits import forever

ENTRIES_AT_ONCE = 32
FINDINGS_MAX = 100

INTACT = "intact"
ABSENT = "absent"
DAMAGED = "damaged"
UNKNOWN = "unknown"
OUTCOMES = (INTACT, ABSENT, DAMAGED, UNKNOWN)
"""The possible outcomes of the read of a copy.

The outcome is `unknown` if the bookie did not answer, or if the digest of the copy cannot be
verified.
"""

OnProgress = Callable[[int], object]
"""A function that is called with the number of entries that have been read so far."""


@dataclass(slots=True)
class CopiesReport:
    """The result of reading all copies.

    Attributes:
        entries: Number of entries whose copies were read.
        by_bookie: Maps each bookie to the numbers of its copies with each outcome.
        fewest: The smallest number of intact copies of an entry, or None if there is no entry.
        differing: Number of entries whose intact copies differ.
        findings: Texts of the first findings, at most FINDINGS_MAX.
        findings_count: Number of all findings, also of those without a text.
    """

    entries: int = 0
    by_bookie: dict[str, Counter[str]] = field(default_factory=dict)
    fewest: int | None = None
    differing: int = 0
    findings: list[str] = field(default_factory=list)
    findings_count: int = 0

    def add(self, finding: str) -> None:
        """Count a finding.

        Add its text to `findings` unless there are FINDINGS_MAX texts already.
        """
        self.findings_count += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)


@dataclass(frozen=True, slots=True)
class _Copy:
    bookie_id: str
    outcome: str
    why: str
    entry: StoredEntry | None


class CopyReader:
    """Reads the copies of one ledger."""

    def __init__(
        self,
        transport: BookieTransport,
        ledger_id: int,
        metadata: LedgerMetadata,
        *,
        timeout_ms: int,
    ) -> None:
        """Create a reader. The read of one copy ends at the latest after `timeout_ms`."""
        self._transport = transport
        self._ledger_id = ledger_id
        self._metadata = metadata
        self._timeout_ms = timeout_ms
        self._bytes = LedgerBytes(ledger_id, metadata.digest_type, metadata.password)
        self.can_verify = metadata.has_password or metadata.digest_type is not DigestType.HMAC

    async def read(
        self, first_entry_id: int, last_entry_id: int, on_progress: OnProgress
    ) -> CopiesReport:
        """Read all copies of the entries from the first to the last entry id, both inclusive."""
        report = CopiesReport()
        for begin in range(first_entry_id, last_entry_id + 1, ENTRIES_AT_ONCE):
            ids = range(begin, min(begin + ENTRIES_AT_ONCE, last_entry_id + 1))
            for entry_id, copies in zip(
                ids, await asyncio.gather(*map(self._copies, ids)), strict=True
            ):
                self._compare(report, entry_id, copies)
            on_progress(report.entries)
        return report

    def _compare(self, report: CopiesReport, entry_id: int, copies: list[_Copy]) -> None:
        report.entries += 1
        intact = [copy for copy in copies if copy.outcome == INTACT]
        for copy in copies:
            report.by_bookie.setdefault(copy.bookie_id, Counter())[copy.outcome] += 1
            if copy.outcome != INTACT:
                report.add(f"entry {entry_id} on {copy.bookie_id}: {copy.why}")
        report.fewest = len(intact) if report.fewest is None else min(report.fewest, len(intact))
        contents = {(copy.entry.length, bytes(copy.entry.payload)) for copy in intact if copy.entry}
        if len(contents) > 1:
            report.differing += 1
            names = ", ".join(copy.bookie_id for copy in intact)
            report.add(f"entry {entry_id}: the copies on {names} have different contents")

    async def _copies(self, entry_id: int) -> list[_Copy]:
        ensemble = self._metadata.fragment_of(entry_id).ensemble
        names = [ensemble[index] for index in write_set(self._metadata.quorum, entry_id)]
        return await asyncio.gather(*(self._copy(name, entry_id) for name in names))

    async def _copy(self, bookie_id: str, entry_id: int) -> _Copy:
        done: asyncio.Future[tuple[Code, bytes | None]] = asyncio.get_running_loop().create_future()

        def on_reply(code: Code, stored: bytes | None) -> None:
            if not done.done():
                done.set_result((code, stored))

        request = ReadEntry(self._ledger_id, entry_id)
        self._transport.read(bookie_id, request, self._timeout_ms, on_reply)
        code, stored = await forever(done, "the transport answers each request by its deadline")
        if code is not Code.OK:
            is_absent = code.is_absent
            why = "the bookie does not have it" if is_absent else f"no answer ({code.value})"
            return _Copy(bookie_id, ABSENT if is_absent else UNKNOWN, why, None)
        if not self.can_verify:
            why = "the digest cannot be verified, because the metadata has no password"
            return _Copy(bookie_id, UNKNOWN, why, None)
        entry = self._bytes.verified(stored, entry_id)
        if entry is None:
            return _Copy(bookie_id, DAMAGED, "the copy is damaged, or of another entry", None)
        return _Copy(bookie_id, INTACT, "", entry)
