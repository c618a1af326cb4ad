"""Scripted schedules, one for each known way to lose or fake an acknowledged entry.

Each passes with the shipped code, and breaks the named invariant while its mutation is applied. The
numbers are those of docs/PROTOCOL.md. By default, a ledger has E3/Qw3/Qa2 on b0, b1 and b2. `w` is
the writer, and `r` recovers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ledgerlog_spark.model import Quorum
from ledgerlog_spark.protocol.ledger import messages as m
from tests.sim.absent_scripts import ABSENT_COUNTEREXAMPLES
from tests.sim.checker import Violation, require
from tests.sim.mutations import MUTATIONS, applied
from tests.sim.network import matching
from tests.sim.options import LEDGER
from tests.sim.runtime import Scheduler
from tests.sim.scripts import (
    Script,
    b18_a_conflict_may_be_with_the_own_write,
    b18_a_deleted_record_settles_no_unknown_write,
    b18_a_second_close_does_not_forget_the_first,
    b18_recovery_of_a_deleted_record_may_have_closed_it,
    closing_unheard,
    e2_a_reader_of_an_old_record_loads_it_again,
    f7_a_bookie_that_was_replaced_does_not_fence_an_open_ledger,
    f7_a_fence_that_rotted_is_asked_of_the_record,
    hold,
    lose,
    recover,
    v2_a_late_answer_makes_room_for_the_next_request,
    v2_recovery_looks_for_stuck_runs_after_every_answer,
    v10_a_fence_that_rotted_is_no_matter_after_its_ledger_was_deleted,
    world_with,
)
from tests.sim.world import World


def t1_recovery_reads_fence() -> World:
    """Entry 0 is lost before b0, stored late by b1, and in flight to b2 for very long.

    The fence to b2 is lost, so only recovery's read of entry 0 fences b2.
    """
    world = world_with(rpc_timeout_ms=2_000)
    lose(world, ("add", "w", "b0"))
    hold(world, ("add", "w", "b2"), ("read", "r", "b1"), ("add_reply", "b1", "w"))
    world.network.drops.append(matching("read", "r", "b2", -1))
    world.network.holds[1] = matching("read", "r", "b1", 0)
    world.add()
    world.run_for(20)
    recover(world)
    world.run_for(60)
    world.network.release(matching("add"))
    world.run_for(60)
    world.network.release(matching("add_reply"))
    world.run_for(60)
    return world


def t2_recovery_starts_at_the_last_fragment() -> World:
    """E2/Qw2/Qa2. The last ensemble never stored anything, so its bookies know no LAC."""
    world = world_with(Quorum(2, 2, 2))
    world.add(5)
    world.run_for(20)
    lose(
        world,
        ("add", "w", "b0"),
        ("add", "w", "b1"),
        ("add", "w", "b3"),
        ("add", "w", "b4"),
    )
    world.prefers["w"] = ("b3", "b4")
    world.add()
    world.run_for(70)
    world.clients["w"].crash()
    recover(world)
    world.run_for(100)
    return world


def _held_by_b1_and_b2(entries: int, **options: Any) -> World:
    """Return a world whose entries b1 and b2 acknowledged and b0 never got. The writer is dead."""
    world = world_with(**options)
    lose(world, ("add", "w", "b0"))
    for _ in range(entries):
        world.add()
    world.run_for(10)
    require(world.checker.last_confirmed == entries - 1, "SCRIPT", "not confirmed")
    world.clients["w"].crash()
    return world


def t5_recovery_reads_from_the_ensemble_as_it_was() -> World:
    """Writing back to b1 and b2 fails, and recovery replaces them: b3 and b4 never had the rest."""
    world = _held_by_b1_and_b2(6, hedge_ms=10_000, rpc_timeout_ms=1_000)
    world.network.holds += [matching("read_reply", "b0", "r", entry) for entry in range(2, 20)]
    lose(world, ("read", "r", "b2"))
    recover(world)
    world.run_for(5.6)
    world.network.drops.clear()
    world.kill("b1")
    world.kill("b2")
    world.run_for(3)
    world.restart("b1")
    world.restart("b2")
    world.network.holds.clear()
    world.network.release(lambda _: True)
    world.run_for(400)
    return world


def t6_recovery_commits_fragments_with_the_close() -> World:
    """The answers of b0 and b1 are lost, recovery puts b3 and b4 in their places, and dies."""
    world = _held_by_b1_and_b2(1)
    lose(world, ("add_reply", "b0", "r"), ("add_reply", "b1", "r"))
    lose(world, ("add", "r", "b3"), ("add", "r", "b4"))
    recover(world)
    world.run_for(200)
    world.clients["r"].crash()
    return world


def t7_silence_is_not_absence() -> World:
    """b0 answers that it has no entry 0. b1 and b2 do not answer."""
    world = _held_by_b1_and_b2(1)
    hold(world, ("read_reply", "b1", "r"), ("read_reply", "b2", "r"))
    world.network.holds = [
        matching("read_reply", "b1", "r", 0),
        matching("read_reply", "b2", "r", 0),
    ]
    recover(world)
    world.run_for(200)
    return world


def t8_one_negative_is_not_absence() -> World:
    """b0, which is asked first, never had entry 0."""
    world = _held_by_b1_and_b2(1)
    world.network.drops.append(matching("read", "r", "b2", -1))
    recover(world)
    world.run_for(100)
    return world


def c8_an_entry_that_no_batch_brought_is_asked_for_by_itself() -> World:
    """b1 and b2 have entry 0, and the answers of both to recovery's batches are lost."""
    world = world_with(recovery_batch_entries=64)
    world.add()
    lose(world, ("add", "w", "b0"))
    world.add()
    world.run_for(10)
    require(world.checker.last_confirmed == 1, "SCRIPT", "not confirmed")
    world.clients["w"].crash()
    lose(world, ("read_batch_reply", "b1", "r"), ("read_batch_reply", "b2", "r"))
    recover(world)
    world.run_for(200)
    return world


