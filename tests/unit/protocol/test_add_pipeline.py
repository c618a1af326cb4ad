"""The add pipeline alone: windows, striping, and a model of confirmation by entry."""

from __future__ import annotations

import gc
import weakref

from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerlog_spark.model import NO_ENTRY, Code, Quorum
from ledgerlog_spark.protocol.ledger.messages import AddReplied, RunConfirmed, SendAdd
from ledgerlog_spark.protocol.ledger.quorum import write_set
from ledgerlog_spark.protocol.ledger.write.add_pipeline import AddPipeline, Window
from ledgerlog_spark.protocol.request_numbers import RequestNumbers
from tests.fixtures.examples import examples
from tests.fixtures.kinds import now


def pipeline(
    quorum: Quorum, *, entries_max: int = 1000, is_recovery: bool = False, after: int = NO_ENTRY
) -> AddPipeline:
    return AddPipeline(
        ledger_id=1,
        quorum=quorum,
        ensemble=tuple(f"b{i}" for i in range(quorum.ensemble_size)),
        numbers=RequestNumbers(),
        last_add_confirmed=after,
        length=10 * (after + 1),
        window=Window(entries_max=entries_max, size_bytes_max=1000),
        is_recovery=is_recovery,
    )


def ok(adds: AddPipeline, *sends: SendAdd) -> list[RunConfirmed]:
    for send in sends:
        adds.take_reply(AddReplied(send.request, Code.OK))
    return adds.confirm()


def test_the_window_counts_what_a_slow_third_replica_still_owes() -> None:
    adds = pipeline(Quorum(3, 3, 2), entries_max=2)
    first = adds.add([b"x"])
    second = adds.add([b"x"])
    assert not now(adds.can_add)
    assert ok(adds, *first[:2], *second[:2]) == [RunConfirmed(0, 0), RunConfirmed(1, 1)]
    assert not now(adds.can_add), "confirmed, and still owed by the third"
    ok(adds, first[2])
    assert adds.can_add
    assert (adds.entries_in_flight, adds.size_bytes_in_flight) == (1, 1)


def test_nothing_is_kept_of_a_run_that_everybody_answered() -> None:
    adds = pipeline(Quorum(3, 3, 2))
    payload = memoryview(b"x")
    sends = adds.add([payload])
    kept = weakref.ref(payload)
    assert ok(adds, *sends) == [RunConfirmed(0, 0)]
    del payload, sends
    gc.collect()
    assert kept() is None


def test_what_is_withdrawn_is_forgotten_and_never_confirmed() -> None:
    """The first run is confirmed, but the third bookie has not stored it. The second run is not."""
    adds = pipeline(Quorum(3, 3, 2))
    payloads = memoryview(b"x"), memoryview(b"y")
    late, pending = adds.add([payloads[0]]), adds.add([payloads[1]])
    kept = [weakref.ref(payload) for payload in payloads]
    assert ok(adds, *late[:2]) == [RunConfirmed(0, 0)]
    assert adds.withdraw() == 1
    assert adds.first_unconfirmed_entry_id is None
    assert (adds.entries_in_flight, adds.size_bytes_in_flight) == (0, 0)
    for send in (late[2], *pending):
        assert adds.take_reply(AddReplied(send.request, Code.OK)) is None
    assert adds.confirm() == []
    assert adds.resend(2) == [], "nothing is owed any more"
    del payloads, late, pending, send
    gc.collect()
    assert [each() for each in kept] == [None, None]


def test_the_window_counts_bytes_as_well() -> None:
    adds = pipeline(Quorum(1, 1, 1))
    (send,) = adds.add([b"x" * 1000])
    assert not adds.can_add
    ok(adds, send)
    assert adds.can_add


def test_striped_members_get_the_entries_that_they_own() -> None:
    adds = pipeline(Quorum(4, 2, 2))
    sends = {s.index: s.entry_ids for s in adds.add([b"x"] * 5)}
    assert sends == {0: (0, 3, 4), 1: (0, 1, 4), 2: (1, 2), 3: (2, 3)}
    assert [s.index for s in adds.add([b"x"])] == [1, 2]


def test_a_striped_run_waits_for_each_of_its_residue_classes() -> None:
    adds = pipeline(Quorum(4, 2, 1))
    sends = {s.index: s for s in adds.add([b"x"] * 4)}
    assert ok(adds, sends[0]) == [], "entries 1 and 2 are on nobody"
    assert ok(adds, sends[2]) == [RunConfirmed(0, 3)]


def test_a_huge_entry_id_is_striped_like_a_small_one() -> None:
    adds = pipeline(Quorum(3, 2, 2), after=3 * 2**31 - 1)
    assert [(s.index, s.entry_ids) for s in adds.add([b"x"])] == [(0, None), (1, None)]


