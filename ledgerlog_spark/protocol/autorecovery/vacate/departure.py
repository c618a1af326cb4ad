"""The part of a vacation's state that its machine needs. The host reads this state from a node."""

from __future__ import annotations

from dataclasses import dataclass

BLOCKED_MAX = 20


@dataclass(frozen=True, slots=True)
class Departure:
    """The aim of a vacation, and its progress.

    Attributes:
        deletes_cookie: Whether the cookie of the bookie is deleted at the end.
        is_over: Whether the vacation has ended, because no ledger names the bookie.
        returns: Number of starts of the bookie during the vacation.
        walks: Number of complete walks over all ledgers. After the first walk, writers have left
            the bookie, or are leaving it.
        ledgers_total: Number of ledgers naming the bookie that the first walk found.
        bytes_total: Approximate number of bytes of these ledgers on the bookie at the first walk.
        ledgers_left: Number of ledgers whose copies are not moved yet.
        bytes_left: Approximate number of bytes of these ledgers on the bookie.
        blocked: The first ledgers that wait for their writers, at most `BLOCKED_MAX`. The last
            fragment of each is open and names the bookie, and a worker never closes a ledger
            because of a bookie that is registered.
        unreadable: The first ledgers whose metadata cannot be read, at most `BLOCKED_MAX`. These
            ledgers may name the bookie.
        blocked_count: Number of all ledgers that wait for their writers or whose metadata cannot be
            read.
    """

    deletes_cookie: bool = False
    is_over: bool = False
    returns: int = 0
    walks: int = 0
    ledgers_total: int = 0
    bytes_total: int = 0
    ledgers_left: int = 0
    bytes_left: int = 0
    blocked: tuple[int, ...] = ()
    unreadable: tuple[int, ...] = ()
    blocked_count: int = 0
