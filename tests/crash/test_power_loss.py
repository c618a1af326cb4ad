"""Power loss at any moment: no acknowledged entry is lost, and no unwritten entry appears."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from bookie_server.core.ledger_state import encode_states
from bookie_server.core.manifest_codec import Manifest, manifest_encoding
from bookie_server.core.record import JournalRecord, JournalRecordKind
from bookie_server.core.settings import StorageSettings
from bookie_server.errors import DiskFullError
from bookie_server.ports import Priority
from bookie_server.storage import fences
from bookie_server.storage.boot import Boot
from bookie_server.storage.fences import Fences
from bookie_server.storage.files import manifest
from bookie_server.storage.files.keeper import FileKeeper
from bookie_server.storage.files.manifest import ManifestStore
from bookie_server.storage.files.slots import Slots
from bookie_server.storage.journal import Journal
from bookie_server.storage.reading.reads import Reader
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, add_request, entry
from tests.crash.run import Run
from tests.crash.seeds import SEEDS, play_all
from tests.sim.caught import seeds
from tests.sim.disk import SimFile, SimFileSystem

ONE_SPARE = replace(SMALL, pool_files_max=2)
MUTATION_SEEDS = 400


@pytest.mark.parametrize("part", range(4))
def test_storage_keeps_its_promises_over_random_power_losses(part: int) -> None:
    def play(seed: int) -> Counter[str]:
        run = Run(seed)
        run.run()
        return run.seen

    marks = (
        *("rolls", "torn_tails", "rewritten_records", "replayed_records", "boots_cut_short"),
        *("add_overlap", "adds_repeated", "drops", "forgotten", "freed", "recycled"),
    )
    play_all(range(part, SEEDS, 4), play, marks)


def first_failure(mutation: str, seeds_max: int, *kinds: type[BaseException]) -> str | None:
    """Return the first failure that is one of these errors. Any other error is raised."""
    for seed in seeds(f"crash {mutation}", seeds_max):
        try:
            Run(seed).run()
        except kinds as error:
            return repr(error)
    return None


def first_violation(mutation: str) -> str | None:
    return first_failure(mutation, MUTATION_SEEDS, AssertionError)


def broken_start(mutation: str, seeds_max: int = MUTATION_SEEDS) -> str | None:
    """A directory that has lost its states can fail in many ways.

    A mutation that does not fit the code any more ends with a TypeError or an AttributeError, which
    would prove nothing.
    """
    return first_failure(mutation, seeds_max, AssertionError, LedgerLogError)


def test_mutation_no_fsync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_sync(self: SimFile, _priority: Priority = Priority.FOREGROUND) -> None:
        await self.files.step(f"sync {self.name}")

    monkeypatch.setattr(SimFile, "datasync", no_sync)
    assert broken_start("no_fsync")


def test_mutation_group_that_overtakes_the_one_before_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SimFile, "write_synced", SimFile.write_synced_out_of_turn)
    assert first_violation("group_that_overtakes_the_one_before")


def test_mutation_fence_not_durable_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    # Waits for every add before the fence, but not for the fence itself.
    monkeypatch.setattr(fences, "barrier_of", lambda state: state.last_ticket - 1)
    assert first_violation("fence_not_durable")


def test_mutation_fence_skips_queue_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    submit = Journal.submit

    def jump(self: Journal, record: JournalRecord) -> int:
        if record.kind is not JournalRecordKind.FENCE or not self._queue:
            return submit(self, record)
        submit(self, record)
        self._queue.appendleft(self._queue.pop())
        first = self._queue[1].ticket
        for number, queued in enumerate(self._queue):
            queued.ticket = first + number
        return record.ticket

    monkeypatch.setattr(Journal, "submit", jump)
    assert first_violation("fence_skips_queue")


def test_mutation_manifest_named_before_its_state_file_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rename, sync = SimFileSystem.rename, SimFileSystem.sync_directory

    unchanged: set[SimFileSystem] = set()

    async def sync_after_renames(self: SimFileSystem) -> None:
        if self not in unchanged:
            unchanged.add(self)
            await sync(self)

    async def rename_and_note(self: SimFileSystem, source: str, target: str) -> None:
        unchanged.discard(self)
        await rename(self, source, target)

    monkeypatch.setattr(SimFileSystem, "rename", rename_and_note)
    monkeypatch.setattr(SimFileSystem, "sync_directory", sync_after_renames)
    # Each commit writes a new state file.
    settings = replace(ONE_SPARE, state_deltas_bytes_min=1)
    with pytest.raises(AssertionError, match=r"the name of ledgers-.* is not durable"):
        cut_at_each_operation(drop_script_into, None, lambda *_: None, settings)


def test_mutation_delta_unnamed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect: the MANIFEST contains the previous size of the state file."""
    encode = manifest_encoding
    named: dict[str, int] = {}

    def encode_before(after: Manifest, *arguments: int) -> Any:
        size = named.setdefault(after.state_file, after.state_bytes)
        return encode(replace(after, state_bytes=size), *arguments)

    monkeypatch.setattr(manifest, "manifest_encoding", encode_before)
    assert first_violation("delta_unnamed")


