"""The answers of a bookie in doubt: nothing is denied, and everything that it has is served."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from bookie_server.core.doubt import Doubt
from bookie_server.core.manifest_codec import FileState
from bookie_server.core.record import NO_KEY
from bookie_server.core.requests import StoredRead, StoredReads
from bookie_server.core.slot_header import RECORDS_START
from bookie_server.errors import StorageError
from bookie_server.ports import MetadataAnswer, Standing
from bookie_server.storage.limbo import denials
from ledgerlog_spark.model import NO_ENTRY, Code
from tests.crash.machine import KEY, Machine, encode_manifest, entry, is_cut

OLD, NEW = 1, 2
AFTER_THE_LOSS = 100


def started(**options: Any) -> Machine:
    """A bookie with entries of one ledger."""
    machine = Machine(1, **options)
    machine.start()
    assert machine.add(OLD, range(3)) is Code.OK
    return machine


def raise_doubt(machine: Machine, transaction: int = 0) -> None:
    """Begin a doubt, and date it with a transaction unless that is 0."""
    storage = machine.serving
    machine.scheduler.run(storage.raise_doubt(), machine.host)
    if transaction:
        epoch = storage.doubt.epoch
        machine.scheduler.run(storage.date_doubt(epoch, transaction), machine.host)


def read_together(machine: Machine, ledger_id: int, ids: tuple[int, ...]) -> dict[int, Code]:
    codes: dict[int, Code] = {}

    def on_some(code: Code, entry_ids: Any, _entries: Any) -> None:
        codes.update(dict.fromkeys(entry_ids, code))

    done = 0
    while done < len(ids):
        request = StoredReads(ledger_id, ids[done:])
        done += machine.serving.read_together(request, on_some)
    machine.scheduler.run_until(lambda: len(codes) == len(ids))
    return codes


def answers(machine: Machine, ledger_id: int, entry_id: int) -> list[Code]:
    """The codes of all requests that may deny that an entry exists."""
    held = machine.held(ledger_id)
    return [
        machine.read(ledger_id, entry_id)[0],
        machine.read(ledger_id, entry_id, is_recovery=True)[0],
        machine.read_batch(ledger_id, entry_id)[0],
        machine.read_slices(ledger_id, [(entry_id, [(0, 8)])])[0],
        read_together(machine, ledger_id, (entry_id,))[entry_id],
        Code.IO_ERROR if isinstance(held, StorageError) else Code.NO_ENTRY,
    ]


def test_in_limbo_nothing_is_denied_and_what_is_held_is_served() -> None:
    machine = started()
    raise_doubt(machine)
    assert machine.read(OLD, 1) == (Code.OK, entry(OLD, 1, b"payload"))
    for ledger_id in (OLD, NEW):
        assert set(answers(machine, ledger_id, 9)) == {Code.IO_ERROR}
        assert machine.read(ledger_id, NO_ENTRY)[0] is Code.IO_ERROR
        lac = partial(machine.serving.read_lac, ledger_id)
        assert machine.ask(lac) == (Code.IO_ERROR, NO_ENTRY)
    assert read_together(machine, OLD, (0, 1, 9)) == {
        0: Code.OK,
        1: Code.OK,
        9: Code.IO_ERROR,
    }
    assert machine.metadata.asked == [], "without a date, nothing can be newer than the loss"


@pytest.mark.parametrize("ledger_id", [OLD, NEW])
def test_a_fence_in_limbo_is_durable_and_answers_unknown(ledger_id: int) -> None:
    machine = started()
    raise_doubt(machine)
    assert machine.fence(ledger_id)[0] is Code.IO_ERROR
    machine.lose_power()
    machine.start()
    assert machine.serving.is_fenced(ledger_id)


def test_a_doubt_is_durable_and_stays_after_a_clean_stop_and_a_power_loss() -> None:
    machine = started()
    raise_doubt(machine)
    check_epoch = machine.serving._health.check_epoch
    machine.lose_power()
    machine.start()
    machine.stop()
    machine.start()
    assert machine.serving.doubt == Doubt(epoch=1)
    assert machine.serving._health.check_epoch >= check_epoch == 1
    assert set(answers(machine, OLD, 9)) == {Code.IO_ERROR}


def test_a_ledger_that_a_later_transaction_created_is_clear() -> None:
    machine = started()
    raise_doubt(machine, transaction=50)
    machine.metadata.created = {OLD: 50, NEW: 51}
    assert set(answers(machine, OLD, 9)) == {Code.IO_ERROR}
    assert set(answers(machine, NEW, 9)) <= {Code.NO_LEDGER, Code.NO_ENTRY}
    assert machine.metadata.asked == [OLD, NEW], "each is read once"
    assert machine.add(NEW, (0,)) is Code.OK
    assert set(answers(machine, NEW, 9)) == {Code.NO_ENTRY}
    assert machine.fence(NEW) == (Code.OK, entry(NEW, 0, b"payload"))


def test_the_first_add_of_a_ledger_reads_its_creation_too() -> None:
    machine = started()
    raise_doubt(machine, transaction=50)
    machine.metadata.created = {NEW: 51}
    assert machine.add(NEW, (0,)) is Code.OK
    assert machine.read(NEW, 1)[0] is Code.NO_ENTRY
    assert machine.metadata.asked == [NEW]


def test_what_is_newer_than_one_loss_is_not_newer_than_the_next() -> None:
    machine = started()
    machine.metadata.created = {NEW: 51}
    raise_doubt(machine, transaction=50)
    assert machine.read(NEW, 0)[0] is Code.NO_LEDGER
    raise_doubt(machine)
    assert machine.read(NEW, 0)[0] is Code.IO_ERROR
    machine.scheduler.run(machine.serving.date_doubt(1, 40), machine.host)
    assert machine.read(NEW, 0)[0] is Code.IO_ERROR, "the date of another epoch"
    machine.scheduler.run(machine.serving.date_doubt(2, 60), machine.host)
    assert machine.read(NEW, 0)[0] is Code.IO_ERROR


def paused_check(machine: Machine) -> list[Any]:
    """Let each answer of the metadata store wait."""
    waiting: list[Any] = []

    async def pause() -> None:
        future = machine.host.future()
        waiting.append(future)
        await future

    machine.metadata.pause = pause
    return waiting


def test_an_answer_of_the_store_covers_no_later_loss() -> None:
    machine = started()
    machine.metadata.created = {NEW: 51}
    raise_doubt(machine, transaction=50)
    waiting = paused_check(machine)
    codes: list[Code] = []
    machine.host.spawn("read", _read(machine, codes))
    machine.scheduler.run_until(lambda: bool(waiting))
    machine.metadata.pause = None
    raise_doubt(machine)
    waiting[0].set_result(None)
    machine.scheduler.run_until(lambda: bool(codes))
    assert codes == [Code.IO_ERROR]


async def _read(machine: Machine, codes: list[Code]) -> None:
    machine.serving.read(StoredRead(NEW, 0), lambda code, _data: codes.append(code))


def test_an_entry_that_is_stored_during_the_comparison_is_returned() -> None:
    machine = started()
    machine.metadata.created = {OLD: 51}
    raise_doubt(machine, transaction=50)
    waiting = paused_check(machine)
    codes: dict[int, Code] = {}
    request = StoredReads(OLD, (9, 10))

    def on_some(code: Code, ids: Any, _entries: Any) -> None:
        codes.update(dict.fromkeys(ids, code))

    machine.serving.read_together(request, on_some)
    machine.scheduler.run_until(lambda: bool(waiting))
    machine.metadata.pause = None
    assert machine.add(OLD, (9,), is_recovery=True) is Code.OK
    waiting[0].set_result(None)
    machine.scheduler.run_until(lambda: len(codes) == 2)
    assert codes == {9: Code.OK, 10: Code.NO_ENTRY}


def test_without_an_answer_of_the_store_the_answer_is_unknown_and_the_next_read_tries_again() -> (
    None
):
    machine = started(standing=Standing.UNKNOWN)
    machine.metadata.created = {NEW: 51}
    raise_doubt(machine, transaction=50)
    assert machine.read(NEW, 0)[0] is Code.IO_ERROR
    machine.metadata.standing = Standing.OPEN_WITH_ME
    assert machine.read(NEW, 0)[0] is Code.NO_LEDGER


def test_records_are_read_for_a_limited_number_of_ledgers_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(denials, "QUESTIONS_MAX", 2)
    machine = started()
    raise_doubt(machine, transaction=50)
    waiting = paused_check(machine)
    codes: dict[int, Code] = {}

    def note(ledger_id: int, code: Code, _lac: int) -> None:
        codes[ledger_id] = code

    for ledger_id in (2, 3, 2, 4):
        machine.serving.read_lac(ledger_id, partial(note, ledger_id))
    assert codes == {4: Code.IO_ERROR}
    machine.scheduler.run_until(lambda: len(waiting) == 2)
    for each in waiting:
        each.set_result(None)
    machine.scheduler.run_until(lambda: len(codes) == 3)


def test_a_forgotten_comparison_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denials, "COMPARED_MAX", 2)
    machine = started()
    raise_doubt(machine, transaction=50)
    machine.metadata.created = dict.fromkeys(range(10, 16), 51)
    for ledger_id in (*range(10, 16), 10):
        assert machine.read(ledger_id, 0)[0] is Code.NO_LEDGER
    assert machine.metadata.asked == [*range(10, 16), 10]
    assert len(machine.serving._shared.newer) == 2


@pytest.mark.parametrize(
    ("standing", "code"),
    [
        (Standing.OPEN_WITH_ME, Code.OK),
        (Standing.OPEN_WITHOUT_ME, Code.IO_ERROR),
        (Standing.NOT_WRITABLE, Code.FENCED),
        (Standing.UNKNOWN, Code.IO_ERROR),
    ],
)
def test_the_first_add_of_each_ledger_after_a_loss_reads_its_record(
    standing: Standing, code: Code
) -> None:
    machine = started()
    raise_doubt(machine)
    machine.metadata.standing = standing
    assert machine.add(OLD, (9,)) is code
    assert machine.metadata.asked == [OLD]
    assert machine.add(OLD, (10,), is_recovery=True) is Code.OK
    assert machine.read(OLD, 10)[0] is Code.OK
    assert machine.read(OLD, 11)[0] is Code.IO_ERROR, "it stays in limbo"


def test_a_check_that_a_loss_overtakes_reads_the_record_again() -> None:
    machine = started()
    raise_doubt(machine)
    standings = [Standing.OPEN_WITH_ME, Standing.NOT_WRITABLE]
    raised: list[int] = []

    async def check(ledger_id: int) -> MetadataAnswer:
        machine.metadata.asked.append(ledger_id)
        if not raised:
            raised.append(1)
            await machine.serving.raise_doubt()
        return MetadataAnswer(standings.pop(0), 1)

    machine.metadata.check = check
    assert machine.add(OLD, (9,)) is Code.FENCED
    assert machine.metadata.asked == [OLD, OLD]
    assert standings == []


def test_the_check_of_one_epoch_does_not_count_for_the_next() -> None:
    machine = started()
    raise_doubt(machine)
    assert machine.add(OLD, (9,)) is Code.OK
    raise_doubt(machine)
    assert machine.add(OLD, (10,)) is Code.OK
    assert machine.metadata.asked == [OLD, OLD]


def clear(machine: Machine, ledger_id: int, epoch: int, lac: int = NO_ENTRY) -> None:
    clearing = machine.serving.clear_ledger(ledger_id, epoch, lac)
    assert machine.scheduler.run(clearing, machine.host) is Code.OK


def test_a_cleared_ledger_is_clear_after_a_power_loss_and_not_after_the_next_loss() -> None:
    machine = started()
    raise_doubt(machine)
    clear(machine, OLD, 1, lac=7)
    for _ in range(2):
        assert machine.serving.limbo_ledgers() == []
        assert set(answers(machine, OLD, 9)) == {Code.NO_ENTRY}
        assert machine.ask(partial(machine.serving.read_lac, OLD)) == (Code.OK, 7)
        assert machine.read(NEW, 0)[0] is Code.IO_ERROR
        machine.lose_power()
        machine.start()
    assert machine.add(OLD, (9,)) is Code.OK
    assert machine.metadata.asked == [OLD], "clearing is no check"
    raise_doubt(machine)
    assert machine.serving.limbo_ledgers() == [OLD]
    clear(machine, OLD, 1)
    assert machine.serving.limbo_ledgers() == [OLD], "up to an earlier epoch"
    clear(machine, OLD, 2)
    clear(machine, OLD, 1, lac=3)
    assert machine.serving.limbo_ledgers() == []
    assert machine.ask(partial(machine.serving.read_lac, OLD)) == (Code.OK, 8), "of the last entry"


def lose_a_file(machine: Machine, state: FileState) -> str:
    """Remove a file that the MANIFEST lists, and return its name."""
    entry_of_file = next(file for file in machine.manifest().files if file.state is state)
    for names in (machine.disk.seen_names, machine.disk.durable_names):
        del names[entry_of_file.slot]
    return entry_of_file.slot


@pytest.mark.parametrize("state", list(FileState))
def test_a_missing_file_begins_one_epoch_and_is_listed_until_it_is_repaired(
    state: FileState,
) -> None:
    machine = started()
    if state is FileState.FINISHED:
        machine.stop()
    else:
        machine.crash()
    slot = lose_a_file(machine, state)
    for number in range(4):
        machine.start()
        assert machine.serving.doubt == Doubt(epoch=1)
        assert slot in machine.serving.found_losses[0] if number == 0 else True
        assert set(answers(machine, NEW, 9)) == {Code.IO_ERROR}
        assert slot in {file.slot for file in machine.manifest().files}
        (machine.stop if number % 2 else machine.crash)()
    machine.start()
    machine.scheduler.run(machine.serving.end_doubt(1), machine.host)
    assert slot not in {file.slot for file in machine.manifest().files}
    assert set(answers(machine, NEW, 9)) == {Code.NO_LEDGER, Code.NO_ENTRY}
    machine.stop()
    machine.start()
    assert machine.serving.doubt == Doubt(epoch=1, cleared=1)


def test_a_damaged_file_begins_one_epoch_and_is_compacted_after_the_doubt() -> None:
    machine = started()
    assert machine.add(NEW, (0,), b"kept") is Code.OK
    machine.stop()
    (file,) = (f for f in machine.manifest().files if f.state is FileState.FINISHED)
    machine.disk.flip_bit(file.slot, RECORDS_START + 20, 1)  # the header of the first record
    machine.disk.flip_bit(file.slot, file.finish_offset + 20, 1)  # and the index
    for _ in range(3):
        machine.start()
        assert machine.serving.doubt == Doubt(epoch=1)
        assert machine.read(OLD, 0)[0] is Code.IO_ERROR
        assert machine.read(NEW, 0) == (Code.OK, entry(NEW, 0, b"kept"))
        machine.compact(1)
        assert machine.manifest().files[0].has_damage
        machine.stop()
    machine.start()
    machine.scheduler.run(machine.serving.end_doubt(1), machine.host)
    machine.compact(1)
    assert not any(each.has_damage for each in machine.manifest().files)
    assert machine.read(NEW, 0) == (Code.OK, entry(NEW, 0, b"kept"))
    assert machine.read(9, 0)[0] is Code.NO_LEDGER


def test_a_file_that_an_older_release_marked_as_damaged_begins_a_doubt() -> None:
    machine = started()
    machine.stop()
    manifest = machine.manifest()
    marked = replace(manifest, files=tuple(replace(f, has_damage=True) for f in manifest.files))
    machine.disk.durable_names["MANIFEST"].seen[:] = encode_manifest(marked)
    machine.disk.durable_names["MANIFEST"].durable[:] = encode_manifest(marked)
    for _ in range(2):
        machine.start()
        assert machine.serving.doubt == Doubt(epoch=1)
        machine.stop()


def test_the_end_of_a_doubt_clears_only_ledgers_without_a_state() -> None:
    machine = started()
    raise_doubt(machine)
    kept = machine.serving.keep_in_limbo(NEW)
    assert machine.scheduler.run(kept, machine.host) is Code.OK
    assert not machine.serving.is_known(9)
    machine.scheduler.run(machine.serving.end_doubt(1), machine.host)
    for _ in range(2):
        assert machine.serving.doubt == Doubt(epoch=1, cleared=1)
        assert machine.serving.limbo_ledgers() == [OLD, NEW]
        assert machine.read(9, 0)[0] is Code.NO_LEDGER
        assert machine.read(NEW, 0)[0] is Code.IO_ERROR
        machine.lose_power()
        machine.start()
    assert machine.add(9, (0,)) is Code.OK
    assert machine.read(9, 1)[0] is Code.NO_ENTRY, "a new state is clear"


def test_a_doubt_ends_up_to_the_epoch_in_which_its_repair_began() -> None:
    machine = started()
    raise_doubt(machine)
    raise_doubt(machine)
    machine.scheduler.run(machine.serving.end_doubt(1), machine.host)
    assert machine.serving.doubt == Doubt(epoch=2, cleared=1)
    assert machine.read(9, 0)[0] is Code.IO_ERROR


def store(machine: Machine, ledger_id: int, entry_id: int, data: bytes) -> Code:
    storing = machine.serving.store_repaired(ledger_id, entry_id, data)
    code: Code = machine.scheduler.run(storing, machine.host)
    return code


def test_a_repaired_entry_needs_no_key_and_sets_none() -> None:
    machine = started()
    raise_doubt(machine)
    data = entry(NEW, 4, b"fetched")
    assert store(machine, NEW, 4, data) is Code.OK
    for _ in range(2):
        assert machine.read(NEW, 4) == (Code.OK, data)
        state = machine.serving._states[NEW]
        assert state.master_key is None
        assert NO_KEY not in (KEY, state.master_key)
        machine.lose_power()
        machine.start()
    assert machine.fence(NEW, KEY)[0] is Code.IO_ERROR, "in limbo"
    assert machine.serving._states[NEW].master_key == KEY
    assert machine.fence(NEW, bytes(range(1, 21)))[0] is Code.UNAUTHORIZED
    assert store(machine, NEW, 5, entry(NEW, 5, b"more")) is Code.OK, "the key is kept"
    assert machine.read(NEW, 5)[0] is Code.OK


def test_what_is_held_is_read_and_compared_with_its_digest() -> None:
    machine = started(settings=Machine().settings)
    machine.stop()
    machine.start()
    (file,) = (f for f in machine.manifest().files if f.live_bytes)
    assert store(machine, OLD, 7, entry(OLD, 7, b"bad")) is Code.OK
    machine.disk.flip_bit(file.slot, RECORDS_START + 150, 1)
    seen: list[int] = []

    def is_intact(entry_id: int, stored: bytes) -> bool:
        seen.append(entry_id)
        return not stored.endswith(b"bad")

    verifying = machine.serving.verify_held(OLD, (0, 1, 2, 7, 8), is_intact)
    assert machine.scheduler.run(verifying, machine.host) == frozenset()
    assert seen == [7], "the damaged record has the others"
    assert store(machine, OLD, 1, entry(OLD, 1, b"payload")) is Code.OK
    verifying = machine.serving.verify_held(OLD, (0, 1, 2, 7, 8), is_intact)
    assert machine.scheduler.run(verifying, machine.host) == {1}


def test_ledgers_with_the_answer_unknown_are_noted_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(denials, "ASKED_MAX", 3)
    machine = started()
    raise_doubt(machine)
    machine.read(OLD, 0)
    for ledger_id in (5, 3, 5, OLD, 9):
        machine.read(ledger_id, 8)
    assert machine.serving.take_asked() == [5, 3, OLD]
    assert machine.serving.take_asked() == []


def test_a_dropped_ledger_needs_no_repair() -> None:
    machine = started()
    raise_doubt(machine)
    assert machine.serving.limbo_ledgers() == [OLD]
    assert machine.drop(OLD) is Code.OK
    assert machine.serving.limbo_ledgers() == []
    assert machine.read(OLD, 0)[0] is Code.NO_ENTRY


def test_ledgers_in_limbo_are_counted_after_changes() -> None:
    machine = started()
    assert machine.add(NEW, (0,)) is Code.OK
    assert machine.serving.ledgers_in_limbo == 0
    raise_doubt(machine)
    machine.scheduler.run_for(1_500)
    assert machine.serving.ledgers_in_limbo == 2
    clear(machine, NEW, 1)
    machine.scheduler.run_for(3_000)
    assert machine.serving.ledgers_in_limbo == 1
    machine.crash()
    machine.start()
    machine.scheduler.run_for(1_500)
    assert machine.serving.ledgers_in_limbo == 1


def test_on_a_full_device_a_doubt_holds_at_once_and_is_durable_later() -> None:
    machine = started()
    machine.disk.on_operation = lambda _number, name: setattr(
        machine.disk, "error", 28 if name.startswith("write MANIFEST") else 0
    )
    raised: list[int] = []

    async def raising() -> None:
        await machine.serving.raise_doubt()
        raised.append(machine.manifest().doubt.epoch)

    machine.host.spawn("doubt", raising())
    machine.scheduler.run_for(5_000)
    assert raised == []
    assert machine.read(OLD, 9)[0] is Code.IO_ERROR
    machine.disk.on_operation, machine.disk.error = None, 0
    machine.scheduler.run_for(30_000)
    assert raised == [1]


def test_a_repair_that_is_cut_after_each_operation_hides_no_loss() -> None:
    """Entries are synced before their ledger is cleared, and ledgers before the doubt ends."""
    data = entry(NEW, 4, b"fetched")

    async def repair(machine: Machine) -> None:
        storage = machine.serving
        await storage.raise_doubt()
        await storage.date_doubt(1, 50)
        assert await storage.store_repaired(NEW, 4, data) is Code.OK
        assert await storage.clear_ledger(NEW, 1, 4) is Code.OK
        assert await storage.keep_in_limbo(OLD) is Code.OK
        await storage.end_doubt(1)

    number, ends = 0, set()
    while True:
        number += 1
        machine = started()
        is_over = not is_cut(machine, partial(repair, machine), number)
        machine.start()
        doubt = machine.serving.doubt
        if doubt.epoch and machine.read(NEW, 9)[0] is not Code.IO_ERROR:
            assert machine.read(NEW, 4) == (Code.OK, data), number
        if doubt.epoch:
            assert machine.read(OLD, 9)[0] is Code.IO_ERROR, number
        if doubt.epoch and doubt.is_over:
            assert machine.serving.limbo_ledgers() == [OLD], number
        ends.add(doubt)
        if is_over:
            break
    assert ends == {Doubt(), Doubt(1), Doubt(1, 0, 50), Doubt(1, 1, 50)}
