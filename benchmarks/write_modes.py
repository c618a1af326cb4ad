"""How fast does one writer append in each write mode, and how much do the devices write?

Each mode has a cluster of three bookies of its own. All clusters run at the same time. Each round
measures one cluster after the other. Ledgers have E3/Qw3/Qa2 and CRC32C. The journal is on the same
device as the entry log, so `journal` writes each byte twice to one device. The kernel counts the
written bytes (`write_bytes` in /proc/PID/io). The count ends after a checkpoint that follows the
last append.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import ledgerlog_spark as ll
from benchmarks.append import CASES, Case, stream
from benchmarks.machine import median
from benchmarks.options import parsed
from benchmarks.report import show_ratios
from ledgerlog_spark.local.zookeeper import ZooKeeperProcess

if TYPE_CHECKING:
    from ledgerlog_spark.client.blocking.client import BlockingClient

MODES = ("direct", "journal", "unjournaled")
CHECKPOINT_MS = 500
BOOKIES = 3
CASES_HERE = ("64 KiB entries", "1 KiB, append_async", "1 KiB, one at a time, p50")
BYTES_CASE = "64 KiB entries"
BYTES_MAX = {"direct": 1.05, "journal": 2.1, "unjournaled": 1.05}
RATIO_MIN = {("unjournaled", "1 KiB, one at a time, p50"): 1.2}


@dataclass
class Rig:
    """The bookies of one mode and a client."""

    client: BlockingClient
    processes: list[subprocess.Popen[str]]
    values: dict[str, list[float]] = field(default_factory=dict)
    written: list[float] = field(default_factory=list)

    def written_bytes(self) -> int:
        """Return the bytes that the kernel counted for the bookies."""
        total = 0
        for process in self.processes:
            lines = Path(f"/proc/{process.pid}/io").read_text().splitlines()
            total += int(dict(line.split(": ") for line in lines)["write_bytes"])
        return total


@contextmanager
def rig_of(mode: str, zookeeper: ZooKeeperProcess, directory: Path) -> Iterator[Rig]:
    """Run the bookies of a mode during the block, with a client."""
    uri = f"{zookeeper.service_uri}-{mode}"
    processes = []
    try:
        for number in range(BOOKIES):
            home = directory / f"{mode}-{number}"
            command = [sys.executable, "-m", "bookie_server", "--directory", str(home / "data")]
            command += ["--bookie-id", f"b{number}", "--port", "0", "--write-mode", mode]
            command += ["--metadata-service-uri", uri]
            command += ["--checkpoint-interval-ms", str(CHECKPOINT_MS)]
            if mode == "journal":
                (home / "journal").mkdir(parents=True)
                command += ["--journal-directory", str(home / "journal")]
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            processes.append(process)
            assert process.stdout is not None
            json.loads(process.stdout.readline())
        with ll.connect(uri) as client:
            yield Rig(client, processes)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def play(rig: Rig, case: Case, seconds: float) -> None:
    """Run one round of a case, and add its figures to the rig."""
    payload = bytes(case.size_bytes)
    before = rig.written_bytes()
    ledger = rig.client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
    value = case.run(ledger, payload, seconds)
    entries = ledger.last_add_confirmed + 1
    ledger.close()
    if case.run is stream and case.name == BYTES_CASE:
        time.sleep(3 * CHECKPOINT_MS / 1e3)
        stored = BOOKIES * entries * case.size_bytes
        rig.written.append((rig.written_bytes() - before) / stored)
    rig.client.delete_ledger(ledger.id)
    rig.values.setdefault(case.name, []).append(value)


def main() -> None:
    """Measure the modes in turn, and print the ratios to `direct` and the written bytes."""
    options = parsed(__doc__)
    cases = [case for case in CASES if case.name in CASES_HERE]
    with ExitStack() as stack:
        folder = options.directory or stack.enter_context(tempfile.TemporaryDirectory())
        zookeeper = stack.enter_context(ZooKeeperProcess(Path(folder) / "zookeeper"))
        rigs = {mode: stack.enter_context(rig_of(mode, zookeeper, Path(folder))) for mode in MODES}
        for rig in rigs.values():
            for case in cases:
                play(rig, case, min(1.0, options.seconds))
            rig.values.clear()
            rig.written.clear()
        for _ in range(options.rounds):
            for case in cases:
                for rig in rigs.values():
                    play(rig, case, options.seconds)
    rows = []
    for mode in MODES[1:]:
        for case in cases:
            pairs = list(
                zip(rigs[mode].values[case.name], rigs["direct"].values[case.name], strict=True)
            )
            ratios = sorted(b / a if case.lower_is_better else a / b for a, b in pairs)
            name = f"{mode}: {case.name}, speed to direct"
            rows.append((name, median(ratios), ratios[0], ratios[-1], len(ratios)))
    show_ratios("Write modes", rows, 0.0, as_json=options.json)
    rows = [
        (
            f"{mode}: bytes written per byte stored (at most {BYTES_MAX[mode]})",
            median(rig.written),
            min(rig.written),
            max(rig.written),
            len(rig.written),
        )
        for mode, rig in rigs.items()
    ]
    show_ratios("Written bytes, 64 KiB entries", rows, 0.0, as_json=options.json)


if __name__ == "__main__":
    main()
