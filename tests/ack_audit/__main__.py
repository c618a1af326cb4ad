"""`python -m tests.ack_audit`: the audit, then a test of the audit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from ledgerlog_spark.local.zookeeper import ZooKeeperProcess
from tests.ack_audit.auditor import SENDS, SYNCS, WRITES, Auditor, Findings
from tests.ack_audit.load import drive
from tests.ack_audit.trace import moments

HONEST = "import runpy; runpy.run_module('bookie_server', run_name='__main__', alter_sys=True)"
NO_FSYNC = "import os; os.fdatasync = os.fsync = lambda descriptor: None; " + HONEST
STRING_BYTES_MAX = 64 << 20


def audit(directory: Path, uri: str, program: str) -> Findings:
    """Run one bookie under strace, load it, and read the trace."""
    directory.mkdir()
    trace = directory / "trace"
    command = ["strace", "-f", "-yy", "-xx", "-s", str(STRING_BYTES_MAX), "-o", str(trace)]
    command += ["-e", "trace=" + ",".join(sorted(WRITES | SYNCS | SENDS))]
    command += [sys.executable, "-c", program]
    command += ["--directory", str(directory / "bookie"), "--bookie-id", directory.name]
    command += ["--port", "0", "--metadata-service-uri", uri]
    command += ["--file-size-bytes", str(16 << 20)]
    with (directory / "log").open("wb") as log:
        bookie = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert bookie.stdout is not None
        line = bookie.stdout.readline()
        if not line:
            raise RuntimeError(f"the bookie did not start:\n{(directory / 'log').read_text()}")
        ready = json.loads(line)
        load = drive(ready["port"])
        os.kill(ready["pid"], signal.SIGTERM)
        bookie.wait(60)
    finally:
        bookie.kill()
        bookie.communicate()
    auditor = Auditor(load.entry_ledgers, load.fenced_ledgers, load.runs)
    for moment in moments(trace):
        auditor.take(moment)
    return auditor.findings


def main() -> int:
    """Return 0 if every answer followed its sync, and the mutation was detected."""
    if shutil.which("strace") is None:
        print("strace is not installed (Debian: apt install strace)")
        return 2
    with (
        tempfile.TemporaryDirectory(prefix="ledgerlog-audit-") as scratch,
        ZooKeeperProcess(Path(scratch) / "zookeeper") as server,
    ):
        honest = audit(Path(scratch) / "honest", server.service_uri, HONEST)
        mutant = audit(Path(scratch) / "mutant", server.service_uri, NO_FSYNC)
    for early in honest.early[:10]:
        print("answered before its sync:", *early)
    print(
        f"mutation no_fsync: {len(mutant.early):,} of {mutant.answers:,} answers early, "
        f"{'caught' if mutant.early else 'NOT caught'}"
    )
    print(
        f"{honest.answers:,} positive answers, {honest.syncs:,} syncs, "
        f"{len(honest.early)} before the sync that covers them"
    )
    return 0 if honest.answers and not honest.early and mutant.early else 1


if __name__ == "__main__":
    sys.exit(main())