def test_replacing_a_bookie_forgets_its_acknowledgements_of_every_pending_run() -> None:
    adds = pipeline(Quorum(3, 3, 2))
    first, second = adds.add([b"x"]), adds.add([b"x"])
    adds.is_paused = True
    assert ok(adds, *second[:2], first[0]) == []
    resent = adds.replace(("b9", "b1", "b2"), (0,))
    assert [(s.bookie_id, s.run.first_entry_id) for s in resent] == [("b9", 0), ("b9", 1)]
    adds.is_paused = False
    assert ok(adds, first[1], first[2]) == [RunConfirmed(0, 0)], "the second has b1's alone"
    assert ok(adds, resent[1]) == [RunConfirmed(1, 1)]


def test_replacing_a_bookie_lets_it_off_for_confirmed_runs() -> None:
    adds = pipeline(Quorum(3, 3, 2))
    sends = adds.add([b"x"])
    ok(adds, *sends[:2])
    assert adds.entries_in_flight == 1
    assert adds.replace(("b0", "b1", "b9"), (2,)) == []
    assert adds.entries_in_flight == 0


def test_trying_a_bookie_again_sends_what_it_missed_of_confirmed_runs_too() -> None:
    adds = pipeline(Quorum(3, 3, 2))
    first = adds.add([b"x"])
    adds.take_reply(AddReplied(first[2].request, Code.TIMEOUT))
    adds.suspend(2)
    ok(adds, *first[:2])
    second = adds.add([b"x"])
    assert [s.index for s in second] == [0, 1]
    assert [s.run.first_entry_id for s in adds.resend(2)] == [0, 1]


def test_withdrawing_gives_back_the_length_of_what_was_pending() -> None:
    adds = pipeline(Quorum(1, 1, 1))
    (send,) = adds.add([b"xxx"])
    ok(adds, send)
    adds.add([b"yyyy"])
    assert adds.withdraw() == 1
    assert (adds.last_add_confirmed, adds.length) == (0, 3)
    assert adds.confirm() == []


def test_recovery_repeats_the_last_add_confirmed_that_it_found() -> None:
    adds = pipeline(Quorum(1, 1, 1), is_recovery=True, after=4)
    (send,) = adds.add([b"x"])
    ok(adds, send)
    (later,) = adds.add([b"x"])
    assert (adds.last_add_confirmed, later.run.last_add_confirmed) == (5, 4)
    assert later.is_recovery


def test_it_is_stuck_when_the_oldest_run_cannot_be_acknowledged_any_more() -> None:
    adds = pipeline(Quorum(3, 3, 2))
    sends = adds.add([b"x"])
    for send, stuck in zip(sends, (False, True, True), strict=True):
        adds.take_reply(AddReplied(send.request, Code.TIMEOUT))
        assert adds.is_stuck == stuck


QUORUMS = st.sampled_from(
    [Quorum(e, w, a) for e in range(1, 5) for w in range(1, e + 1) for a in range(1, w + 1)]
)


@settings(max_examples=examples(60), deadline=None)
@given(quorum=QUORUMS, data=st.data())
def test_confirmation_agrees_with_a_model_that_counts_each_entry_by_itself(
    quorum: Quorum, data: st.DataObject
) -> None:
    """Runs of any size, answers in any order, replaced bookies: an entry-by-entry model agrees."""
    adds = pipeline(quorum)
    out: list[SendAdd] = []
    stored: dict[int, set[int]] = {}
    runs: list[range] = []
    confirmed = NO_ENTRY
    for step in range(data.draw(st.integers(5, 25))):
        action = data.draw(st.sampled_from(["add", "ok", "ok", "ok", "replace"]))
        if action == "add":
            sends = adds.add([b"x"] * data.draw(st.integers(1, 6)))
            runs.append(range(sends[0].run.first_entry_id, sends[0].run.last_entry_id + 1))
            stored.update((entry_id, set()) for entry_id in runs[-1])
            out += sends
        elif action == "ok" and out:
            send = out.pop(data.draw(st.integers(0, len(out) - 1)))
            is_current = adds.ensemble[send.index] == send.bookie_id
            adds.take_reply(AddReplied(send.request, Code.OK))
            ids = send.entry_ids or range(send.run.first_entry_id, send.run.last_entry_id + 1)
            for entry_id in ids if is_current else ():
                stored[entry_id].add(send.index)
        elif action == "replace":
            index = data.draw(st.integers(0, quorum.ensemble_size - 1))
            ensemble = list(adds.ensemble)
            ensemble[index] = f"new{step}"
            out += adds.replace(tuple(ensemble), (index,))
            for entry_id, at in stored.items():
                if entry_id > confirmed:
                    at.discard(index)
        adds.confirm()
        for run in runs:
            if run[0] != confirmed + 1:
                continue
            if all(len(stored[e] & set(write_set(quorum, e))) >= quorum.ack_quorum for e in run):
                confirmed = run[-1]
        assert adds.last_add_confirmed == confirmed
