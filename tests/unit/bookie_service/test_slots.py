"""The owners of places if there are more peers than places."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from bookie_server.service.grpc.calls import FairSlots
from bookie_server.service.v2 import server
from bookie_server.service.v2.peer_watch import PeerWatch
from bookie_server.service.v2.server import is_full


@dataclass(eq=False)
class Peer:
    host: str = "a"
    is_idle: bool = True
    is_proven: bool = True
    received_at: float = 0.0
    watch: PeerWatch = field(init=False)

    def __post_init__(self) -> None:
        self.watch = PeerWatch(self.received_at)


def to_replace(peers: list[Peer], *, is_known_host: bool) -> Any:
    return server.to_replace(cast("Any", peers), is_known_host=is_known_host)


def test_strangers_get_none_of_the_last_eighth_of_the_places() -> None:
    assert not is_full(13, 16, is_known_host=False)
    assert is_full(14, 16, is_known_host=False)
    assert not is_full(15, 16, is_known_host=True)
    assert is_full(16, 16, is_known_host=True)


def test_a_place_is_taken_from_who_never_asked_then_from_the_largest_host_then_the_silent() -> None:
    stranger = Peer(is_proven=False, received_at=9)
    old, new = Peer(received_at=1), Peer(received_at=2)
    small = Peer(host="b", received_at=0)
    busy = Peer(is_idle=False, is_proven=False)
    peers = [new, small, busy, stranger, old]
    order = []
    while (replaced := to_replace(peers, is_known_host=True)) is not None:
        order.append(replaced)
        peers.remove(replaced)
    assert order == [stranger, old, new, small]
    assert peers == [busy]


def test_a_stranger_takes_no_place_of_a_peer_that_was_served() -> None:
    assert to_replace([Peer(), Peer(is_idle=False)], is_known_host=False) is None
    stranger = Peer(is_proven=False)
    assert to_replace([Peer(), stranger], is_known_host=False) is stranger


def test_a_peer_with_few_places_gets_one_of_who_has_most() -> None:
    slots = FairSlots(4)
    ended: list[str] = []
    for number in range(4):
        assert slots.enter("hog", partial(ended.append, f"hog {number}"))
    assert slots.enter("hog", lambda: None) is None
    good = slots.enter("good", lambda: ended.append("good"))
    assert good is not None
    assert ended == ["hog 3"]
    assert slots.enter("good", lambda: None) is not None
    assert slots.enter("good", lambda: None) is None, "both have half"
    assert (slots.count, slots.refused, slots.ended) == (4, 2, 2)
    slots.leave("good", good)
    slots.leave("good", good)
    assert slots.count == 3


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=60))
def test_places_are_bounded_and_each_peer_gets_its_part(steps: list[tuple[str, bool]]) -> None:
    slots = FairSlots(8)
    held: dict[str, list[object]] = {peer: [] for peer in "abcd"}
    for peer, is_entering in steps:
        if is_entering:
            ended: list[str] = []
            before = {name: len(slots._by_peer.get(name, ())) for name in "abcd"}
            place = slots.enter(peer, partial(ended.append, "ended"))
            if place is None:
                assert before[peer] >= max(before.values()) - 1
            else:
                held[peer].append(place)
        elif held[peer]:
            slots.leave(peer, held[peer].pop())
        assert slots.count == sum(map(len, slots._by_peer.values())) <= 8
    for peer in "abcd":
        mine = len(slots._by_peer.get(peer, ()))
        while slots.enter(peer, lambda: None) is not None:
            mine += 1
        assert len(slots._by_peer[peer]) >= 2, "a quarter of the places"