def c14_a_floor_is_compared_with_the_newest_record() -> World:
    """Only b0 has entry 0. r finds it absent on b1 and b2, and r2 closes the ledger with it."""
    world = world_with(hedge_ms=10_000, rpc_timeout_ms=1_000)
    lose(world, ("add", "w", "b1"), ("add", "w", "b2"))
    lose(world, ("read", "r", "b0"), ("read", "r2", "b1"))
    world.add()
    world.run_for(10)
    world.clients["w"].crash()
    world.network.holds.append(matching("read_reply", "b2", "r", 0))
    world.recoverer("r", attempts_max=1, floor=0).feed(m.Start())
    world.run_for(20)
    recover(world, "r2")
    world.run_for(100)
    require(world.checker.record.last_entry_id == 0, "SCRIPT", "r2 has not closed at 0")
    require(world.clients["r"].ended is None, "SCRIPT", "r has ended")
    world.network.holds.clear()
    world.network.release(matching("read_reply"))
    world.run_for(1_200)
    return world


def t18_recovery_repeats_the_lac_it_found() -> World:
    """r1 finds nothing beyond entry 0; r2 finds 1 and 2 on b2 alone and writes them back."""
    world = world_with(rpc_timeout_ms=500)
    world.add()
    world.run_for(10)
    lose(world, ("add", "w", "b0"), ("add", "w", "b1"))
    for _ in range(3):
        world.add()
    world.run_for(10)
    world.clients["w"].crash()
    lose(world, ("read", "r1", "b2"), ("read", "r2", "b0"))
    recover(world, "r1")
    world.run_for(3)
    hold(world, ("cas", "r1", "zk"), ("cas", "r2", "zk"))
    world.run_for(30)
    recover(world, "r2")
    world.run_for(15)
    world.network.release(matching("cas", "r1"))
    world.run_for(30)
    world.lac_reader("tail", world.checker.records[0][1].value)
    world.run_for(10)
    world.network.holds.clear()
    world.network.release(lambda _: True)
    world.run_for(100)
    return world


