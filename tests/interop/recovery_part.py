"""One part of our auto-recovery, which runs both parts.

`python -m tests.interop.recovery_part auditor|worker ID URI`
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from ledgerlog_spark.autorecovery.composed import AutoRecovery
from ledgerlog_spark.composition import metadata


async def main(part: str, member_id: str, uri: str) -> None:
    """Run the part until the process is killed, and print what it reports."""
    async with metadata(uri) as stores:
        recovery = AutoRecovery(member_id, stores, _report)
        runs = {"auditor": recovery.auditor.run, "worker": recovery.worker.run}
        await runs[part]()


def _report(event: str, subject: Any) -> None:
    sys.stdout.write(f"{event} {subject}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
