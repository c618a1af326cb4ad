"""Sweep all logs of a cluster once: `python -m tests.exactly_once.sweep URI`."""

from __future__ import annotations

import sys

import ledgerlog_spark as ll
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.log.logs import logs_of
from ledgerlog_spark.log.maintenance.sweeper import Sweeper

PAGES_GRACE_MS = 1_000
"""Usually an hour, so that running commits need not restart. Here, no commit is running."""


def main() -> int:
    """Return 1 after a permanent failure. Steps that conflict with other changes run later."""
    with ll.connect(sys.argv[1]) as client:
        return _judged(client.run(_sweep))


async def _sweep(client: LedgerClient) -> list[LedgerLogError]:
    store = logs_of(client).store
    sweeper = Sweeper(store=store, ledgers=client, pages_grace_ms=PAGES_GRACE_MS)
    _, errors = await sweeper.sweep_all()
    return errors


def _judged(errors: list[LedgerLogError]) -> int:
    for error in errors:
        print(f"sweep: {error!r}", file=sys.stderr)
    return 1 if any(not error.retriable for error in errors) else 0


if __name__ == "__main__":
    sys.exit(main())
