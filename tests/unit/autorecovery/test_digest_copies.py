"""The digest check: which copies it reads, how it joins holes, and what it stores."""

from __future__ import annotations

from typing import Any

from ledgerlog_spark.model import Quorum
from ledgerlog_spark.protocol.autorecovery.audit import messages as m
from ledgerlog_spark.protocol.autorecovery.audit.check_machine import Steps
from ledgerlog_spark.protocol.autorecovery.audit.digests import (
    COPY_HOLES_MAX,
    POSITION_SIZE_BYTES,
    VERIFIED_ENTRIES_MAX,
    DigestCheck,
    joined,
)
from ledgerlog_spark.protocol.autorecovery.audit.unknown import UnknownCopies
from tests.unit.autorecovery.check_player import Played, digest_check, record

STRIPED = Quorum(5, 3, 2)


def hole(entry_id: int, *, is_damaged: bool = False) -> m.FoundHole:
    return m.FoundHole("a", 0, entry_id, entry_id, is_damaged)


def test_the_copies_of_a_lost_bookie_are_not_read() -> None:
    played = Played(digest_check(), record(1))
    played.registered = frozenset("ab")
    played.run(m.CheckEnded)
    assert {each.bookie_id for each in played.seen_of(m.VerifyCopies)} == {"a", "b"}


def test_a_bookie_that_was_replaced_during_the_check_gets_no_hole() -> None:
    played = Played(digest_check(), record(1))
    played.reads["b"] = lambda request, ids: m.CopiesVerified(request, ids[-1], absent=ids)

    def move() -> None:
        played.records[1] = record(1, version=1, names="adc")

    played.on_load = move
    assert played.run(m.CheckEnded).holes == 0
    assert not played.seen_of(m.WriteHole)


def test_the_position_is_stored_after_many_bytes() -> None:
    played = Played(digest_check(), *map(record, (1, 2, 3)))
    played.reads["a"] = lambda request, ids: m.CopiesVerified(
        request, ids[-1], size_bytes=POSITION_SIZE_BYTES
    )
    played.run(m.CheckEnded)
    kind = m.CheckKind.DIGESTS
    assert played.seen_of(m.StoreCheckTime) == [
        *(m.StoreCheckTime(kind, one) for one in (1, 2, 3)),
        m.StoreCheckTime(kind, 3, is_complete=True),
    ]


def test_holes_are_joined_only_if_no_other_copy_is_between_them() -> None:
    """The first bookie of five holds the entries 0, 3, 4, 5, 8 and so on."""
    assert joined([hole(0), hole(3)], STRIPED) == [m.FoundHole("a", 0, 0, 3)]
    assert joined([hole(0), hole(4)], STRIPED) == [hole(0), hole(4)]
    assert joined([hole(0), hole(5)], STRIPED) == [hole(0), hole(5)]


def test_missing_and_damaged_copies_are_not_joined() -> None:
    both = [hole(3), hole(4, is_damaged=True), hole(5)]
    assert joined(both, STRIPED) == both


class Counted(DigestCheck):
    """A check that notes the largest number of holes of a ledger."""

    holes_max = 0

    def _report_holes(self, ledger_id: int, holes: list[m.FoundHole]) -> Steps[bool]:
        self.holes_max = max(self.holes_max, len(holes))
        return (yield from super()._report_holes(ledger_id, holes))


def test_the_holes_of_one_copy_are_bounded() -> None:
    check = Counted(UnknownCopies())
    played = Played(check, record(1, last=8 * COPY_HOLES_MAX))

    def every_second(request: int, ids: Any) -> m.CopiesVerified:
        return m.CopiesVerified(request, ids[-1], absent=tuple(one for one in ids if one % 2))

    played.reads["b"] = every_second
    played.run(m.WriteHole)
    assert 0 < check.holes_max <= COPY_HOLES_MAX + VERIFIED_ENTRIES_MAX
