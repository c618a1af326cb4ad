"""Power loss at any moment: nothing promised is lost, nothing unwritten appears."""

from __future__ import annotations

from collections import Counter

import pytest

from bookie_server.core.durability import Durability
from bookie_server.core.record import RecordKind
from bookie_server.storage.log import Log
from bookie_server.storage.manifest import ManifestStore
from ledgerlog_spark.model import Code
from tests.crash.machine import Machine, entry
from tests.crash.model import Run, ViolationError
from tests.sim.disk import SimFile, SimFileSystem

SEEDS = 160
MUTATION_SEEDS = 40


@pytest.mark.parametrize("part", range(4))
def test_storage_keeps_its_promises_over_random_power_losses(part):
    seen: Counter[str] = Counter()
    for seed in range(part, SEEDS, 4):
        run = Run(seed)
        try:
            run.run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        seen += run.seen
    # A run that never meets these would prove little.
    for mark in ("rolls", "torn_tails", "rewritten_records", "replayed_records", "add_overlap",
                 "adds_repeated", "boots_cut_short"):  # fmt: skip
        assert seen[mark] > 0, (mark, seen)


def violations(seeds: int) -> list[str]:
    found = []
    for seed in range(seeds):
        try:
            Run(seed).run()
        except ViolationError as violation:
            found.append(str(violation))
    return found


def test_mutation_no_fsync_is_caught(monkeypatch):
    async def no_sync(self: SimFile) -> None:
        await self.files.step(f"sync {self.name}")

    monkeypatch.setattr(SimFile, "datasync", no_sync)
    found = 0
    for seed in range(MUTATION_SEEDS):
        try:
            Run(seed).run()
        except Exception:  # noqa: BLE001 - without syncs even the MANIFEST may be torn
            found += 1
    assert found


def test_mutation_fence_not_durable_is_caught(monkeypatch):
    # Waits for every add before the fence, but not for the fence itself.
    monkeypatch.setattr(Durability, "fence_waits_for", lambda _self, state: state.last_ticket - 1)
    assert violations(MUTATION_SEEDS)


def test_mutation_fence_skips_queue_is_caught(monkeypatch):
    submit = Log.submit

    def jump(self: Log, record) -> int:
        if record.kind is not RecordKind.FENCE or not self._queue:
            return submit(self, record)
        submit(self, record)
        self._queue.appendleft(self._queue.pop())
        first = self._queue[1].ticket
        for number, queued in enumerate(self._queue):
            queued.ticket = first + number
        return record.ticket

    monkeypatch.setattr(Log, "submit", jump)
    assert violations(MUTATION_SEEDS)


def test_mutation_manifest_named_before_its_state_file_is_caught(monkeypatch):
    syncs = SimFileSystem.sync_directory
    write = ManifestStore._write

    async def write_and_skip(self: ManifestStore, name: str, data: bytes) -> None:
        await write(self, name, data)
        self.skips = name.startswith("ledgers-")

    async def skip(self: SimFileSystem) -> None:
        if getattr(skip, "store", None) is not None and skip.store.skips:
            skip.store.skips = False
            return
        await syncs(self)

    init = ManifestStore.__init__

    def remember(self: ManifestStore, files) -> None:
        init(self, files)
        self.skips = False
        skip.store = self

    monkeypatch.setattr(ManifestStore, "__init__", remember)
    monkeypatch.setattr(ManifestStore, "_write", write_and_skip)
    monkeypatch.setattr(SimFileSystem, "sync_directory", skip)
    found = 0
    for seed in range(600):
        try:
            Run(seed).run()
        except Exception:  # noqa: BLE001 - the directory then refuses to start
            found += 1
            break
    assert found


class PowerCutError(Exception):
    """Raised at the chosen operation of the disk."""


@pytest.mark.parametrize("remainder", range(4))
def test_power_loss_at_each_operation_of_a_script_keeps_what_was_answered(remainder):
    operations = Machine(1)
    script_into(operations, {"adds": {}})
    total = operations.disk.counters.operations
    assert total > 150
    for crash_at in range(1 + remainder, total + 1, 4):
        machine = Machine(crash_at)

        def cut(number: int, _name: str, crash_at: int = crash_at) -> None:
            if number == crash_at:
                raise PowerCutError

        answered = {"adds": {}, "fenced": False}
        machine.disk.on_operation = cut
        try:
            script_into(machine, answered)
        except PowerCutError:
            pass
        else:
            continue
        machine.disk.on_operation = None
        machine.lose_power()
        machine.start()
        for number, stored in answered["adds"].items():
            assert machine.read(1, number) == (Code.OK, stored), (crash_at, number)
        if answered["fenced"]:
            assert machine.add(2, (0,)) is Code.FENCED, crash_at
        if "late" in answered:
            assert machine.read(3, 0) == (Code.OK, answered["late"])
        machine.stop()


def script_into(machine: Machine, answered: dict[str, object]) -> None:
    """Adds, a fence, rolls, a clean stop and a start; notes what was answered."""
    adds = answered["adds"]
    machine.start()
    for number in range(40):
        payload = b"%d" % number * 300 if number < 6 else bytes(2_500)
        assert machine.add(1, (number,), payload) is Code.OK
        adds[number] = entry(1, number, payload)
        if number == 6:
            assert machine.fence(2)[0].is_absent
            answered["fenced"] = True
    machine.scheduler.run_for(200)
    machine.stop()
    machine.start()
    assert machine.add(3, (0,), b"after") is Code.OK
    answered["late"] = entry(3, 0, b"after")
