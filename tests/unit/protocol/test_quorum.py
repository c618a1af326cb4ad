"""Quorum rules against brute force over all small ensembles."""

from __future__ import annotations

from itertools import combinations

import pytest

from ledgerlog_spark.model import Quorum
from ledgerlog_spark.protocol.ledger.quorum import (
    is_acknowledged,
    is_covered,
    negative_quorum,
    owned_entries,
    owns,
    write_set,
)

SMALL = [Quorum(e, w, a) for e in range(1, 7) for w in range(1, e + 1) for a in range(1, w + 1)]


def test_the_write_set_of_huge_entry_ids_wraps_without_overflow() -> None:
    quorum = Quorum(5, 3, 2)
    for base in (0, 5 * 2**31, 5 * 2**40, 5 * 2**62):
        assert write_set(quorum, base + 4) == (4, 0, 1)
        assert owns(quorum, 0, base + 4)
        assert not owns(quorum, 2, base + 4)


@pytest.mark.parametrize("quorum", SMALL, ids=str)
def test_owning_an_entry_is_membership_of_its_write_set(quorum: Quorum) -> None:
    for entry_id in range(3 * quorum.ensemble_size):
        for index in range(quorum.ensemble_size):
            assert owns(quorum, index, entry_id) == (index in write_set(quorum, entry_id))


def test_coverage_is_exactly_that_no_ack_quorum_of_unknown_bookies_is_left() -> None:
    cases = 0
    for quorum in SMALL:
        for known in range(1 << quorum.ensemble_size):
            unknown = [i for i in range(quorum.ensemble_size) if not known >> i & 1]
            could_ack = any(
                set(acks) <= set(write_set(quorum, residue))
                for residue in range(quorum.ensemble_size)
                for acks in combinations(unknown, quorum.ack_quorum)
            )
            assert is_covered(quorum, known) == (not could_ack), (quorum, bin(known))
            cases += 1
    assert cases == sum(2**q.ensemble_size for q in SMALL)


def test_a_run_is_acknowledged_exactly_when_each_of_its_entries_is() -> None:
    for quorum in SMALL:
        for acked in range(1 << quorum.ensemble_size):
            for first in range(quorum.ensemble_size):
                for entries in (1, 2, quorum.ensemble_size, quorum.ensemble_size + 3):
                    one_by_one = all(
                        sum(acked >> i & 1 for i in write_set(quorum, first + n))
                        >= quorum.ack_quorum
                        for n in range(entries)
                    )
                    assert is_acknowledged(quorum, acked, first, entries) == one_by_one


def test_a_negative_quorum_leaves_too_few_members_for_an_ack_quorum() -> None:
    for quorum in SMALL:
        left = quorum.write_quorum - negative_quorum(quorum)
        assert left == quorum.ack_quorum - 1


def test_owned_entries_of_all_indexes_are_each_entry_write_quorum_times() -> None:
    quorum = Quorum(5, 3, 2)
    owned = [owned_entries(quorum, index, 7, 18) for index in range(5)]
    for entry_id in range(7, 19):
        assert sum(entry_id in ids for ids in owned) == 3
    assert owned_entries(Quorum(3, 3, 2), 1, 7, 9) == (7, 8, 9)