def t30_fencing_covers_the_ensemble() -> World:
    """Only b0 gets the fence. b1 and b2 alone are an ack quorum."""
    world = world_with()
    lose(world, ("read", "r", "b1"), ("read", "r", "b2"))
    recover(world)
    world.run_for(100)
    world.add()
    world.run_for(100)
    return world


def t9_confirmation_is_contiguous() -> World:
    """Entry 1 has its ack quorum while entry 0 is on no bookie."""
    world = world_with()
    hold(world, ("add", "w", "b0"), ("add", "w", "b1"), ("add", "w", "b2"))
    world.add()
    world.run_for(2)
    world.network.holds.clear()
    world.add()
    world.run_for(20)
    return world


def t10_a_fragment_starts_after_the_last_confirmed_entry() -> World:
    """b2 is down when entries 0 and 1 are added, so they belong to the new fragment."""
    world = world_with()
    world.kill("b2")
    world.add()
    world.add()
    world.run_for(30)
    return world


def t11_acknowledgements_go_with_the_replaced_bookie() -> World:
    """b2 acknowledged entry 0 and stopped. b0's answer comes after b2 was replaced."""
    world = world_with(rpc_timeout_ms=2_000)
    lose(world, ("add", "w", "b1"))
    hold(world, ("add_reply", "b0", "w"), ("add", "w", "b3"))
    world.add()
    world.run_for(5)
    world.kill("b2")
    world.add()
    world.run_for(10)
    world.network.release(matching("add_reply", "b0"))
    world.run_for(10)
    return world


def t12_nothing_is_sent_before_the_metadata_names_it() -> World:
    """The store is slow while all bookies of the ensemble fail one after the other."""
    world = world_with(rpc_timeout_ms=20)
    hold(world, ("cas", "w", "zk"))
    lose(world, ("add", "w", "b0"), ("add", "w", "b1"), ("add", "w", "b2"))
    world.add()
    world.run_for(60)
    return world


def t13_nothing_is_confirmed_during_a_change() -> World:
    """Answers for entry 0 come while the new fragment, from entry 0 on, is written to the store."""
    world = world_with(rpc_timeout_ms=2_000)
    hold(world, ("cas", "w", "zk"), ("add_reply", "b0", "w"))
    world.kill("b2")
    world.add()
    world.run_for(10)
    world.network.release(matching("add_reply"))
    world.run_for(5)
    world.network.release(matching("cas"))
    world.run_for(20)
    return world


def t14_the_metadata_is_never_written_blindly() -> World:
    """The writer changes its ensemble just after recovery marked the record."""
    world = world_with(rpc_timeout_ms=20)
    lose(world, ("add", "w", "b2"), ("read", "r", "b0"), ("read", "r", "b1"), ("read", "r", "b2"))
    world.add()
    world.run_for(15)
    recover(world)
    world.run_for(60)
    return world


def t15_an_unknown_write_is_not_taken_for_done() -> World:
    """The write of the new ensemble is lost before it reaches the store."""
    world = world_with(rpc_timeout_ms=20)
    lose(world, ("add", "w", "b2"), ("cas", "w", "zk"))
    world.add()
    world.run_for(200)
    world.add()
    world.run_for(10)
    return world


def t15_an_unknown_write_is_not_taken_for_failed() -> World:
    """The close is written and its answer is lost."""
    world = closing_unheard()
    world.run_for(100)
    return world


def t25_the_same_bookie_is_sent_everything_again() -> World:
    """E3/Qw3/Qa3 and no spare: b2 lost the add, and only b2 itself can take its place."""
    world = world_with(Quorum(3, 3, 3), rpc_timeout_ms=20)
    world.prefers["w"] = ("b0", "b1", "b2")
    lose(world, ("add", "w", "b2"))
    world.add()
    world.run_for(25)
    world.network.drops.clear()
    done = world.run_until(lambda: world.checker.last_confirmed == 0, 2_000)
    require(done, "V2", "entry 0 waits for an answer that nobody will send")
    return world


