"""Bytes in flight: bounds, and who goes on when they fall."""

from __future__ import annotations

import pytest

from bookie_server.service.in_flight import (
    READ_RESERVE_BYTES_FIRST,
    REQUEST_OVERHEAD_BYTES,
    InFlight,
    ReadReserve,
)


def test_room_ends_at_the_soft_bound_and_everything_a_quarter_above_it() -> None:
    in_flight = InFlight(100)
    in_flight.take(99)
    assert in_flight.has_room
    in_flight.take(1)
    assert not in_flight.has_room
    assert in_flight.hard_size_bytes_max == 125


def test_those_who_wait_go_on_in_their_order_when_a_quarter_is_free() -> None:
    in_flight = InFlight(100)
    in_flight.take(110)
    order: list[str] = []
    in_flight.wait(lambda: order.append("first"))
    in_flight.wait(lambda: order.append("second"))
    in_flight.give_back(30)
    assert order == []
    in_flight.give_back(10)
    assert order == ["first", "second"]
    in_flight.take(10)
    in_flight.give_back(50)
    assert order == ["first", "second"]


def test_one_who_fills_the_room_again_leaves_the_next_waiting() -> None:
    in_flight = InFlight(100)
    in_flight.take(100)
    order: list[str] = []
    in_flight.wait(lambda: (order.append("first"), in_flight.take(60)))
    in_flight.wait(lambda: order.append("second"))
    in_flight.give_back(50)
    assert order == ["first"]
    in_flight.give_back(60)
    assert order == ["first", "second"]


def test_one_who_left_is_not_called() -> None:
    in_flight = InFlight(100)
    in_flight.take(100)
    order: list[str] = []

    def resume() -> None:
        order.append("called")

    in_flight.wait(resume)
    in_flight.forget(resume)
    in_flight.forget(resume)
    in_flight.give_back(100)
    assert order == []


def test_giving_back_more_than_taken_is_a_bug_that_shows() -> None:
    in_flight = InFlight(100)
    with pytest.raises(AssertionError):
        in_flight.give_back(1)


def test_read_reserve_follows_large_answers_at_once_and_small_ones_slowly() -> None:
    reserve = ReadReserve()
    assert reserve.size_bytes == READ_RESERVE_BYTES_FIRST
    reserve.learn(1_000_000)
    assert reserve.size_bytes == 1_000_000 + REQUEST_OVERHEAD_BYTES
    reserve.learn(10)
    assert reserve.size_bytes > 800_000
    for _ in range(200):
        reserve.learn(10)
    assert reserve.size_bytes == 10 + REQUEST_OVERHEAD_BYTES
