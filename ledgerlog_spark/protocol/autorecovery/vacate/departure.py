"""The part of a vacation that its machine needs. The host reads it from a node."""

from __future__ import annotations

from dataclasses import dataclass

BLOCKED_MAX = 20


@dataclass(frozen=True, slots=True)
class Departure:
    """The aim of a vacation, and its progress.

    Attributes:
        deletes_cookie: Whether the cookie of the bookie is deleted at the end.
        is_over: Whether no ledger names the bookie.
        returns: Number of starts of the bookie during the vacation.
        walks: Number of complete walks through all ledgers. After the first walk, writers have left
            the bookie, or are leaving it.
        ledgers_total: Number of ledgers that the first walk found.
        bytes_total: Approximate bytes on the bookie of the ledgers that the first walk found.
        ledgers_left: Number of ledgers that are not moved yet.
        bytes_left: Approximate bytes on the bookie of the ledgers that are not moved yet.
        blocked: The first ledgers that wait for their writers, at most `BLOCKED_MAX`. Their open
            last fragment names the bookie, and a worker never closes a ledger because of a bookie
            that is registered.
        unreadable: The first ledgers whose metadata cannot be read, at most `BLOCKED_MAX`. They
            may name the bookie.
        blocked_count: Number of all ledgers that wait for their writers or cannot be read.
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