def t29_a_close_is_at_the_last_confirmed_entry() -> World:
    """Entries 1 and 2 are on no bookie when the writer closes the ledger."""
    world = world_with()
    world.add()
    world.run_for(10)
    lose(world, ("add", "w", "b0"), ("add", "w", "b1"), ("add", "w", "b2"))
    world.add(2)
    world.clients["w"].feed(m.CloseRequested())
    world.run_for(50)
    return world


def a7_an_old_answer_does_not_count_for_another_send() -> World:
    """b1's answer from its first time in the ensemble comes after b3 took its index.

    E3/Qw2/Qa2. Entry 1 is on b1 and b2; b1 fails for entry 0 and is replaced by b3, which never
    gets entry 1. The old answer of b1 must not count as b3's.
    """
    world = world_with(Quorum(3, 2, 2), rpc_timeout_ms=300)
    world.network.drops.append(matching("add", "w", "b1", 0))
    hold(world, ("add_reply", "b1", "w"))
    world.network.holds.append(matching("add", "w", "b3", 1))
    world.add()
    world.run_for(100)
    world.add()
    world.run_for(230)
    world.network.release(matching("add_reply", "b1"))
    world.run_for(20)
    return world


def b12_everything_is_forgotten_before_anything_is_confirmed() -> World:
    """E3/Qw2/Qa2. b2 fails for entry 2; entry 0 is outside its write sets, entry 1 was on it."""
    world = world_with(Quorum(3, 2, 2), rpc_timeout_ms=2_000)
    hold(world, ("add", "w", "b3"), ("add_reply", "b0", "w"))
    world.add()
    world.add()
    world.run_for(5)
    world.kill("b2")
    world.add()
    world.run_for(2)
    world.network.release(matching("add_reply", "b0", "w", 0))
    world.run_for(40)
    return world


def t16_a_fence_is_durable_before_it_is_answered() -> World:
    """b0 loses power right after it answered the fence; the writer's adds come when it is back."""
    world = world_with(rpc_timeout_ms=2_000)
    hold(world, ("add", "w", "b0"), ("add", "w", "b1"), ("add", "w", "b2"))
    world.add()
    lose(world, ("read", "r", "b2"))
    recover(world)
    world.run_until(lambda: "r" in world.checker.ends, 100)
    world.kill("b0", power=True)
    world.restart("b0")
    world.run_for(20)
    world.network.holds.clear()
    world.network.release(matching("add"))
    world.run_for(100)
    return world


def t19_a_fenced_bookie_takes_recovery_adds() -> World:
    """Recovery must write back to the bookies that it fenced, because there are no others."""
    world = _held_by_b1_and_b2(1, bookies=3)
    recover(world)
    world.run_for(100)
    return world


def t20_an_add_is_admitted_again_after_every_wait() -> World:
    """Entry 0 comes after entry 1, so it is compared with stored entries. Then a fence comes."""
    world = world_with(rpc_timeout_ms=2_000)
    world.network.holds += [matching("add", "w", name, 0) for name in ("b0", "b1", "b2")]
    world.add()
    world.add()
    for name in ("b0", "b1", "b2"):
        bookie = world.bookies[name]
        bookie.directories.make_slow((5_000, 5_000))
    world.run_for(2)
    world.network.release(matching("add"))
    world.run_for(1)
    recover(world)
    world.run_for(200)
    return world


def f4_an_add_is_durable_before_it_is_acknowledged() -> World:
    """Both bookies that acknowledged entry 0 lose power right after; b2 never got it."""
    world = world_with()
    lose(world, ("add", "w", "b2"))
    world.add()
    world.run_until(lambda: world.checker.last_confirmed == 0, 100)
    for name in ("b0", "b1"):
        for content in world.bookies[name].disk.seen_names.values():
            content.unsynced.clear()  # this power loss keeps nothing that was not synced
        world.kill(name, power=True)
        world.restart(name)
    world.run_for(30)
    return world


