"""Deadlines of requests, on a loop whose timers have only a `cancel` method."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerlog_spark.model import Code
from ledgerlog_spark.transport.deadlines import Deadlines
from ledgerlog_spark.transport.pending import Pending
from tests.fixtures.kinds import now


class Timer:
    """A timer like uvloop's for a callback that is due at once: it has no `when`."""

    def __init__(self, due: float, work: Callable[[], None]) -> None:
        self.due = due
        self.work = work
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, due: float, work: Callable[[], None]) -> Timer:
        self.timers.append(Timer(due, work))
        return self.timers[-1]

    def run_until(self, now: float) -> None:
        while due := [t for t in self.timers if not t.is_cancelled and t.due <= now]:
            first = min(due, key=lambda timer: timer.due)
            self.timers.remove(first)
            self.now = max(self.now, first.due)
            first.work()
        self.now = now


class Request(Pending):
    def fail(self, code: Code) -> None:  # noqa: ARG002
        self.is_open = False


@pytest.fixture
def loop() -> Loop:
    return Loop()


def watched(loop: Loop, on_expired: Callable[[list[Pending]], None]) -> Deadlines:
    on_loop: Any = loop
    return Deadlines(on_loop, on_expired)


def test_a_request_with_a_shorter_deadline_brings_the_timer_forward(loop: Loop) -> None:
    expired: list[Pending] = []
    deadlines = watched(loop, expired.extend)
    slow, fast = Request(), Request()
    deadlines.add(slow, 5_000)
    deadlines.add(fast, 200)
    loop.run_until(0.2)
    assert expired == [fast]
    loop.run_until(5)
    assert expired == [fast, slow]


def test_a_request_added_while_others_expire_has_its_own_deadline(loop: Loop) -> None:
    """A resend adds its request in the same turn of the loop, while the next timer is set."""
    expired: list[Pending] = []
    again = Request()

    def resend(requests: list[Pending]) -> None:
        expired.extend(requests)
        if again not in expired:
            deadlines.add(again, 100)

    deadlines = watched(loop, resend)
    first, second = Request(), Request()
    deadlines.add(first, 200)
    loop.run_until(0.15)
    deadlines.add(second, 200)
    loop.run_until(0.31)
    assert expired == [first, again]
    loop.run_until(0.35)
    assert expired == [first, again, second]


def test_what_was_answered_does_not_expire(loop: Loop) -> None:
    expired: list[Pending] = []
    deadlines = watched(loop, expired.extend)
    answered, open_ = Request(), Request()
    deadlines.add(answered, 100)
    deadlines.add(open_, 100)
    answered.fail(Code.OK)
    loop.run_until(1)
    assert expired == [open_]


def test_closed_deadlines_never_fire(loop: Loop) -> None:
    deadlines = watched(loop, lambda _: pytest.fail("closed"))
    deadlines.add(Request(), 100)
    deadlines.close()
    loop.run_until(1)


def test_no_more_requests_are_watched_than_the_bound_and_answered_ones_make_room(
    loop: Loop,
) -> None:
    on_loop: Any = loop
    deadlines = Deadlines(on_loop, lambda _: None, requests_max=4)
    requests = [Request() for _ in range(5)]
    for request in requests[:4]:
        assert not deadlines.is_full
        deadlines.add(request, 5_000)
    assert now(deadlines.is_full)
    requests[2].fail(Code.OK)
    assert now(deadlines.is_full), "the queue is not looked through for each request"
    loop.run_until(0.1)
    assert not now(deadlines.is_full)
    deadlines.add(requests[4], 5_000)
    assert now(deadlines.is_full)
    loop.run_until(6)
    assert not deadlines.is_full


TIMEOUTS_MS = (100, 300, 700)


@given(
    asked=st.lists(
        st.tuples(
            st.integers(0, 1_000), st.sampled_from(TIMEOUTS_MS), st.one_of(st.none(), st.just(50))
        ),
        max_size=30,
    )
)
def test_whatever_else_is_out_each_request_expires_at_its_own_deadline(
    asked: list[tuple[int, int, int | None]],
) -> None:
    loop = Loop()
    expired: dict[int, float] = {}
    requests: list[Pending] = []
    deadlines = watched(
        loop, lambda gone: expired.update((requests.index(one), loop.now) for one in gone)
    )
    steps: list[tuple[int, Callable[[], None]]] = []
    for begin_ms, timeout_ms, answer_ms in asked:
        request = Request()
        requests.append(request)
        steps.append((begin_ms, partial(deadlines.add, request, timeout_ms)))
        if answer_ms is not None:
            steps.append((begin_ms + answer_ms, partial(lambda one: one.fail(Code.OK), request)))
    for at_ms, step in sorted(steps, key=lambda each: each[0]):
        loop.run_until(at_ms / 1e3)
        step()
    loop.run_until(10)
    wanted = {
        number: pytest.approx((begin_ms + timeout_ms) / 1e3)
        for number, (begin_ms, timeout_ms, answer_ms) in enumerate(asked)
        if answer_ms is None
    }
    assert expired == wanted
