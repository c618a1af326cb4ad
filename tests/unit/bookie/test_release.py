"""Released ledgers: which may be released, and what the bookie answers during and after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bookie_server.core.ledger_gate import Health
from bookie_server.core.ledger_state import HeldLedger
from bookie_server.core.release import PERIODS_PER_WAIT, AddPeriods, is_released_by, may_begin
from bookie_server.errors import StorageError
from bookie_server.ports import Standing
from ledgerlog_spark.model import Code, Fragment, LedgerMetadata, LedgerState, Quorum
from tests.crash.machine import KEY, SMALL, Machine, add_request, entry

WAIT_MS = 3_200
SETTINGS = replace(SMALL, recent_bytes_max=1, pool_files_max=2, release_wait_ms=WAIT_MS)
LEDGER = 7


# The pure decisions.


def test_a_period_is_quiet_when_the_next_one_began_the_wait_ago() -> None:
    periods = AddPeriods(WAIT_MS, 1_000)
    assert periods.quiet_before(1_000 + 10 * WAIT_MS) == 0
    periods.advance(1_000 + WAIT_MS // PERIODS_PER_WAIT - 1)
    assert periods.current == 0
    periods.advance(1_200)
    assert periods.current == 1
    assert periods.quiet_before(1_199 + WAIT_MS) == 0
    assert periods.quiet_before(1_200 + WAIT_MS) == 1


def test_the_number_of_kept_periods_is_bounded() -> None:
    periods = AddPeriods(WAIT_MS, 0)
    for now_ms in range(0, 20 * WAIT_MS, 7):
        periods.advance(now_ms)
        assert len(periods._begun_ms) <= PERIODS_PER_WAIT + 2
        before = periods.quiet_before(now_ms)
        assert before == 0 or periods.current - before <= PERIODS_PER_WAIT + 1
    assert periods.current > 10 * PERIODS_PER_WAIT


def test_a_period_never_becomes_quiet_too_early() -> None:
    periods = AddPeriods(WAIT_MS, 0)
    added: dict[int, int] = {}  # the last time of each period
    for now_ms in range(0, 4 * WAIT_MS, 13):
        if now_ms % 5 == 0:
            periods.advance(now_ms)
        for period, added_ms in added.items():
            is_quiet = period < periods.quiet_before(now_ms)
            assert not is_quiet or now_ms - added_ms >= WAIT_MS
        added[periods.current] = now_ms


def quiet_state() -> HeldLedger:
    state = HeldLedger(LEDGER)
    state.last_accepted_id, state.last_ticket, state.added_in = 3, 5, 1
    return state


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"last_accepted_id": -1}, False),
        ({"added_in": 2}, False),
        ({"last_ticket": 10}, False),
        ({"is_hidden": True}, False),
        ({"is_fenced": True}, True),
    ],
)
def test_a_release_begins_for_a_quiet_ledger_with_durable_entries(
    change: dict[str, object], *, expected: bool
) -> None:
    state = quiet_state()
    for name, value in change.items():
        setattr(state, name, value)
    assert may_begin(state, Health(), quiet_before=2, durable_ticket=9) is expected


@pytest.mark.parametrize("health", [Health(has_failed=True), Health(files_in_doubt={3})])
def test_no_release_begins_while_the_bookie_is_not_certain(health: Health) -> None:
    assert not may_begin(quiet_state(), health, quiet_before=2, durable_ticket=9)


@pytest.mark.parametrize("state", list(LedgerState))
@pytest.mark.parametrize("me", ["b1", "b2", "b4"])
def test_only_a_closed_ledger_without_the_bookie_is_released(me: str, state: LedgerState) -> None:
    fragments = (Fragment(0, ("b1",)), Fragment(5, ("b2",)))
    metadata = replace(LedgerMetadata(Quorum(1, 1, 1), fragments), state=state)
    assert is_released_by(metadata, me) == (state is LedgerState.CLOSED and me == "b4")


# The storage.


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = Machine(settings=SETTINGS)
    machine.start()
    yield machine
    machine.scheduler.close()


def filled(machine: Machine, ledger_id: int = LEDGER, entries: int = 5) -> None:
    for entry_id in range(entries):
        assert machine.add(ledger_id, (entry_id,), b"%d" % entry_id * 300) is Code.OK


def releasable(machine: Machine) -> list[int]:
    return machine.scheduler.run(machine.serving.releasable(), machine.host)


def wait(machine: Machine) -> None:
    """Let the wait pass, in which the collector asks for candidates as often as it does."""
    for _ in range(2 * PERIODS_PER_WAIT + 4):
        releasable(machine)
        machine.scheduler.run_for(WAIT_MS // PERIODS_PER_WAIT)


def release(machine: Machine, ledger_id: int = LEDGER) -> Code:
    return machine.ask(lambda on_done: machine.serving.release(ledger_id, on_done))[0]


def released(machine: Machine, ledger_id: int = LEDGER) -> None:
    wait(machine)
    assert machine.serving.hide(ledger_id)
    assert release(machine, ledger_id) is Code.OK


WAYS = (None, "stop", "crash", "lose_power")


def restarted(machine: Machine, way: str | None) -> None:
    if way is not None:
        getattr(machine, way)()
        machine.start()


def test_a_ledger_is_releasable_after_the_wait_and_not_before(machine: Machine) -> None:
    filled(machine)
    assert releasable(machine) == []
    assert not machine.serving.hide(LEDGER)
    wait(machine)
    assert releasable(machine) == [LEDGER]


def test_an_add_and_a_repeated_add_begin_the_wait_again(machine: Machine) -> None:
    for ledger_id in (7, 8, 9):
        filled(machine, ledger_id)
    wait(machine)
    assert releasable(machine) == [7, 8, 9]
    assert machine.add(7, (0,), b"0" * 300) is Code.OK
    assert machine.serving.counters.adds_repeated == 1
    assert machine.add(8, (5,)) is Code.OK
    assert releasable(machine) == [9]
    assert not machine.serving.hide(7)
    wait(machine)
    assert releasable(machine) == [7, 8, 9]


@pytest.mark.parametrize("way", ["stop", "crash", "lose_power"])
def test_a_start_begins_the_wait_again(machine: Machine, way: str) -> None:
    filled(machine)
    wait(machine)
    restarted(machine, way)
    assert releasable(machine) == []
    wait(machine)
    assert releasable(machine) == [LEDGER]


def test_with_a_wait_of_0_nothing_is_released() -> None:
    machine = Machine(settings=replace(SETTINGS, release_wait_ms=0))
    machine.start()
    filled(machine)
    wait(machine)
    assert releasable(machine) == []
    assert not machine.serving.hide(LEDGER)


def test_a_hidden_ledger_is_not_listed_and_nothing_of_it_is_denied(machine: Machine) -> None:
    filled(machine)
    wait(machine)
    assert machine.serving.hide(LEDGER)
    assert isinstance(machine.held(LEDGER), StorageError)
    assert machine.read(LEDGER, 9) == (Code.IO_ERROR, None)
    assert machine.read(LEDGER, -1) == (Code.IO_ERROR, None)
    assert machine.read_batch(LEDGER, 9) == (Code.IO_ERROR, ())
    assert machine.read(LEDGER, 2) == (Code.OK, entry(LEDGER, 2, b"2" * 300))
    machine.serving.unhide(LEDGER)
    assert machine.held(LEDGER) == [(0, 4)]
    assert machine.read(LEDGER, 9) == (Code.NO_ENTRY, None)
    assert releasable(machine) == [LEDGER]


@pytest.mark.parametrize("way", ["stop", "crash", "lose_power"])
def test_a_release_ends_with_the_process(machine: Machine, way: str) -> None:
    filled(machine)
    wait(machine)
    assert machine.serving.hide(LEDGER)
    restarted(machine, way)
    assert machine.held(LEDGER) == [(0, 4)]
    assert release(machine) is Code.NO_LEDGER


@pytest.mark.parametrize("is_recovery", [False, True])
@pytest.mark.parametrize("entry_id", [2, 5])
def test_any_add_ends_a_release_and_is_stored(
    machine: Machine, entry_id: int, *, is_recovery: bool
) -> None:
    filled(machine)
    wait(machine)
    assert machine.serving.hide(LEDGER)
    payload = b"%d" % entry_id * 300
    assert machine.add(LEDGER, (entry_id,), payload, is_recovery=is_recovery) is Code.OK
    assert machine.serving.counters.adds_repeated == 0
    assert release(machine) is Code.NO_LEDGER
    assert machine.held(LEDGER) == [(0, max(4, entry_id))]
    assert releasable(machine) == []


def test_a_repeat_that_is_compared_when_the_release_begins_ends_it(machine: Machine) -> None:
    filled(machine)
    wait(machine)
    codes: list[Code] = []
    machine.serving.add(add_request(LEDGER, (2,), b"2" * 300), codes.append)
    assert codes == []
    assert machine.serving.hide(LEDGER)
    machine.scheduler.run_until(lambda: bool(codes))
    assert codes == [Code.OK]
    assert release(machine) is Code.NO_LEDGER


def test_a_repeat_that_is_compared_when_the_ledger_is_dropped_is_stored(machine: Machine) -> None:
    filled(machine)
    wait(machine)
    codes: list[Code] = []
    machine.serving.add(add_request(LEDGER, (2,), b"2" * 300, is_recovery=True), codes.append)
    assert machine.serving.hide(LEDGER)
    assert release(machine) is Code.OK
    machine.scheduler.run_until(lambda: bool(codes))
    assert codes == [Code.OK]
    assert machine.held(LEDGER) == [(2, 2)]


def test_a_refused_add_does_not_end_a_release(machine: Machine) -> None:
    filled(machine)
    assert machine.fence(LEDGER)[0] is Code.OK
    wait(machine)
    assert machine.serving.hide(LEDGER)
    assert machine.add(LEDGER, (5,)) is Code.FENCED
    assert machine.add(LEDGER, (5,), key=bytes(20)) is Code.UNAUTHORIZED
    assert release(machine) is Code.OK


@pytest.mark.parametrize("way", WAYS)
def test_a_released_ledger_is_empty_keeps_its_key_and_is_not_fenced(
    machine: Machine, way: str | None
) -> None:
    filled(machine)
    filled(machine, 8)
    released(machine)
    assert machine.serving.counters.releases == 1
    assert machine.serving.counters.drops == 0
    restarted(machine, way)
    assert machine.read(LEDGER, 2) == (Code.NO_ENTRY, None)
    assert machine.read(LEDGER, -1) == (Code.NO_ENTRY, None)
    assert machine.held(LEDGER) == []
    assert machine.held(8) == [(0, 4)]
    assert not machine.serving.is_fenced(LEDGER)
    assert machine.add(LEDGER, (5,), key=bytes(20)) is Code.UNAUTHORIZED


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("standing", "code"),
    [
        (Standing.OPEN_WITH_ME, Code.OK),
        (Standing.OPEN_WITHOUT_ME, Code.IO_ERROR),
        (Standing.NOT_WRITABLE, Code.FENCED),
        (Standing.UNKNOWN, Code.IO_ERROR),
    ],
)
def test_a_regular_add_of_a_released_ledger_waits_for_the_metadata_check(
    machine: Machine, standing: Standing, code: Code, way: str | None
) -> None:
    filled(machine)
    released(machine)
    restarted(machine, way)
    machine.metadata.standing = standing
    assert machine.add(LEDGER, (5,)) is code
    assert machine.metadata.asked == [LEDGER]
    assert machine.held(LEDGER) == ([(5, 5)] if code is Code.OK else [])


@pytest.mark.parametrize("way", WAYS)
def test_a_released_ledger_keeps_its_fence(machine: Machine, way: str | None) -> None:
    filled(machine)
    assert machine.fence(LEDGER)[0] is Code.OK
    released(machine)
    restarted(machine, way)
    assert machine.add(LEDGER, (5,)) is Code.FENCED
    assert machine.add(LEDGER, (1,), b"back", is_recovery=True) is Code.OK
    assert machine.read(LEDGER, 1) == (Code.OK, entry(LEDGER, 1, b"back"))
    assert machine.held(LEDGER) == [(1, 1)]


def test_a_ledger_is_hidden_until_its_deletion_is_durable(machine: Machine) -> None:
    filled(machine)
    wait(machine)
    assert machine.serving.hide(LEDGER)
    codes: list[Code] = []
    machine.serving.release(LEDGER, codes.append)
    machine.serving.unhide(LEDGER)
    assert isinstance(machine.held(LEDGER), StorageError)
    machine.serving.add(add_request(LEDGER, (2,), b"2" * 300, is_recovery=True), codes.append)
    assert isinstance(machine.held(LEDGER), StorageError)
    machine.scheduler.run_until(lambda: len(codes) == 2)
    assert codes == [Code.OK, Code.OK]
    assert machine.held(LEDGER) == [(2, 2)]


def test_a_released_ledger_can_be_released_again(machine: Machine) -> None:
    filled(machine)
    released(machine)
    wait(machine)
    assert releasable(machine) == []
    assert machine.add(LEDGER, (1,), b"back", is_recovery=True) is Code.OK
    released(machine)
    assert machine.held(LEDGER) == []


def test_a_released_ledger_that_is_deleted_is_dropped_and_fenced(machine: Machine) -> None:
    filled(machine)
    released(machine)
    assert machine.droppable() == [LEDGER]
    assert machine.drop(LEDGER) is Code.OK
    assert machine.droppable() == []
    assert machine.add(LEDGER, (5,)) is Code.FENCED


def test_a_release_gives_back_the_space(machine: Machine) -> None:
    for entry_id in range(80):
        assert machine.add(LEDGER, (entry_id,), bytes(2_000)) is Code.OK
    filled(machine, 8)
    machine.scheduler.run_for(500)
    released(machine)
    machine.reclaim()
    assert machine.serving.counters.files_freed >= 2
    assert machine.held(8) == [(0, 4)]


def test_the_states_of_released_ledgers_are_in_the_state_file(machine: Machine) -> None:
    filled(machine)
    released(machine)
    machine.reclaim()
    machine.check_states()
    machine.stop()
    machine.start()
    assert machine.held(LEDGER) == []
    state = machine.serving._states[LEDGER]
    assert (state.is_fenced, state.is_unverified, state.master_key) == (False, True, KEY)


def test_a_released_ledger_in_limbo_is_repaired_and_not_forgotten() -> None:
    # Its record may name the bookie again, for entries that the loss took.
    machine = Machine(settings=replace(SETTINGS, tombstone_keep_s=1))
    machine.start()
    filled(machine)
    released(machine)
    machine.scheduler.run(machine.serving.raise_doubt(), machine.host)
    assert machine.serving.limbo_ledgers() == [LEDGER]
    assert machine.scheduler.run(machine.serving.keep_in_limbo(LEDGER), machine.host) is Code.OK
    machine.scheduler.run(machine.serving.end_doubt(1), machine.host)
    fill_files(machine, 8)
    assert LEDGER in machine.serving._states
    assert machine.read(LEDGER, 0)[0] is Code.IO_ERROR
    cleared = machine.serving.clear_ledger(LEDGER, 1, 4)
    assert machine.scheduler.run(cleared, machine.host) is Code.OK
    assert machine.serving.limbo_ledgers() == []
    fill_files(machine, 9)
    assert LEDGER not in machine.serving._states
    assert machine.read(LEDGER, 0)[0] is Code.NO_LEDGER
    machine.scheduler.close()


def fill_files(machine: Machine, other: int) -> None:
    """Drop enough entries of another ledger that no file names a released ledger any more."""
    for entry_id in range(80):
        assert machine.add(other, (entry_id,), bytes(2_000)) is Code.OK
    assert machine.drop(other) is Code.OK
    for _ in range(4):
        machine.scheduler.run_for(500)
        machine.reclaim()