def t39_a_fence_waits_for_adds_that_were_accepted_before() -> World:
    """Entry 0 is accepted by b0 and b1 and waits for a slow sync; b2's copy is lost."""
    world = world_with(rpc_timeout_ms=2_000)
    lose(world, ("add", "w", "b2"))
    for name in ("b0", "b1"):
        world.bookies[name].directories.make_slow((100_000, 100_000))
    world.add()
    world.run_for(5)
    recover(world)
    world.run_for(800)
    return world


def f5_a_dropped_ledger_stays_fenced() -> World:
    """Entry 1 is in flight while the ledger is sealed, deleted and dropped."""
    world = world_with(rpc_timeout_ms=2_000)
    world.add()
    world.run_for(10)
    hold(world, ("add", "w", "b0"), ("add", "w", "b1"), ("add", "w", "b2"))
    world.add()
    world.run_for(10)
    recover(world)
    closed = world.run_until(lambda: "r" in world.checker.ends, 200)
    require(closed, "SCRIPT", "not closed")
    world.delete_ledger()
    for name in ("b0", "b1", "b2"):
        world.collect(name)
    world.run_for(50)
    storage = world.bookies["b0"].storage
    assert storage is not None
    require(storage.counters.by_metric()["drops"] == 1, "SCRIPT", "nothing was dropped")
    world.network.holds.clear()
    world.network.release(matching("add"))
    world.run_for(100)
    return world


def t22_a_listing_alone_deletes_nothing() -> World:
    """The server from which the bookies read the listing does not have the ledger yet."""
    world = world_with()
    world.store.not_listed.add(LEDGER)
    world.add(3)
    world.run_for(20)
    require(world.checker.last_confirmed == 2, "SCRIPT", "not confirmed")
    for name in ("b0", "b1", "b2"):
        world.collect(name)
    world.run_for(50)
    world.store.not_listed.clear()
    return world