def test_mutation_change_that_is_not_noted_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect: fences do not count as changes, so they are not appended."""
    fence = Fences.fence

    def fence_unnoted(self: Fences, ledger_id: int, *arguments: Any) -> None:
        states = self._shared.states
        before = set(states.changed)
        fence(self, ledger_id, *arguments)
        states.changed -= {ledger_id} - before

    monkeypatch.setattr(Fences, "fence", fence_unnoted)
    assert first_violation("change_that_is_not_noted")


def test_mutation_states_of_an_aborted_commit_are_forgotten_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The defect: the changes are forgotten if a commit fails on a full disk."""
    commit = ManifestStore.commit

    async def commit_and_forget(self: ManifestStore, compose: Any, states: Any) -> None:
        try:
            await commit(self, compose, states)
        except DiskFullError:
            states.changed.clear()
            raise

    monkeypatch.setattr(ManifestStore, "commit", commit_and_forget)
    machine = fenced_over_a_full_disk()
    with pytest.raises(AssertionError, match=r"not noted: \{1"):
        machine.check_states()


def fenced_over_a_full_disk() -> Machine:
    """A bookie that fenced ledger 1 while its disk was full; the disk has room again."""
    machine = Machine(3, settings=replace(SMALL, free_bytes_min=0))
    machine.start()
    assert machine.add(1, (0,)) is Code.OK
    for start in range(30):
        assert machine.add(2, (start,), bytes(3_000)) is Code.OK
    assert machine.fence(1)[0] is Code.OK
    machine.disk.faults.capacity_bytes = machine.disk.used_bytes()
    machine.scheduler.run(machine.serving._keeper.commit_soon(), machine.host)
    machine.disk.faults.capacity_bytes = None
    machine.scheduler.run_for(2 * SMALL.allocation_retry_ms)
    return machine


def test_states_of_a_commit_that_found_no_room_are_in_the_next_one() -> None:
    machine = fenced_over_a_full_disk()
    machine.check_states()
    machine.stop()
    stored = machine.stored_states()
    assert stored[1].is_fenced
    machine.start()
    assert machine.add(1, (1,)) is Code.FENCED


def test_mutation_state_file_without_tombstones_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(generation: int, states: Any, ids: Sequence[int], version: int) -> bytes:
        before = {ledger_id: copy(state) for ledger_id, state in states.items()}
        for state in before.values():
            state.tombstone = 0
        return encode_states(generation, before, ids, version)

    monkeypatch.setattr(manifest, "encode_states", encode)
    assert first_violation("state_file_without_tombstones")


def test_mutation_replay_without_tombstones_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Boot, "_is_live", lambda _self, record: record.kind is JournalRecordKind.RUN
    )
    init = Reader.__init__

    def forget(self: Reader, *arguments: Any) -> None:
        init(self, *arguments)
        self._tombstone_of = lambda ledger_id: 0  # noqa: ARG005

    monkeypatch.setattr(Reader, "__init__", forget)
    assert first_violation("replay_without_tombstones")


