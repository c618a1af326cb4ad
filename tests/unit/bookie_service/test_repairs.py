"""The repair of a bookie in doubt: what it fetches, stores and clears, and in which order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookie_server.core.doubt import Doubt
from bookie_server.core.repair import RepairOutcome
from bookie_server.service.repair.damaged import LEDGERS_MAX, RETRY_PAUSE_MS, TRIES_MAX
from bookie_server.service.repair.pace import STORED_ENTRIES_MAX
from bookie_server.service.repair.progress import LEDGERS_SHOWN_MAX, RepairProgress, RepairState
from bookie_server.service.repair.repairs import ASKED_IN_TURN_MAX, RECOVERIES_MAX
from ledgerlog_spark.model import Code, DigestType, LedgerMetadata, Versioned
from tests.fixtures.repair_world import IN_DOUBT, ME, OPEN, RepairWorld, stored

LARGE = 2 * STORED_ENTRIES_MAX


@pytest.fixture
def world() -> RepairWorld:
    return RepairWorld()


# One ledger.


def test_missing_entries_are_fetched_stored_and_cleared(world: RepairWorld) -> None:
    world.closed(7, held=[1])
    assert world.repair(7).ended.outcome is RepairOutcome.CLEARED
    assert world.storage.entries[7] == {i: stored(7, i) for i in range(3)}
    assert world.storage.written == [("clear", 7, 1, 2)]
    assert world.progress.counters.entries_fetched == 2


def test_consecutive_entries_are_read_together(world: RepairWorld) -> None:
    world.closed(7, LARGE, held=[3])
    assert world.repair(7).ended.outcome is RepairOutcome.CLEARED
    assert sorted(world.storage.entries[7]) == list(range(LARGE + 1))
    assert len(world.peers.requests) < 6


def test_a_damaged_entry_of_a_batch_is_read_from_the_next_bookie(world: RepairWorld) -> None:
    world.closed(7, 5)
    for name in ("b1", "b2"):
        world.peers.entries[name][7, 4] = stored(7, 4)[:-1] + b"!"
    report = world.repair(7)
    assert report.ended.outcome is RepairOutcome.INCOMPLETE
    assert sorted(world.storage.entries[7]) == [0, 1, 2, 3, 5]
    assert {one[1] for one in world.peers.requests if one[3] == 4} == {"b1", "b2"}


def test_an_entry_with_a_wrong_digest_is_fetched_from_another_bookie(world: RepairWorld) -> None:
    world.closed(7, 0, held=[])
    world.peers.entries["b1"][7, 0] = stored(7, 0)[:-1] + b"!"
    assert world.repair(7).ended.outcome is RepairOutcome.CLEARED
    assert world.storage.entries[7] == {0: stored(7, 0)}
    assert world.progress.counters.entries_refused == 1


def test_a_wrong_digest_is_no_denial(world: RepairWorld) -> None:
    world.closed(7, 0)
    world.peers.entries["b1"][7, 0] = stored(8, 0)
    del world.peers.entries["b2"][7, 0]
    report = world.repair(7)
    assert report.ended.outcome is RepairOutcome.INCOMPLETE
    assert report.problem == "bookie b1, entry 0: digest_mismatch"
    assert world.storage.written == []


def test_a_damaged_entry_of_the_directory_is_fetched_again(world: RepairWorld) -> None:
    world.closed(7, held=[0, 1, 2])
    world.storage.entries[7][1] = stored(7, 1)[:-1] + b"!"
    assert world.repair(7).ended.outcome is RepairOutcome.CLEARED
    assert world.storage.entries[7][1] == stored(7, 1)


@pytest.mark.parametrize("digest", list(DigestType))
def test_each_type_of_digest_is_checked(world: RepairWorld, digest: DigestType) -> None:
    metadata = replace(OPEN, digest_type=digest, password=b"secret")
    world.ledger(7, metadata.closed(last_entry_id=2, length=9), held=[0])
    assert world.repair(7).ended.outcome is RepairOutcome.CLEARED
    assert world.storage.entries[7] == {i: stored(7, i, metadata) for i in range(3)}


def test_without_a_password_nothing_is_taken_from_others(world: RepairWorld) -> None:
    metadata = replace(OPEN, digest_type=DigestType.HMAC, password=b"secret")
    world.ledger(7, metadata.closed(last_entry_id=2, length=9), held=[0, 1])
    closed = world.records.metadata[7]
    world.records.metadata[7] = replace(closed, password=b"", has_password=False)
    report = world.repair(7)
    assert report.ended.outcome is RepairOutcome.INCOMPLETE
    assert "the metadata has no password" in report.problem
    assert sorted(world.storage.entries[7]) == [0, 1]
    world.storage.entries[7][2] = stored(7, 2, metadata)
    assert world.repair(7).ended.outcome is RepairOutcome.CLEARED


def test_a_held_entry_without_a_checked_digest_needs_its_header(world: RepairWorld) -> None:
    metadata = replace(OPEN, digest_type=DigestType.HMAC, has_password=False)
    world.ledger(7, metadata.closed(last_entry_id=1, length=9), 1, held=[0, 1])
    world.storage.entries[7] = {0: stored(7, 1, metadata), 1: b"short"}
    report = world.repair(7)
    assert report.ended.outcome is RepairOutcome.INCOMPLETE


def test_an_entry_that_is_not_stored_ends_the_repair(world: RepairWorld) -> None:
    world.closed(7)
    world.storage.code = Code.READ_ONLY
    report = world.repair(7)
    assert report.ended.outcome is RepairOutcome.INCOMPLETE
    assert "not stored" in report.problem
    assert world.storage.written == []


def test_a_busy_storage_is_tried_again(world: RepairWorld) -> None:
    world.closed(7)
    world.storage.code = Code.BUSY
    world.host.call_later(2_000_000, lambda: setattr(world.storage, "code", Code.OK))
    assert world.repair(7).ended.outcome is RepairOutcome.CLEARED
    assert len(world.storage.entries[7]) == 3


def test_a_limbo_whose_end_is_not_stored_stays(world: RepairWorld) -> None:
    world.closed(7, held=[0, 1, 2])
    world.storage.code = Code.IO_ERROR
    assert world.repair(7).ended.outcome is RepairOutcome.INCOMPLETE
    assert world.storage.limbo_ledgers() == [7]


def test_a_bookie_that_does_not_answer_is_not_asked_again_at_once(world: RepairWorld) -> None:
    world.closed(7, 5, held=[1, 2, 4, 5])  # b1 would be the first choice for the others
    world.peers.codes["b1"] = Code.TIMEOUT
    assert world.repair(7).ended.outcome is RepairOutcome.CLEARED
    assert len([one for one in world.peers.requests if one[1] == "b1"]) == 1
    world.peers.requests.clear()
    world.scheduler.run_for(world.parts.silent_ms)
    world.closed(8, held=[1])
    del world.peers.codes["b1"]
    world.repair(8)
    assert ("read", "b1", 8, 0) in world.peers.requests


def test_a_short_outage_of_the_store_ends_no_repair(world: RepairWorld) -> None:
    world.closed(7)
    world.records.failures = 2
    assert world.repair(7).ended.outcome is RepairOutcome.CLEARED


def test_the_bytes_of_a_second_are_limited() -> None:
    world = RepairWorld(bytes_per_s=10_000)
    world.closed(7, 99)
    world.repair(7)
    size_bytes = world.progress.counters.bytes_fetched
    assert world.host.monotonic_ms() >= (size_bytes / 10_000 - 0.5) * 1_000


# All ledgers.


def test_a_pass_ends_the_doubt_and_reports_once(world: RepairWorld) -> None:
    world.closed(7, held=[0])
    world.closed(8)
    world.ledger(9, OPEN)
    world.begin(3_000)
    assert world.storage.doubt.is_over
    assert world.storage.limbo_ledgers() == [9]
    assert ("keep", 9) in world.storage.written
    assert world.storage.written.index(("keep", 9)) < world.storage.written.index(("end", 1))
    (report,) = world.passes
    assert (report.is_whole, report.ledgers, report.in_limbo) == (True, 3, 1)
    assert report.entries_fetched == 2 + 3 + 3
    assert world.progress.state is RepairState.ROUNDS


def test_nothing_is_repaired_before_the_store_has_the_doubt(world: RepairWorld) -> None:
    world.closed(7)
    world.storage.doubt = Doubt(epoch=1)
    world.begin(10_000)
    assert world.peers.requests == []
    assert world.progress.state is RepairState.WAITS_FOR_STORE
    world.storage.doubt = IN_DOUBT
    world.scheduler.run_for(2_000)
    assert world.storage.doubt.is_over


def test_a_bookie_without_doubt_does_nothing(world: RepairWorld) -> None:
    world.storage.doubt = Doubt()
    world.closed(7)
    world.begin(10_000)
    assert world.records.loaded == []
    assert world.progress.state is RepairState.NOTHING_TO_DO


def test_a_ledger_that_somebody_asked_for_is_repaired_first(world: RepairWorld) -> None:
    for ledger_id in range(7, 12):
        world.closed(ledger_id)
    world.storage.asked = [11]
    world.begin(10)
    assert list(dict.fromkeys(world.records.loaded))[:2] == [11, 7]


def test_a_ledger_that_somebody_asks_for_interrupts_a_pass(world: RepairWorld) -> None:
    for ledger_id in range(7, 12):
        world.closed(ledger_id)
    world.records.on_listed = lambda _: setattr(world.storage, "asked", [10])
    world.begin(10)
    assert list(dict.fromkeys(world.records.loaded)) == [10, 7, 8, 9, 11]


def test_ledgers_that_clients_ask_for_do_not_stop_a_pass(world: RepairWorld) -> None:
    for ledger_id in range(7, 10):
        world.closed(ledger_id)
    asked = list(range(100, 100 + 2 * ASKED_IN_TURN_MAX))
    world.records.on_listed = lambda _: setattr(world.storage, "asked", asked)
    world.begin(10)
    order = list(dict.fromkeys(world.records.loaded))
    assert [order.index(i) for i in (7, 8)] == [ASKED_IN_TURN_MAX, 2 * ASKED_IN_TURN_MAX + 1]
    assert set(order) == {*range(7, 10), *asked}


def test_a_ledger_that_is_asked_for_all_the_time_is_tried_now_and_then(world: RepairWorld) -> None:
    world.storage.doubt = IN_DOUBT.ended(1)
    world.ledger(7, OPEN, held=[0])
    world.storage.asked = [7]
    world.begin(100)
    begun = len(world.records.loaded)
    for _ in range(4):
        world.storage.asked = [7]
        world.scheduler.run_for(1_000)
    assert len(world.records.loaded) - begun <= 2 * 3  # two rounds, and no question


def test_a_listing_that_fails_ends_no_doubt(world: RepairWorld) -> None:
    world.closed(7)
    world.records.failures = 1
    world.begin(500)
    assert not world.storage.doubt.is_over
    assert [report.is_whole for report in world.passes] == [False]
    world.scheduler.run_for(5_000)
    assert world.storage.doubt.is_over


def test_a_pass_ends_when_the_store_is_away(world: RepairWorld) -> None:
    for ledger_id in range(7, 12):
        world.ledger(ledger_id, OPEN)
    world.records.on_listed = lambda _: setattr(world.records, "failures", 3)
    world.begin(4_000)
    world.records.on_listed = lambda _: None
    assert world.failures[0][0] == "repair"
    assert world.storage.written == [], "no ledger gets a state because the store is away"
    world.scheduler.run_for(20_000)
    assert world.storage.doubt.is_over


def test_a_state_that_is_not_written_ends_no_doubt(world: RepairWorld) -> None:
    world.ledger(7, OPEN, last=-1)
    world.storage.code = Code.IO_ERROR
    world.begin(5_000)
    assert not world.storage.doubt.is_over


@pytest.mark.parametrize("when", [7, 8])
def test_a_ledger_whose_state_an_add_makes_during_the_listing_is_not_skipped(
    world: RepairWorld, when: int
) -> None:
    world.ledger(7, OPEN)
    world.closed(8)

    def add(ledger_id: int) -> None:
        if ledger_id == when:
            world.storage.hold(7, {5: stored(7, 5)})

    world.records.on_listed = add
    world.begin(3_000)
    assert ("keep", 7) in world.storage.written


def test_a_clear_ledger_is_not_repaired_again_in_a_repeated_pass(world: RepairWorld) -> None:
    world.closed(7, held=[0])
    world.storage.cleared[7] = 1
    world.closed(8)
    world.begin(3_000)
    assert set(world.records.loaded) == {8}


def test_a_loss_during_a_pass_begins_another_pass(world: RepairWorld) -> None:
    world.closed(7)
    world.closed(8)

    def lose(ledger_id: int) -> None:
        if ledger_id == 8:
            world.storage.doubt = Doubt(epoch=2, cleared=0, transaction=60)

    world.records.on_listed = lose
    world.begin(5_000)
    assert world.storage.doubt.cleared == 2
    assert ("end", 1) not in world.storage.written


def test_ledgers_in_limbo_are_tried_with_longer_and_longer_pauses(world: RepairWorld) -> None:
    world.closed(7)
    for name in ("b1", "b2"):
        world.peers.codes[name] = Code.UNAVAILABLE
    world.begin(200_000)
    tries = len(world.records.loaded) // 2
    assert 5 < tries < 20
    world.peers.codes.clear()
    world.scheduler.run_for(70_000)
    assert world.storage.limbo_ledgers() == []
    assert world.progress.state is RepairState.NOTHING_TO_DO
    assert world.progress.in_limbo == {}


def test_a_ledger_that_needs_an_operator_is_counted_until_it_is_found(world: RepairWorld) -> None:
    world.closed(7)
    for name in ("b1", "b2"):
        del world.peers.entries[name][7, 1]
    world.begin(10_000)
    assert world.progress.needs_operator == 1
    assert world.progress.in_limbo[7].missing == (1,)
    world.peers.entries["b2"][7, 1] = stored(7, 1)
    world.scheduler.run_for(70_000)
    assert world.progress.needs_operator == 0


def test_a_read_of_a_ledger_that_never_existed_requests_no_garbage_collection(
    world: RepairWorld,
) -> None:
    world.storage.asked = [9, 10, 11]
    world.begin(3_000)
    assert not world.storage.asked
    assert world.deleted == []


def test_a_deleted_ledger_is_left_to_garbage_collection(world: RepairWorld) -> None:
    world.storage.hold(7, {0: stored(7, 0)})
    world.begin(500)
    assert world.deleted[0] == 7
    assert 7 not in world.progress.in_limbo


def test_a_ledger_that_leaves_limbo_by_itself_is_not_shown(world: RepairWorld) -> None:
    world.ledger(7, OPEN, held=[0])
    world.ledger(8, OPEN, held=[0])
    world.begin(2_000)
    assert set(world.progress.in_limbo) == {7, 8}
    world.storage.cleared[7] = 1
    world.scheduler.run_for(10_000)
    assert set(world.progress.in_limbo) == {8}


def test_a_requested_ledger_is_repaired_although_it_is_not_in_limbo(world: RepairWorld) -> None:
    world.storage.doubt = Doubt()
    world.closed(7, held=[0, 1, 2])
    del world.storage.entries[7][1]
    world.begin(5_000)
    world.repairs.request(7)
    world.scheduler.run_for(2_000)
    assert world.storage.entries[7][1] == stored(7, 1)


def test_a_stopped_repair_begins_nothing(world: RepairWorld) -> None:
    for ledger_id in range(7, 12):
        world.closed(ledger_id)
    world.records.on_listed = lambda _: world.repairs.stop()
    world.begin(60_000)
    assert world.peers.requests == []
    assert not world.storage.doubt.is_over


def test_a_repair_that_is_stopped_stores_and_clears_nothing(world: RepairWorld) -> None:
    world.closed(7, held=[0, 1, 2])

    async def stop() -> None:
        world.repairs.stop()

    world.host.give_way = stop
    report = world.repair(7)
    assert report.problem == "the bookie stops"
    assert world.storage.written == []


def test_only_some_problems_are_kept() -> None:
    progress = RepairProgress()
    world = RepairWorld()
    world.ledger(7, OPEN)
    report = world.repair(7)
    for ledger_id in range(LEDGERS_SHOWN_MAX + 1):
        progress.note(ledger_id, report)
    assert len(progress.in_limbo) == LEDGERS_SHOWN_MAX


# Ledgers that nobody closes.


def test_an_idle_open_ledger_is_recovered_and_then_repaired(world: RepairWorld) -> None:
    world.ledger(7, OPEN, held=[0])
    world.begin(50_000)
    assert world.recovered == []
    world.scheduler.run_for(150_000)
    assert world.recovered == [7]
    assert world.storage.limbo_ledgers() == []
    assert world.progress.counters.recoveries == 1


def test_a_ledger_that_gets_entries_is_not_recovered(world: RepairWorld) -> None:
    world.ledger(7, OPEN, held=[0])
    world.begin(1_000)
    for entry_id in range(1, 10):
        world.storage.hold(7, {entry_id: stored(7, entry_id)})
        world.scheduler.run_for(30_000)
    assert world.recovered == []


def test_a_recovery_that_fails_is_tried_again_later(world: RepairWorld) -> None:
    world.ledger(7, OPEN.in_recovery(), held=[0])

    def fail(_ledger_id: int) -> None:
        world.records.failures = 1
        world.records._maybe_fail()

    world.on_recover = fail
    world.begin(400_000)
    assert 2 <= len(world.recovered) <= 6
    assert ("recovery", world.failures[-1][1]) in world.failures


def test_few_ledgers_are_recovered_at_a_time(world: RepairWorld) -> None:
    for ledger_id in range(7, 7 + 3 * RECOVERIES_MAX):
        world.ledger(ledger_id, OPEN, held=[0])
    running = 0

    async def wait(ledger_id: int, _report: object) -> None:
        nonlocal running
        running += 1
        assert running <= RECOVERIES_MAX
        await world.host.sleep(1_000)
        world.close(ledger_id)
        running -= 1

    world.repairs._recover = wait
    world.begin(900_000)
    assert world.storage.limbo_ledgers() == []


def test_me_is_never_asked(world: RepairWorld) -> None:
    world.closed(7)
    world.repair(7)
    assert all(bookie != ME for _, bookie, *_ in world.peers.requests)


# Damaged entries, which the scrub found.

NO_DOUBT = Doubt()


def damaged_world(*, is_open: bool = False) -> RepairWorld:
    """A bookie without doubt that has lost entry 1 of ledger 7."""
    world = RepairWorld()
    world.storage.doubt = NO_DOUBT
    if is_open:
        world.ledger(7, OPEN, held=[0, 2])
        world.peers.lacs["b1", 7] = 1
    else:
        world.closed(7, held=[0, 2])
    world.storage.cleared[7] = 0
    world.storage.damaged = [(7, (1,))]
    return world


def run_repairs(world: RepairWorld, duration_ms: int) -> None:
    world.repairs.start()
    world.scheduler.run_for(duration_ms)
    world.repairs.stop()
    world.scheduler.run_for(5_000)


@pytest.mark.parametrize("is_open", [False, True])
def test_a_damaged_entry_is_fetched_without_any_doubt(*, is_open: bool) -> None:
    world = damaged_world(is_open=is_open)
    run_repairs(world, 2_000)
    assert world.storage.entries[7][1] == stored(7, 1)
    assert world.storage.damaged == []
    assert world.recovered == []
    assert world.failures == []
    assert world.progress.in_limbo == {}


def test_a_ledger_with_a_damaged_entry_is_never_recovered_for_it() -> None:
    world = damaged_world(is_open=True)
    world.repairs.start()
    for _ in range(20):
        world.storage.damaged = [(7, (1,))]
        world.scheduler.run_for(60_000)
    world.repairs.stop()
    assert world.recovered == []


def test_damage_that_reads_report_all_the_time_is_repaired_once_a_minute() -> None:
    world = damaged_world()
    world.repairs.start()
    for _ in range(30):
        world.storage.damaged = [(7, (1,))]
        world.scheduler.run_for(2_000)
    world.repairs.stop()
    assert len(world.records.loaded) == 4, "two repairs, each loads the record twice"


def test_reports_do_not_shorten_the_pauses_of_damage_that_cannot_be_repaired() -> None:
    world = damaged_world()
    world.peers.codes = dict.fromkeys(("b1", "b2"), Code.IO_ERROR)
    world.repairs.start()
    for _ in range(30):
        world.storage.damaged = [(7, (1,))]
        world.scheduler.run_for(5_000)
    world.repairs.stop()
    assert len(world.failures) == 2, "after 0 s and 60 s, and then after 180 s"


def test_damage_is_repaired_when_another_bookie_answers_again() -> None:
    world = damaged_world()
    world.peers.codes = dict.fromkeys(("b1", "b2"), Code.IO_ERROR)
    world.repairs.start()
    world.scheduler.run_for(RETRY_PAUSE_MS - 1_000)
    assert [event for event, _ in world.failures] == ["damage_not_repaired"]
    world.peers.codes.clear()
    assert 1 not in world.storage.entries[7]
    world.scheduler.run_for(5_000)
    assert world.storage.entries[7][1] == stored(7, 1)
    world.repairs.stop()


@pytest.mark.parametrize("code", [Code.IO_ERROR, Code.NO_ENTRY])
def test_damage_that_no_bookie_can_repair_is_tried_with_longer_and_longer_pauses(
    code: Code,
) -> None:
    world = damaged_world()
    world.peers.codes = dict.fromkeys(("b1", "b2"), code)
    run_repairs(world, RETRY_PAUSE_MS << (TRIES_MAX + 1))
    assert len(world.failures) == TRIES_MAX
    assert all(fields["reason"] for _, fields in world.failures)


def test_many_damaged_ledgers_wait_in_the_storage() -> None:
    world = damaged_world()
    world.peers.codes = dict.fromkeys(("b1", "b2"), Code.IO_ERROR)
    ids = range(100, 100 + LEDGERS_MAX)
    for ledger_id in ids:
        world.closed(ledger_id, 0)
    world.storage.damaged = [(ledger_id, (0,)) for ledger_id in ids]
    world.repairs.start()
    world.scheduler.run_for(10_000)
    world.storage.damaged = [(7, (1,))]
    world.scheduler.run_for(10_000)
    assert world.storage.damaged == [(7, (1,))]
    world.repairs.stop()


def test_a_ledger_that_somebody_asks_for_interrupts_the_repair_of_damage() -> None:
    world = damaged_world()
    for ledger_id in range(8, 12):
        world.closed(ledger_id)
    world.storage.damaged = [(ledger_id, (1,)) for ledger_id in range(7, 11)]
    load = world.records.load

    async def loading(ledger_id: int) -> Versioned[LedgerMetadata] | None:
        if not world.records.loaded:
            world.storage.asked = [11]
        return await load(ledger_id)

    world.records.load = loading
    run_repairs(world, 2_000)
    assert list(dict.fromkeys(world.records.loaded))[:3] == [7, 11, 8]
