"""The option `--replicas` of `ledgerlog ledgers show`: compares the copies of each entry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ledgerlog_spark.cli.output import console, counted, picked, print_table, spinner
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.log.clients import BlockingLogClient
from ledgerlog_spark.model import LedgerMetadata
from ledgerlog_spark.tools.copies import OUTCOMES, CopiesReport, CopyReader, OnProgress


def read_copies(
    client: BlockingLogClient,
    ledger_id: int,
    metadata: LedgerMetadata,
    first_entry_id: int,
    last_entry_id: int,
) -> CopiesReport:
    """Read all copies of the entries from the first to the last entry id, both inclusive."""
    if metadata.is_closed and last_entry_id > metadata.last_entry_id:
        raise ConfigurationError(
            f"the last entry of ledger {ledger_id} is {metadata.last_entry_id}: "
            f"pass a --last of at most {metadata.last_entry_id}",
            ledger_id=ledger_id,
        )
    with _progress(last_entry_id - first_entry_id + 1) as on_progress:

        async def work(connected: LedgerClient) -> CopiesReport:
            services = connected.services
            reader = CopyReader(
                services.transport,
                ledger_id,
                metadata,
                timeout_ms=services.settings.read_timeout_ms,
            )
            return await reader.read(first_entry_id, last_entry_id, on_progress)

        return client.run(work)


@contextmanager
def _progress(total: int) -> Iterator[OnProgress]:
    with console.status("reading copies", spinner=spinner()) as status:
        yield lambda done: status.update(f"{done:,} of {total:,} entries read")


def copies_fields(report: CopiesReport) -> dict[str, Any]:
    """Return the fields of the report for `--json`."""
    return {
        **picked(report, "entries", "fewest", "differing", "findings_count", "findings"),
        "bookies": {
            name: {outcome: counts[outcome] for outcome in OUTCOMES}
            for name, counts in sorted(report.by_bookie.items())
        },
    }


def print_copies(ledger_id: int, report: CopiesReport) -> None:
    """Print the number of copies on each bookie, and the findings."""
    rows = [
        (name, *(counts[outcome] for outcome in OUTCOMES))
        for name, counts in sorted(report.by_bookie.items())
    ]
    print_table(f"copies of ledger {ledger_id}", ("bookie", *OUTCOMES), rows)
    for finding in report.findings:
        console.print(finding, soft_wrap=True)
    hidden = report.findings_count - len(report.findings)
    if hidden:
        console.print(f"{counted(hidden, 'further finding', 'further findings')}", soft_wrap=True)
    entries = counted(report.entries, "entry", "entries")
    verdict = (
        f"the entry with the fewest intact copies has {report.fewest} intact copies"
        if report.findings_count
        else "all copies are intact and equal"
    )
    console.print(f"{entries} read from each bookie that must have it: {verdict}", soft_wrap=True)