COUNTEREXAMPLES: list[tuple[Script, str, str]] = [
    (t1_recovery_reads_fence, "recovery_reads_do_not_fence", "L16"),
    (t2_recovery_starts_at_the_last_fragment, "no_floor_at_last_fragment", "L1"),
    (t5_recovery_reads_from_the_ensemble_as_it_was, "recovery_reads_from_changed_ensemble", "L1"),
    (t6_recovery_commits_fragments_with_the_close, "recovery_commits_fragments_early", "L20"),
    (t7_silence_is_not_absence, "timeouts_are_negatives", "L1"),
    (t8_one_negative_is_not_absence, "one_negative_is_enough", "L1"),
    (c8_an_entry_that_no_batch_brought_is_asked_for_by_itself, "short_batch_is_absence", "L1"),
    (c14_a_floor_is_compared_with_the_newest_record, "floor_from_an_old_record", "L35"),
    (t9_confirmation_is_contiguous, "lac_not_contiguous", "L7"),
    (t10_a_fragment_starts_after_the_last_confirmed_entry, "change_from_last_pushed", "L10"),
    (t11_acknowledgements_go_with_the_replaced_bookie, "keep_acks_of_replaced", "L4"),
    (t12_nothing_is_sent_before_the_metadata_names_it, "send_before_commit", "L26"),
    (t13_nothing_is_confirmed_during_a_change, "lac_moves_during_change", "L10"),
    (t14_the_metadata_is_never_written_blindly, "blind_metadata_write", "L12"),
    (t15_an_unknown_write_is_not_taken_for_done, "unknown_write_is_success", "L26"),
    (t15_an_unknown_write_is_not_taken_for_failed, "unknown_write_is_failure", "L27"),
    (t16_a_fence_is_durable_before_it_is_answered, "fence_not_durable", "L14"),
    (t18_recovery_repeats_the_lac_it_found, "recovery_moves_the_lac", "L9"),
    (t19_a_fenced_bookie_takes_recovery_adds, "fenced_rejects_recovery", "V1"),
    (t20_an_add_is_admitted_again_after_every_wait, "admitted_before_fence", "L14"),
    (t25_the_same_bookie_is_sent_everything_again, "same_bookie_is_not_sent_again", "V2"),
    (t29_a_close_is_at_the_last_confirmed_entry, "close_at_last_pushed", "L5"),
    (t30_fencing_covers_the_ensemble, "fence_one_is_enough", "L16"),
    (f4_an_add_is_durable_before_it_is_acknowledged, "no_fsync", "L32"),
    (t39_a_fence_waits_for_adds_that_were_accepted_before, "fence_skips_queue", "L14"),
    (f5_a_dropped_ledger_stays_fenced, "gc_forgets_fence", "L14"),
    (t22_a_listing_alone_deletes_nothing, "gc_trusts_stale_listing", "V9"),
    (a7_an_old_answer_does_not_count_for_another_send, "old_answers_count", "L4"),
    (b12_everything_is_forgotten_before_anything_is_confirmed, "forget_one_by_one", "L4"),
    (b18_a_deleted_record_settles_no_unknown_write, "gone_is_definite", "L27"),
    (b18_recovery_of_a_deleted_record_may_have_closed_it, "gone_is_definite", "L27"),
    (e2_a_reader_of_an_old_record_loads_it_again, "absent_without_reload", "L3"),
    (v2_a_late_answer_makes_room_for_the_next_request, "late_answer_makes_no_room", "V2"),
    (t2_recovery_starts_at_the_last_fragment, "length_of_other_fragment", "V1"),
    (b18_a_conflict_may_be_with_the_own_write, "conflict_is_definite", "L27"),
    (b18_a_second_close_does_not_forget_the_first, "second_close_forgets_the_first", "L27"),
    (
        v10_a_fence_that_rotted_is_no_matter_after_its_ledger_was_deleted,
        "state_is_not_checked",
        "L14",
    ),
    (f7_a_fence_that_rotted_is_asked_of_the_record, "state_is_not_checked", "L14"),
    (v2_recovery_looks_for_stuck_runs_after_every_answer, "stuck_runs_are_missed", "V2"),
    (f7_a_bookie_that_was_replaced_does_not_fence_an_open_ledger, "replaced_bookie_fences", "L31"),
    *ABSENT_COUNTEREXAMPLES,
]
IDS = [f"{script.__name__}-{mutation}" for script, mutation, _ in COUNTEREXAMPLES]


@contextmanager
def ended(script: Script) -> Iterator[World]:
    """Run a script, then heal the cluster and audit it."""
    try:
        world = script()
        world.audit()
        yield world
    finally:
        # A world that ended with a violation leaves coroutines that never ran.
        for scheduler in list(Scheduler.unfinished):
            scheduler.close()


def is_over(world: World) -> bool:
    """Whether the writer of the ledger has no work left."""
    return world.checker.is_deleted or world.checker.record.is_closed


@pytest.mark.parametrize("script", [script for script, _, _ in COUNTEREXAMPLES], ids=IDS)
def test_the_counterexample_passes_on_the_shipped_code(script: Script) -> None:
    with ended(script) as world:
        assert is_over(world)


@pytest.mark.parametrize(("script", "mutation", "broken"), COUNTEREXAMPLES, ids=IDS)
def test_the_counterexample_breaks_its_invariant_with_its_mutation(
    script: Script, mutation: str, broken: str
) -> None:
    with applied(mutation), pytest.raises(Violation) as caught, ended(script):
        pass
    assert caught.value.name == broken


def test_every_mutation_has_a_counterexample() -> None:
    assert {mutation for _, mutation, _ in COUNTEREXAMPLES} == set(MUTATIONS)


def test_every_mutation_is_named_by_its_rule_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "PROTOCOL.md").read_text()
    rules = {part.partition('"')[0]: part for part in text.split('<a id="')[1:]}
    for name, mutation in MUTATIONS.items():
        assert f"`{name}`" in rules[mutation.rule], f"{name} belongs to {mutation.rule}"
