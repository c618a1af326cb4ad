"""Runs a traced program, replays its trace into the model, and checks the promises of its marks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from bookie_server.errors import StorageError
from ledgerlog_spark.errors import StartupError
from ledgerlog_spark.model import Code
from tests.crash.machine import Machine, entry
from tests.device.model import Device, Inode
from tests.device.settings import SETTINGS, payload_of
from tests.device.trace import calls, command
from tests.sim.disk import Content

ROOT = Path(__file__).parents[2]
Left = dict[str, tuple[Inode, bytes]]


class LostError(AssertionError):
    """A promise does not hold after a power loss."""


def traced(directory: Path, script: str, seed: int, mistake: str = "") -> Path:
    """Run the program under strace, and return the path of its trace."""
    trace = directory / "trace"
    program = [sys.executable, "-m", "tests.device.program", str(directory / "data")]
    program += [str(directory / "marks"), script, str(seed), mistake]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [*command(trace), *program], env=environment, cwd=ROOT, capture_output=True, check=False
    )
    assert ended.returncode == 0, ended.stderr.decode()[-3_000:]
    return trace


class PortPromises:
    """The promises of the port about bytes, sizes and names."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._bytes: dict[Inode, dict[int, int]] = {}
        self._runs: dict[Inode, list[tuple[int, bytes]]] = {}
        self._sizes: dict[Inode, int] = {}
        self._names: dict[str, Inode | None] = {}
        self.count = 0

    def take(self, mark: dict[str, Any]) -> None:
        """Add or withdraw promises."""
        kind = mark["kind"]
        if kind == "names":
            for name in mark["names"]:
                self._names.pop(name, None)
            return
        if kind == "listing":
            self._names = dict.fromkeys(("a", "b", "c"))
            self._names.update({name: self._device.seen[name] for name in mark["names"]})
            self.count += 1
            return
        inode = self._device.seen[mark["name"]]
        self._runs.pop(inode, None)
        promised = self._bytes.setdefault(inode, {})
        if kind == "bytes":
            self.count += 1
            promised.update(enumerate(bytes.fromhex(mark["data"]), mark["offset"]))
        elif kind == "size":
            self._sizes[inode] = mark["size"]
        elif kind == "rewrite":
            size = mark["size"] if mark["size"] >= 0 else 1 << 30
            first, end = mark["offset"], mark["offset"] + size
            self._bytes[inode] = {at: b for at, b in promised.items() if not first <= at < end}
            if mark["size"] < 0:
                self._sizes.pop(inode, None)

    def check(self, left: Left) -> None:
        """Check one state that a power loss left."""
        for name, inode in self._names.items():
            found = left.get(name)
            if (found and found[0]) is not inode:
                raise LostError(f"the name {name} is not that of the last sync of the directory")
        contents = dict(left.values())
        for inode, promised in self._bytes.items():
            content = contents.get(inode)
            if content is None:
                continue  # its name was not synced
            if len(content) < self._sizes.get(inode, 0):
                raise LostError(f"a file has {len(content)} of {self._sizes[inode]} bytes")
            for offset, data in self._runs_of(inode, promised):
                if content[offset : offset + len(data)] != data:
                    raise LostError(f"bytes from {offset} to {offset + len(data) - 1} are lost")

    def _runs_of(self, inode: Inode, promised: dict[int, int]) -> list[tuple[int, bytes]]:
        """The promised bytes of a file in runs, each with its offset."""
        if inode not in self._runs:
            runs: list[tuple[int, bytearray]] = []
            for offset in sorted(promised):
                if not runs or offset != runs[-1][0] + len(runs[-1][1]):
                    runs.append((offset, bytearray()))
                runs[-1][1].append(promised[offset])
            self._runs[inode] = [(offset, bytes(data)) for offset, data in runs]
        return self._runs[inode]


class StoragePromises:
    """The answers of a bookie. A bookie is started on each state, and its entries are read."""

    def __init__(self, _device: Device) -> None:
        self._serves = False
        self._entries: list[tuple[int, int]] = []
        self._fences: set[int] = set()
        self._checked: set[int] = set()
        self.count = 0

    def take(self, mark: dict[str, Any]) -> None:
        """Add or withdraw promises."""
        self._checked.clear()
        self.count += 1
        kind = mark["kind"]
        if kind == "serves":
            self._serves = True
        elif kind == "entry":
            self._entries.append((mark["ledger_id"], mark["entry_id"]))
        elif kind == "fence":
            self._fences.add(mark["ledger_id"])
        else:
            self._entries = [each for each in self._entries if each[0] != mark["ledger_id"]]

    def check(self, left: Left) -> None:
        """Start a bookie on one state, and read everything that was acknowledged."""
        files = {name: content for name, (_, content) in left.items()}
        key = hash(tuple(sorted(files.items())))
        if key in self._checked or not self._serves:
            return
        self._checked.add(key)
        machine = Machine(1, settings=SETTINGS)
        for name, content in files.items():
            stored = Content()
            stored.seen, stored.durable = bytearray(content), bytearray(content)
            machine.disk.seen_names[name] = machine.disk.durable_names[name] = stored
        machine.is_new = False
        try:
            machine.start()
        except (StorageError, StartupError) as error:
            raise LostError(f"the bookie does not start: {error}") from error
        for ledger_id, entry_id in self._entries:
            expected = entry(ledger_id, entry_id, payload_of(ledger_id, entry_id))
            if machine.read(ledger_id, entry_id) != (Code.OK, expected):
                raise LostError(f"entry {entry_id} of ledger {ledger_id} is lost")
        if any(not machine.serving.is_fenced(ledger_id) for ledger_id in self._fences):
            raise LostError("a fence is lost")
        if machine.read(99, 0)[0] is not Code.NO_LEDGER:
            raise LostError("the bookie is in doubt")
        machine.scheduler.close()


PROMISES: dict[str, Callable[[Device], PortPromises | StoragePromises]] = {
    "port": PortPromises,
    "storage": StoragePromises,
}


def replay(directory: Path, script: str, seed: int, mistake: str = "") -> Counter[str]:
    """Trace one run and check states at every call.

    Raises:
        LostError: A promise does not hold in a state that a power loss may leave.
    """
    trace = traced(directory, script, seed, mistake)
    device, random = Device(directory / "data"), Random(seed)
    promises = PROMISES[script](device)
    seen: Counter[str] = Counter()
    for call in calls(trace):
        mark = device.take(call, directory / "marks")
        if mark is not None:
            promises.take(mark)
        elif not device.changed:
            continue
        seen["calls"] += 1
        for left in device.states(random):
            seen["states"] += 1
            try:
                promises.check(left)
            except LostError as error:
                error.add_note(f"after {call.name}{call.numbers}, call {seen['calls']}")
                raise
    files = {path.name: path.read_bytes() for path in (directory / "data").iterdir()}
    files.pop("LOCK")
    assert files == {name: inode.left(None, is_kept=True) for name, inode in device.seen.items()}
    seen["promises"], seen["syncs"] = promises.count, device.syncs
    return seen
