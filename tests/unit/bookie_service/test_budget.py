"""A limit of bytes that peers share: it is kept, every peer gets bytes, and none gets all."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bookie_server.service.limits.budget import Budget, Share
from tests.fixtures.examples import examples

RESERVE = 10
SIZE = 1_000_000
PART = SIZE // 10


def test_what_fits_is_granted_and_counted_until_it_is_given_back() -> None:
    budget = Budget("reads", SIZE)
    share = budget.share("a", RESERVE)
    assert share.take(RESERVE + 100)
    assert (budget.held_bytes, budget.shared_bytes) == (RESERVE + 100, 100)
    share.give_back(RESERVE + 100)
    assert (budget.held_bytes, budget.shared_bytes) == (0, 0)


def test_giving_back_more_than_taken_is_a_bug_that_shows() -> None:
    share = Budget("reads", SIZE).share("a")
    with pytest.raises(AssertionError):
        share.give_back(1)


@pytest.mark.parametrize("hogs", [1, 2, 18])
def test_greedy_shares_get_the_same_and_leave_as_much(hogs: int) -> None:
    budget = Budget("reads", 1_000 * SIZE)
    shares = [budget.share(f"host {number}") for number in range(hogs)]
    for share in shares:
        share.trust(1_000 * SIZE)
    for _ in range(12 * hogs):
        for share in shares:
            share.give_back(share.held_bytes - share.held_bytes // 2)
            while share.take(max(1, share.allowance_bytes // 2)):
                pass
    equal = 1_000 * SIZE // (hogs + 2)
    assert all(0.5 * equal < share.held_bytes < 2 * equal for share in shares)
    assert budget.free_bytes > equal


def test_one_host_with_many_connections_leaves_a_third_to_others() -> None:
    budget = Budget("reads", SIZE)
    for _ in range(500):
        share = budget.share("one host")
        share.trust(SIZE)
        while share.take(100):
            pass
    assert budget.free_bytes >= SIZE // 3 - 100
    other = budget.share("another host")
    other.trust(SIZE)
    assert other.take(SIZE // 7)


def test_who_never_finished_what_it_held_gets_half_of_the_lane_at_most() -> None:
    budget = Budget("adds", SIZE)
    for number in range(500):
        share = budget.share(f"host {number}")
        while share.take(70_000):
            pass
    assert budget.free_bytes >= SIZE // 2
    proven = budget.share("host 1")
    proven.trust(25_000)
    assert proven.take(70_000)


def test_a_reserve_is_granted_while_the_lane_is_full() -> None:
    budget = Budget("reads", SIZE)
    budget.share("a").force(SIZE)
    share = budget.share("a", RESERVE)
    assert share.take(RESERVE)
    assert not share.take(1)
    assert share.allowance_bytes == 0


def trusted(budget: Budget, host: str) -> Share:
    share = budget.share(host)
    share.trust(SIZE)
    return share


def test_who_waits_is_granted_in_order_and_is_not_overtaken() -> None:
    budget = Budget("adds", SIZE)
    full = budget.share("a")
    full.force(SIZE)
    order: list[str] = []
    first, second, newcomer = (trusted(budget, "a") for _ in range(3))
    first.wait(4 * PART, lambda: order.append("first"))
    second.wait(4 * PART, lambda: order.append("second"))
    full.give_back(6 * PART)
    assert order == []
    assert not newcomer.take(4 * PART), "the first in line would starve"
    assert newcomer.take(PART), "who wants little waits for few"
    newcomer.give_back(PART)
    full.give_back(4 * PART)
    assert order == ["first"]
    first.give_back(4 * PART)
    assert order == ["first", "second"]


def test_a_share_that_is_trusted_is_served_before_a_line_of_strangers() -> None:
    budget = Budget("adds", SIZE)
    full = budget.share("a")
    full.force(SIZE)
    order: list[str] = []
    for _ in range(100):
        budget.share("a").wait(2 * PART, lambda: order.append("stranger"))
    known = trusted(budget, "a")
    known.wait(2 * PART, lambda: order.append("known"))
    full.give_back(SIZE)
    assert order[0] == "known"
    assert "stranger" in order


def test_everybody_in_line_is_served_although_others_come_and_want_less() -> None:
    budget = Budget("adds", SIZE)
    hog = budget.share("a")
    hog.force(SIZE)
    served: list[str] = []
    budget.share("a").wait(4 * PART, lambda: served.append("stranger"))
    busy = trusted(budget, "a")
    rounds = 0
    while not served:
        rounds += 1
        assert rounds < 1_000, "overtaken for ever"
        if not busy.is_waiting and not busy.held_bytes:
            busy.wait(PART, lambda: None)
        hog.give_back(hog.held_bytes)
        if busy.held_bytes:
            hog.force(max(0, SIZE - budget.shared_bytes))
            busy.give_back(busy.held_bytes)


def test_who_was_served_before_and_came_first_is_not_behind_newcomers() -> None:
    """Its place is not later than the virtual time at which it got its last bytes."""
    budget = Budget("adds", SIZE, is_draining=True)
    full = budget.share("a")
    full.force(SIZE)
    order: list[str] = []
    old = trusted(budget, "b")
    for _ in range(5):
        old.wait(PART, lambda: None)
        full.give_back(PART)
        old.give_back(PART)
        full.force(PART)
    old.wait(PART, lambda: order.append("old"))
    for number in range(3):
        trusted(budget, "c").wait(PART, partial(order.append, f"new {number}"))
    full.give_back(SIZE)
    assert order == ["old", "new 0", "new 1", "new 2"]


def test_a_share_that_has_much_already_does_not_hold_up_those_behind_it() -> None:
    budget = Budget("reads", SIZE)
    hog = trusted(budget, "a")
    assert hog.take(SIZE // 4)
    hog.wait(4 * PART, lambda: pytest.fail("a hog is not granted half of what is free"))
    assert trusted(budget, "b").take(2 * PART)


def test_a_wait_that_is_given_up_is_never_granted_and_lets_the_next_go_on() -> None:
    budget = Budget("reads", SIZE)
    full = budget.share("a")
    full.force(SIZE)
    granted: list[str] = []
    first, second = trusted(budget, "a"), budget.share("a")
    first.wait(SIZE // 2 - 1, lambda: granted.append("first"))
    second.wait(SIZE // 2, lambda: granted.append("second"))
    full.give_back(SIZE - SIZE // 9)
    assert granted == []
    first.stop_waiting()
    first.stop_waiting()
    full.give_back(SIZE // 9)
    assert granted == ["second"]


def test_who_leaves_the_line_makes_way_for_those_behind_at_once() -> None:
    """No share gives bytes back: the free bytes were only reserved for the share that left."""
    budget = Budget("reads", SIZE)
    budget.share("a").force(4 * PART)
    full = budget.share("c")
    full.force(6 * PART)
    granted: list[str] = []
    first, second = trusted(budget, "a"), trusted(budget, "b")
    first.wait(PART // 2, lambda: granted.append("first"))
    second.wait(PART // 2 + 1, lambda: granted.append("second"))
    full.give_back(PART * 3 // 2)
    assert granted == [], "host a has enough, and b does not overtake it"
    first.stop_waiting()
    assert granted == ["second"]


def test_who_stood_behind_a_host_is_served_when_others_come_and_that_host_has_too_much() -> None:
    budget = Budget("writes", 110_000, is_draining=True)
    budget.share("a").force(76_000)
    granted: list[str] = []
    budget.share("a").wait(50_000, lambda: granted.append("large"))
    small = budget.share("a")
    small.wait(60_000, lambda: granted.append("all"))  # so its next place is after the other
    small.stop_waiting()
    assert not small.take(4_000), "the one before it is entitled to what comes free"
    small.wait(4_000, lambda: granted.append("small"))
    assert budget.share("b").take(24_000)
    assert granted == ["small"]


def test_pressure_is_reported_when_a_share_waits_or_is_refused() -> None:
    budget = Budget("reads", SIZE)
    reports: list[int] = []
    budget.on_pressure = lambda: reports.append(budget.waiting_count)
    budget.share("a").force(SIZE)
    share = budget.share("b")
    share.wait(7, lambda: None)
    share.refuse()
    assert reports == [1, 1]
    assert (budget.waits, budget.refusals) == (1, 1)


class Peers(RuleBasedStateMachine):
    """Peers that take, wait, give back and leave in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = Budget("lane", SIZE)
        self.shares: list[Share] = []
        self.granted: dict[Share, int] = {}

    @rule(host=st.sampled_from("abc"), reserve=st.sampled_from([0, RESERVE]))
    def join(self, host: str, reserve: int) -> None:
        self.shares.append(self.budget.share(host, reserve))

    @precondition(lambda self: self.shares)
    @rule(data=st.data(), size=st.integers(1, SIZE))
    def prove(self, data: st.DataObject, size: int) -> None:
        data.draw(st.sampled_from(self.shares)).trust(size)

    @precondition(lambda self: self.shares)
    @rule(data=st.data(), size=st.integers(1, SIZE // 2))
    def demand(self, data: st.DataObject, size: int) -> None:
        share = data.draw(st.sampled_from(self.shares))
        if share.is_waiting:
            return
        is_alone = not self.budget.waiting_count
        allowance = share.allowance_bytes
        is_taken = share.take(size)
        assert is_taken == (size <= allowance) or not is_alone
        if not is_taken:
            share.wait(size, lambda: self.granted.__setitem__(share, size))

    @precondition(lambda self: self.shares)
    @rule(data=st.data(), part=st.integers(1, 4))
    def give_back(self, data: st.DataObject, part: int) -> None:
        share = data.draw(st.sampled_from(self.shares))
        share.give_back(share.held_bytes // part)

    @precondition(lambda self: self.shares)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        share = data.draw(st.sampled_from(self.shares))
        self.shares.remove(share)
        share.stop_waiting()
        share.give_back(share.held_bytes)

    @invariant()
    def nothing_is_above_the_bound(self) -> None:
        beyond = [max(0, share.held_bytes - share.reserve_bytes) for share in self.shares]
        assert self.budget.shared_bytes == sum(beyond) <= SIZE
        assert self.budget.held_bytes == sum(share.held_bytes for share in self.shares)
        assert sum(self.budget._hosts.values()) == self.budget.shared_bytes

    @invariant()
    def a_reserve_is_always_granted(self) -> None:
        for share in self.shares:
            assert share.allowance_bytes >= share.reserve_bytes - share.held_bytes

    @invariant()
    def an_idle_lane_leaves_nobody_waiting(self) -> None:
        if not self.budget.shared_bytes:
            assert not self.budget.waiting_count

    def teardown(self) -> None:
        """Check that every waiting share gets bytes after the others give bytes back."""
        for _ in range(2 * len(self.shares) + 1):
            for share in self.shares:
                share.give_back(share.held_bytes)
        assert not self.budget.waiting_count
        assert not self.budget.held_bytes


@given(st.lists(st.integers(1, SIZE // 7), min_size=1, max_size=30), st.integers(1, 20))
def test_hogs_that_give_nothing_back_stop_nobody(sizes: list[int], hogs: int) -> None:
    """A well-behaved share takes bytes and gives them back, while hogs keep all that they get."""
    budget = Budget("reads", SIZE)
    good = budget.share("good", RESERVE)
    good.trust(SIZE)
    held = [trusted(budget, "bad") for _ in range(hogs)]
    for size in sizes:
        for hog in held:
            for step in (SIZE // 10, SIZE // 100, SIZE // 1_000):
                while hog.take(step):
                    pass
            if not hog.is_waiting:
                hog.wait(SIZE // 2, lambda: None)
        assert good.take(size)
        good.give_back(size)


def test_fuzzed_peers() -> None:
    run_state_machine_as_test(
        Peers, settings=settings(max_examples=examples(30), stateful_step_count=40)
    )
