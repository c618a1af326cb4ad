"""Sweep all logs of a cluster once: `python -m tests.exactly_once.sweep URI`."""

from __future__ import annotations

import sys

import ledgerlog_spark as ll
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.log.blocking import BlockingLogs


def main() -> int:
    """Exit code 1 when something failed for good; what another change crossed is tried later."""
    with ll.connect(sys.argv[1]) as client:
        _, errors = BlockingLogs(client).sweep()
    return _judged(errors)


def _judged(errors: list[LedgerLogError]) -> int:
    for error in errors:
        print(f"sweep: {error!r}", file=sys.stderr)
    return 1 if any(not error.retriable for error in errors) else 0


if __name__ == "__main__":
    sys.exit(main())