def test_mutation_slot_used_before_the_manifest_lists_it_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The defect: the next file uses a slot that the durable MANIFEST does not list as free."""
    prepare = Slots.prepare

    async def prepare_early(
        self: Slots, file_id: int, free_slot: str | None, **options: Any
    ) -> Any:
        dead = self.keeper.finished.dead(set()) if hasattr(self, "keeper") else []
        return await prepare(self, file_id, dead[0].entry.slot if dead else free_slot, **options)

    init = FileKeeper.__init__

    def remember(self: FileKeeper, shared: Any, boot: Any, *rest: Any) -> None:
        init(self, shared, boot, *rest)
        boot.slots.keeper = self

    monkeypatch.setattr(Slots, "prepare", prepare_early)
    monkeypatch.setattr(FileKeeper, "__init__", remember)
    assert broken_start("slot_used_before_the_manifest_lists_it", SEEDS)


Answered = dict[str, Any]


class PowerCutError(Exception):
    """Raised at the chosen operation of the disk."""


def cut_at_each_operation(
    script: Callable[[Machine, Answered], None],
    remainder: int | None,
    check: Callable[[Machine, Answered, int], None],
    settings: StorageSettings = ONE_SPARE,
) -> None:
    """Play a script once for every fourth operation: lose power there, start and check.

    Without a remainder, play it for all operations. At least one crash must come after an answer
    that the script recorded. Otherwise nothing was checked.
    """
    whole = Machine(1, settings=settings)
    answered_at_the_end: Answered = {}
    script(whole, answered_at_the_end)
    noted: set[str] = set()
    total = whole.disk.counters.operations
    assert total > 150
    numbers = range(1, total + 1) if remainder is None else range(1 + remainder, total + 1, 4)
    for crash_at in numbers:
        machine = Machine(crash_at, settings=settings)

        def cut(number: int, _name: str, crash_at: int = crash_at) -> None:
            if number == crash_at:
                raise PowerCutError

        answered: Answered = {}
        machine.disk.on_operation = cut
        try:
            script(machine, answered)
        except PowerCutError:
            noted |= answered.keys()
        else:
            assert machine.disk.counters.operations < crash_at, "not cut"
            continue
        machine.disk.on_operation = None
        machine.lose_power()
        machine.start()
        check(machine, answered, crash_at)
        machine.stop()
    assert noted == answered_at_the_end.keys()


@pytest.mark.parametrize("remainder", range(4))
def test_power_loss_at_each_operation_of_a_script_keeps_what_was_answered(remainder: int) -> None:
    def check(machine: Machine, answered: Answered, crash_at: int) -> None:
        for number, stored in answered.get("adds", {}).items():
            assert machine.read(1, number) == (Code.OK, stored), (crash_at, number)
        if "fenced" in answered:
            assert machine.add(2, (0,)) is Code.FENCED, crash_at
        if "late" in answered:
            assert machine.read(3, 0) == (Code.OK, answered["late"])

    cut_at_each_operation(script_into, remainder, check)


def script_into(machine: Machine, answered: Answered) -> None:
    """A script with adds, a fence, rolls, a clean stop, a start and a last stop.

    It records the answers.
    """
    adds = answered["adds"] = {}
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
    machine.stop()


@pytest.mark.parametrize("remainder", range(4))
def test_power_loss_at_each_operation_of_dropping_and_recycling_keeps_what_was_answered(
    remainder: int,
) -> None:
    def check(machine: Machine, answered: Answered, crash_at: int) -> None:
        old = {number: machine.read(1, number) for number in answered.get("old", ())}
        gone = {number for number, answer in old.items() if answer == (Code.NO_ENTRY, None)}
        kept = {n for n, stored in answered.get("old", {}).items() if old[n] == (Code.OK, stored)}
        assert gone | kept == set(old), crash_at
        assert not gone or not kept, (crash_at, gone, kept)
        if "dropped" in answered:
            assert not kept, crash_at
            assert machine.add(1, (99,)) is Code.FENCED, crash_at
        for number, stored in answered.get("new", {}).items():
            assert machine.read(2, number) == (Code.OK, stored), (crash_at, number)
        if "back" in answered:
            assert machine.read(1, 50) == (Code.OK, answered["back"]), crash_at
        manifest = machine.manifest()
        named = {file.slot for file in manifest.files} | set(manifest.free_slots)
        assert machine.slots() == named, crash_at

    cut_at_each_operation(drop_script_into, remainder, check)


def drop_script_into(machine: Machine, answered: Answered) -> None:
    """A script with adds to several files, a drop, a recovery add, and adds to recycled files."""
    old, new = answered.setdefault("old", {}), answered.setdefault("new", {})
    machine.start()
    for number in range(36):
        assert machine.add(1, (number,), bytes(2_500)) is Code.OK
        old[number] = entry(1, number, bytes(2_500))
    assert machine.drop(1) is Code.OK
    answered["dropped"] = True
    assert machine.add(1, (50,), b"back", is_recovery=True) is Code.OK
    answered["back"] = entry(1, 50, b"back")
    machine.reclaim()
    for number in range(24):
        assert machine.add(2, (number,), b"%d" % number * 900) is Code.OK
        new[number] = entry(2, number, b"%d" % number * 900)
    assert machine.serving.counters.files_recycled
    machine.scheduler.run_for(200)
    machine.stop()
    machine.start()


def test_of_a_torn_group_everything_before_the_tear_is_kept_and_nothing_after_it() -> None:
    holes = 0
    for seed in range(60):
        machine = Machine(seed)
        machine.start()
        for number in range(9):
            # The first record is a separate group, and the other records wait for it.
            machine.serving.add(add_request(1, (number,), bytes(600)), lambda _code: None)
        machine.scheduler.run_until(
            partial(lambda machine: unsynced_bytes(machine) > 4_000, machine)
        )
        machine.lose_power()
        machine.start()
        held = [machine.read(1, number)[0] is Code.OK for number in range(9)]
        assert held == sorted(held, reverse=True), (seed, held)
        holes += machine.serving.counters.boot_torn_tails
        machine.stop()
    assert holes > 5


def unsynced_bytes(machine: Machine) -> int:
    contents = machine.disk.seen_names.values()
    return max(sum(len(data) for _, data in content.unsynced) for content in contents)
